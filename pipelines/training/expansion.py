"""Pointwise convolution, batch norm and ReLU6 as one operation while CPUs train: the same numbers but for rounding, in less time.

Where a convolution of one pixel widens images, mean and variance of what it would give follow from those of its few input channels: with
weights W they are W'm and the diagonal of W'SW, S being the inputs' covariance. So the norm is known before the convolution and goes into
its weights, and the wide images are written once and read once by each product of the gradient, in place of some seven times more.
"""

from typing import Any

import keras
import tensorflow as tf

from pipelines.machine import compiling
from pipelines.training.batch_norm import FusedBatchNormalization

_ONE = [1, 1, 1, 1]


def expanded(convolution: keras.layers.Conv2D, norm: keras.layers.BatchNormalization, activation: keras.layers.Activation,
             inputs: tf.Tensor, training: bool | None) -> tf.Tensor:
    """activation(norm(convolution(inputs))), inputs [batch, height, width, channels]; moving statistics are kept as the norm keeps them."""
    if not (training and compiling.in_parts() and _suits(convolution, norm, activation, inputs)):
        return activation(norm(convolution(inputs), training=training))
    outputs, mean, variance = _normed(inputs, tf.convert_to_tensor(convolution.kernel), tf.convert_to_tensor(norm.gamma),
                                      tf.convert_to_tensor(norm.beta), norm.epsilon)
    norm.keep(mean, variance)
    return outputs


def _suits(convolution: Any, norm: Any, activation: Any, inputs: tf.Tensor) -> bool:
    """Whether the layers are of this kind, and images have so many pixels that statistics of inputs are had for little."""
    pointwise = (convolution.kernel_size == convolution.strides == (1, 1) and convolution.groups == 1 and not convolution.use_bias
                 and convolution.activation is keras.activations.linear and convolution.data_format == "channels_last")
    learns = isinstance(norm, FusedBatchNormalization) and norm.trainable and norm.scale and norm.center
    height, width, channels = inputs.shape[1:]
    return (pointwise and learns and activation.activation is keras.activations.relu6 and inputs.dtype == tf.float32
            and norm.compute_dtype == convolution.compute_dtype == "float32" and None not in (height, width)
            and height * width >= channels and convolution.filters >= 2 * channels)


def _normed(images: tf.Tensor, kernel: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, ...]:
    """The images after it, and mean and (biased) variance of each channel before the norm, which have no gradient."""
    narrow, wide = kernel.shape[2:]

    @tf.custom_gradient
    def apply(images: tf.Tensor, kernel: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tuple:
        weights = tf.reshape(kernel, [narrow, wide])
        pixels = tf.cast(tf.size(images) // narrow, tf.float32)
        mean = _sums(images) / pixels
        centred = images - mean
        seen = _products(centred, centred) / pixels @ weights  # covariance of inputs and outputs
        variance = tf.nn.relu(tf.reduce_sum(weights * seen, 0))
        factor = tf.math.rsqrt(variance + epsilon)
        scaled = weights * (scale * factor)
        outputs = tf.nn.relu6(tf.nn.bias_add(_convolved(centred, scaled), offset))

        def gradient(upstream: tf.Tensor, *_: Any) -> tuple[tf.Tensor, ...]:
            upstream = tf.raw_ops.Relu6Grad(gradients=upstream, features=outputs)
            products, total = _products(centred, upstream), _sums(upstream)
            slope = factor * tf.reduce_sum(weights * products, 0)  # of the scale
            own = tf.matmul(scaled * (factor * slope / pixels), weights, transpose_b=True)  # what goes through the variance,
            shift = tf.linalg.matvec(scaled, total / pixels)  # and through the mean
            back = tf.raw_ops.Conv2DBackpropInput(input_sizes=tf.shape(images), filter=scaled[None, None], out_backprop=upstream,
                                                  strides=_ONE, padding="VALID")
            return (back - tf.nn.bias_add(_convolved(centred, own), shift),
                    tf.reshape(scale * factor * (products - seen * (factor * slope)), kernel.shape), slope, total)

        return (outputs, tf.linalg.matvec(weights, mean, transpose_a=True), variance), gradient

    return apply(images, kernel, scale, offset)


def _convolved(images: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(images, weights[None, None], 1, "VALID")


def _sums(images: tf.Tensor) -> tf.Tensor:
    """[channels]: by the kernel for biases' gradients, which is three times as fast as a plain sum. Of rows, since TensorFlow would
    make one operation of it and of the gradient of weights, which takes twice the time of both."""
    return tf.raw_ops.BiasAddGrad(out_backprop=tf.reshape(images, [-1, images.shape[3]]))


def _products(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """[channels of first, channels of second]: products summed over pixels."""
    shape = [1, 1, first.shape[3], second.shape[3]]
    return tf.raw_ops.Conv2DBackpropFilter(input=first, filter_sizes=shape, out_backprop=second, strides=_ONE, padding="VALID")[0, 0]
