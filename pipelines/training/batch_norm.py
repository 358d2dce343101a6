"""Batch normalisation: one fused operation with the numbers of Keras' own layer, several times as fast.

Keras 3 computes it from a dozen elementwise operations in float32, which costs more than a 3 x 3 convolution on a CPU.
TensorFlow's fused kernel (oneDNN, cuDNN, XLA) takes half-precision images with float32 statistics.
"""

import keras
import tensorflow as tf

from pipelines.machine.mesh import on_mesh


@keras.saving.register_keras_serializable(package="pipelines")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization over the last axis of [batch, height, width, channels]; same weights and arguments.

    Statistics are those of the call's own batch (the micro-batch); masks, renorm and synchronisation are not supported.
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: None = None) -> tf.Tensor:
        if on_mesh():  # it divides no fused kernel
            return super().call(inputs, training=training)
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
            self.keep(batch_mean, batch_variance * ((count - 1.0) / count))
        return outputs

    def keep(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        """Moves the moving statistics towards a batch's, float32 [channels]."""
        for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(tf.convert_to_tensor(moving) * self.momentum + batch * (1.0 - self.momentum))
