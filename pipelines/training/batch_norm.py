"""Batch normalisation: one fused operation with the numbers of Keras' own layer, several times as fast; and its batch statistics.

Keras 3 computes it from a dozen elementwise operations in float32, which costs more than a 3 x 3 convolution on a CPU.
TensorFlow's fused kernel (oneDNN, cuDNN, XLA) takes half-precision images with float32 statistics.

The moving statistics of all such layers are kept by the training step, not by the layers, so that what was there before step 0 is
soon forgotten: with the momentum 0.999 of MobileNetV3, a training of 1,000 steps would be judged with a third of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf


def rising(decay: float, step: tf.Tensor) -> tf.Tensor:
    """The decay of a moving average at a step: (1 + step) / (10 + step) up to `decay`, float32.

    So an average covers a ninth of the steps so far at most, and forgets what it began with, as tf.train.ExponentialMovingAverage does.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(decay, (1.0 + done) / (10.0 + done))


def norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """All layers with moving batch statistics, of nested models too."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]


@contextmanager
def of_this_batch_alone(layers: list[keras.layers.BatchNormalization]) -> Iterator[None]:
    """While a model is called within (or traced), its moving statistics become those of the batch."""
    own = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, own):
            layer.momentum = momentum


@keras.saving.register_keras_serializable(package="pipelines")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization over the last axis of [batch, height, width, channels]; same weights and arguments.

    Statistics are those of the call's own batch (the micro-batch); masks, renorm and synchronisation are not supported.
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: None = None) -> tf.Tensor:
        inputs = tf.cast(inputs, self.compute_dtype)
        channels = inputs.shape[-1]
        ones, zeros = tf.ones([channels]), tf.zeros([channels])
        scale = tf.convert_to_tensor(self.gamma) if self.scale else ones
        offset = tf.convert_to_tensor(self.beta) if self.center else zeros
        learning = bool(training) and self.trainable
        mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        none = tf.zeros([0])
        outputs, batch_mean, batch_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs, scale=scale, offset=offset, mean=none if learning else mean, variance=none if learning else variance,
            epsilon=self.epsilon, is_training=learning)
        if learning:
            # the kernel gives the unbiased variance; Keras' layer keeps the biased one
            count = tf.cast(tf.size(inputs) // channels, tf.float32)
            batch_variance = batch_variance * ((count - 1.0) / count)
            self.moving_mean.assign(mean * self.momentum + batch_mean * (1.0 - self.momentum))
            self.moving_variance.assign(variance * self.momentum + batch_variance * (1.0 - self.momentum))
        return outputs
