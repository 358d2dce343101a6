"""A pointwise convolution with its norm and ReLU6 is Keras' own layers, computed in another way while CPUs train."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.machine import compiling
from pipelines.training.batch_norm import FusedBatchNormalization
from pipelines.training.expansion import expanded

pytestmark = pytest.mark.slow

IMAGES = (4, 9, 8, 6)


def made(*, activation="relu6", norm=FusedBatchNormalization, images=IMAGES, **options) -> tuple:
    """Convolution, norm and activation, with weights."""
    numbers = np.random.default_rng(0)
    dtype = options.get("dtype")
    layers = (keras.layers.Conv2D(24, options.pop("kernel_size", 1), padding="same", use_bias=False, **options),
              norm(momentum=0.8, dtype=dtype), keras.layers.Activation(activation, dtype=dtype))
    layers[0].build(images)
    layers[1].build((*images[:3], 24))
    for layer in layers[:2]:
        layer.set_weights([numbers.uniform(-1, 2, weight.shape) if weight.ndim > 1 else numbers.uniform(0.5, 4, weight.shape)
                           for weight in layer.get_weights()])
    return layers


def step(layers: tuple, images: tf.Tensor, *, parts: bool, training: bool = True):
    """A compiled function: outputs, gradients of images, weights, scale and offset; and its operations."""
    convolution, norm, _ = layers

    def pure(images):
        weights = [convolution.kernel.value, norm.gamma.value, norm.beta.value]
        with tf.GradientTape() as tape:
            tape.watch([images, *weights])
            outputs = expanded(*layers, images, training)
            total = tf.reduce_sum(outputs**2 * tf.cast(tf.range(24), outputs.dtype))
        return outputs, *tape.gradient(total, [images, *weights])

    function = compiling.function(pure, xla=False, parts=parts)
    return function, {operation.type for operation in function.get_concrete_function(images).graph.get_operations()}


def test_outputs_gradients_and_statistics_are_keras_own_in_double_precision():
    images = tf.random.stateless_normal(IMAGES, [1, 2]) * [0.5, 0.5, 1.0, 2.0, 3.0, 0.0] + [2.0, -1.0, 0.0, 2.0, 5.0, 1.0]
    results = []
    for norm, dtype in ((FusedBatchNormalization, "float32"), (keras.layers.BatchNormalization, "float64")):
        layers, given = made(norm=norm, dtype=dtype), tf.cast(images, dtype)
        function, operations = step(layers, given, parts=True)
        assert ("BiasAdd" in operations) == (dtype == "float32")
        results.append([*function(given), *layers[1].get_weights()[2:]])
    for ours, own in zip(*results):
        np.testing.assert_allclose(ours, own, rtol=1e-4, atol=1e-4 * np.abs(own).max())
    assert {0.0, 6.0} < set(np.unique(results[0][0]))


def test_elsewhere_than_in_parts_and_outside_of_training_the_layers_are_called():
    images = tf.random.stateless_normal(IMAGES, [1, 2])
    assert "FusedBatchNormV3" not in step(made(), images, parts=True)[1]
    assert "FusedBatchNormV3" in step(made(), images, parts=False)[1]
    assert "FusedBatchNormV3" in step(made(), images, parts=True, training=False)[1]
    layers = made()
    layers[1].trainable = False
    assert "FusedBatchNormV3" in step(layers, images, parts=True)[1]


@pytest.mark.parametrize("options", [{"activation": "silu"}, {"kernel_size": 3}, {"groups": 2}, {"strides": 2}, {"activation": "relu"},
                                     {"dtype": "mixed_bfloat16"}, {"images": (4, 2, 2, 6)}, {"images": (4, 9, 8, 16)}])
def test_what_it_does_not_know_or_would_not_gain_from_is_left_to_the_layers(options):
    shape = options.get("images", IMAGES)
    images = tf.random.stateless_normal(shape, [1, 2])
    assert "FusedBatchNormV3" in step(made(**options), images, parts=True)[1]
