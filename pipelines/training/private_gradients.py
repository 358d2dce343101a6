"""DP-SGD (Abadi et al. 2016, "Deep Learning with Differential Privacy", arXiv:1607.00133): what it changes in a step.

Each example's gradient is clipped to one L2 norm over all weights, and Gaussian noise is added once to the sum over the whole batch, after
replicas and micro-batches were summed. The noise is a pure function of (key, step, weight), the same on every replica. The key is secret.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.data.draws import Draws
from pipelines.training.accumulation import Sums


class PrivateGradients:
    """
    Args:
        clip: largest L2 norm of an example's gradient.
        noise: standard deviation of the noise as a multiple of `clip`.
        expected: examples of a batch on average, by which the noisy sum is divided.
        key: two int64, secret.
    """

    def __init__(self, *, clip: float, noise: float, expected: int, key: tuple[int, int]):
        self.clip, self.noise, self.expected, self.key = clip, noise, expected, key

    def by_example(self, forward_and_backward: Callable[..., Sums]) -> Callable[..., Sums]:
        """The same function of a micro-batch, with the sum of clipped gradients of its examples. An example whose gradient is not finite
        adds nothing. Memory: the gradients of all examples of a micro-batch at once."""

        def summed(weights: list, state: list, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws, scale: tf.Tensor,
                   rows: None) -> Sums:
            def one(example: Any) -> tuple[list, tf.Tensor]:
                *alone, place = tf.nest.map_structure(lambda value: value[None], example)
                sums = forward_and_backward(weights, state, *alone, Draws(draws.seed, place), scale, rows)
                if sums.statistics or sums.lookups:
                    raise ConfigError("train.privacy: this model keeps statistics of batches or embedding tables, in which no example can "
                                      "be clipped; take a model without, such as one with group or layer normalisation")
                norm = tf.linalg.global_norm(sums.gradients)
                factor = tf.where(tf.math.is_finite(norm), self.clip / tf.maximum(norm, self.clip), 0.0)
                return [tf.math.multiply_no_nan(gradient, factor) for gradient in sums.gradients], sums.totals

            with _without_advice():
                gradients, totals = tf.vectorized_map(one, (inputs, targets, mask, draws.places))
            return Sums([tf.reduce_sum(each, 0) for each in gradients], {}, tf.reduce_sum(totals, 0), [])

        return summed

    def noised(self, sums: Sums, step: tf.Tensor) -> Sums:
        """Sums over the whole batch, with noise in the gradients; in graph, once a step."""
        key = tf.random.experimental.stateless_fold_in(tf.constant(self.key, tf.int64), tf.cast(step, tf.int64))
        return sums._replace(gradients=[
            gradient + self.noise * self.clip * tf.random.stateless_normal(
                tf.shape(gradient), tf.random.experimental.stateless_fold_in(key, number), dtype=gradient.dtype)
            for number, gradient in enumerate(sums.gradients)])


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silences TensorFlow's remarks on operations that it maps one example at a time."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
