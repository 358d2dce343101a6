"""Layers that Keras lacks: batch normalisation over a recording's own frames, and masks of own frames against padding."""

from typing import Any

import keras
import tensorflow as tf


class MaskedNorm(keras.layers.BatchNormalization):
    """Batch normalisation of [batch, steps, channels] over the steps that belong to recordings; zeros behind them.

    Call with (inputs, own), own [batch, steps, 1] of 1 and 0.
    """

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-3, **options: Any):
        super().__init__(momentum=momentum, epsilon=epsilon, **options)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape[0] if isinstance(input_shape[0], (tuple, list)) else input_shape)
        self.input_spec = None  # two inputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape[0]

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        x, own = inputs
        wide, own32 = tf.cast(x, tf.float32), tf.cast(own, tf.float32)
        if training and self.trainable:
            count = tf.maximum(tf.reduce_sum(own32), 1.0)
            kept = wide * own32
            mean = tf.reduce_sum(kept, [0, 1]) / count
            variance = tf.reduce_sum(kept * kept, [0, 1]) / count - mean * mean
            variance = tf.maximum(variance, 0.0)
            self.moving_mean.assign(self.moving_mean * self.momentum + mean * (1.0 - self.momentum))
            self.moving_variance.assign(self.moving_variance * self.momentum + variance * (1.0 - self.momentum))
        else:
            mean, variance = tf.cast(self.moving_mean, tf.float32), tf.cast(self.moving_variance, tf.float32)
        scale = tf.cast(self.gamma, tf.float32) * tf.math.rsqrt(variance + self.epsilon)
        return tf.cast((wide * scale + (tf.cast(self.beta, tf.float32) - mean * scale)) * own32, x.dtype)


class Own(keras.layers.Layer):
    """[batch, steps, 1] of 1 for the steps that belong to a recording and 0 behind. Call with (features, frames)."""

    def __init__(self, stride: int, **options: Any):
        super().__init__(**options)
        self.stride = stride

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0][0], None, 1)

    def call(self, inputs: Any) -> tf.Tensor:
        features, frames = inputs
        steps = -(-tf.shape(features)[1] // self.stride)
        own = tf.range(steps)[None] < (-(-frames // self.stride))[:, None]
        return tf.cast(own, features.dtype)[..., None]


class Positions(keras.layers.Layer):
    """Adds sines of the step's number (Vaswani et al. 2017, section 3.5) to [batch, steps, channels]."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        steps, channels = tf.shape(inputs)[1], inputs.shape[2]
        rates = tf.exp(-tf.math.log(10_000.0) * tf.range(0, channels, 2, dtype=tf.float32) / channels)
        angles = tf.cast(tf.range(steps), tf.float32)[:, None] * rates[None]
        waves = tf.concat([tf.sin(angles), tf.cos(angles)], axis=1)[:, :channels]
        return inputs + tf.cast(waves, inputs.dtype)[None]


class Reach(keras.layers.Layer):
    """[batch, 1, steps] bool, which steps may be attended to, from what `Own` gives."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], 1, input_shape[1])

    def call(self, own: tf.Tensor) -> tf.Tensor:
        return (own[..., 0] > 0)[:, None, :]
