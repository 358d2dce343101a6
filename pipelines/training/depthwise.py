"""Depthwise convolution whose training takes CPUs less time: the same numbers as Keras' own layer.

TensorFlow computes the gradient of a wide kernel (5 x 5) with respect to its weights two to three times as fast where the padding is given
in numbers, since another of its kernels does it then. The other passes are as they were. Without it a whole step of vision/cifar10_lite0
takes 8 % more processor time (median of 15 pairs, quartiles 4 and 14 %; two cores with AVX-512, float32).
"""

import keras
import tensorflow as tf

from pipelines.machine.compiling import for_xla

NARROW = 3  # px; kernels up to it are as fast as they are


@keras.saving.register_keras_serializable(package="pipelines")
class DepthwiseConvolution(keras.layers.DepthwiseConv2D):
    """keras.layers.DepthwiseConv2D over [batch, height, width, channels]; same weights and arguments."""

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        if training is None:  # Keras notes at a layer's construction whether it takes `training`: where its class was changed, not
            training = self._get_call_context().get_value("training")
        known = None not in inputs.shape[1:3] and inputs.dtype == tf.float32 and max(self.kernel_size) > NARROW
        usual = self.data_format == "channels_last" and self.padding == "same" and self.strides[0] == self.strides[1] and (
            max(self.dilation_rate) == 1 and not self.use_bias and self.activation is keras.activations.linear)
        if not (training and self.trainable and known and usual) or for_xla():
            return super().call(inputs)
        return _convolved(inputs, tf.convert_to_tensor(self.kernel), self.strides[0])


def _convolved(images: tf.Tensor, kernel: tf.Tensor, stride: int) -> tf.Tensor:
    strides = [1, stride, stride, 1]
    rows, columns = (_padding(images.shape[axis], kernel.shape[axis - 1], stride) for axis in (1, 2))

    @tf.custom_gradient
    def apply(images: tf.Tensor, kernel: tf.Tensor) -> tuple:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return (tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                        input_sizes=tf.shape(images), filter=kernel, out_backprop=upstream, strides=strides, padding="SAME"),
                    tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
                        input=images, filter_sizes=kernel.shape, out_backprop=upstream, strides=strides, padding="EXPLICIT",
                        explicit_paddings=[0, 0, *rows, *columns, 0, 0]))

        return tf.nn.depthwise_conv2d(images, kernel, strides, "SAME"), gradient

    return apply(images, kernel)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after `size` pixels, as padding "same" has them."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2
