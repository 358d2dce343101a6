"""What goes from step to step besides the weights."""

from typing import NamedTuple

import tensorflow as tf

from pipelines.training import loss_scale


class Carry(NamedTuple):
    """Everything in it is saved with a checkpoint."""

    totals: tf.Tensor  # [2 + scores] float64: sum of loss, of weights, of each score, since the epoch began
    loss: tf.Tensor  # float32: mean loss of the last step
    gradient_norm: tf.Tensor  # float32: global norm of the last step's gradient, before clipping
    loss_scale: tf.Tensor  # float32: 1 unless float16
    good_steps: tf.Tensor  # int32: finite steps since the loss scale changed
    finite: tf.Tensor  # bool: False stops the loop
    waited: tf.Tensor  # float64, s: time spent waiting for input

    @classmethod
    def fresh(cls, scores: int, precision: str) -> "Carry":
        """The carry at step 0."""
        return cls(tf.zeros([2 + scores], tf.float64), tf.constant(0.0), tf.constant(0.0), tf.constant(loss_scale.first(precision)),
                   tf.constant(0), tf.constant(True), tf.constant(0.0, tf.float64))
