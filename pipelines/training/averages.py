"""Exponential moving averages, whose decay rises from a tenth so that what they began with is soon forgotten."""

from collections.abc import Sequence

import tensorflow as tf


def rising(decay: float, step: tf.Tensor) -> tf.Tensor:
    """The decay of a moving average at a step: (1 + step) / (10 + step) up to `decay`, float32.

    So an average covers a ninth of the steps so far at most, and forgets what it began with, as tf.train.ExponentialMovingAverage does.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(decay, (1.0 + done) / (10.0 + done))


def moved(averages: Sequence[tf.Tensor], values: Sequence[tf.Tensor], decay: float, step: tf.Tensor) -> list[tf.Tensor]:
    """The averages, float32, after one more step that ended with `values`."""
    decay = rising(decay, step)
    return [average + (tf.cast(value, tf.float32) - average) * (1.0 - decay) for average, value in zip(averages, values)]
