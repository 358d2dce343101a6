"""The scale of the loss in float16, whose small gradients would be 0: it grows while they are finite and is halved at each overflow.

Micikevicius et al. 2018 (arXiv:1710.03740). All replicas see the same sum of gradients, so they agree.
"""

import tensorflow as tf

FIRST, PATIENCE = 2.0**15, 2000  # doubled after so many finite steps


def first(precision: str) -> float:
    """The scale at step 0: 1 unless float16."""
    return FIRST if precision == "float16" else 1.0


def after(scale: tf.Tensor, good_steps: tf.Tensor, finite: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(scale float32, finite steps since it changed int32) after a step whose gradients were finite or not."""
    grown = good_steps + 1 >= PATIENCE
    new = tf.where(finite, tf.where(grown, scale * 2.0, scale), scale * 0.5)
    return new, tf.where(finite & ~grown, good_steps + 1, 0)
