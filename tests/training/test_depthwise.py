"""The depthwise convolution is Keras' own layer, with a gradient that is computed faster."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.training.depthwise import DepthwiseConvolution

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("kernel", "stride", "size"), [(5, 1, (9, 8)), (5, 2, (9, 8)), (5, 3, (10, 7)), (7, 2, (3, 6)), (3, 2, (8, 8))])
def test_convolution_and_gradients_are_keras_own(kernel, stride, size):
    images = tf.random.stateless_normal([2, *size, 6], [1, 2])
    results = []
    for kind in (DepthwiseConvolution, keras.layers.DepthwiseConv2D):
        layer = kind(kernel, strides=stride, padding="same", use_bias=False, depth_multiplier=2)
        layer.build(images.shape)
        layer.set_weights([np.random.default_rng(0).normal(size=layer.kernel.shape)])

        @tf.function
        def step(images, layer=layer):
            with tf.GradientTape() as tape:
                tape.watch(images)
                outputs = layer(images, training=True)
                total = tf.reduce_sum(outputs**3)
            return outputs, *tape.gradient(total, [images, layer.kernel.value])

        results.append(step(images))
    for ours, own in zip(*results):
        np.testing.assert_allclose(ours, own, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("options", [{"padding": "valid"}, {"use_bias": True}, {"activation": "relu"}, {"dilation_rate": 2},
                                     {"dtype": "mixed_bfloat16"}])
def test_what_it_does_not_know_is_left_to_keras(options):
    images = tf.random.stateless_normal([2, 12, 12, 4], [1, 2])
    options = {"padding": "same", "use_bias": False, **options}
    layer, own = (kind(5, **options) for kind in (DepthwiseConvolution, keras.layers.DepthwiseConv2D))
    for one in (layer, own):
        one.build(images.shape)
    own.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(images, training=True), own(images))


def operations(layer, images, training: bool) -> set[str]:
    graph = tf.function(lambda images: layer(images, training=training)).get_concrete_function(images).graph
    return {operation.type for operation in graph.get_operations()}


def test_a_layer_that_stands_still_or_answers_is_keras_own():
    images = tf.zeros([2, 12, 12, 4])
    layer = DepthwiseConvolution(5, padding="same", use_bias=False)
    assert "IdentityN" in operations(layer, images, training=True)
    assert "IdentityN" not in operations(layer, images, training=False)
    layer.trainable = False
    assert "IdentityN" not in operations(layer, images, training=True)


def test_a_layer_of_a_network_whose_class_was_changed_knows_that_it_trains():
    network = keras.Sequential([keras.Input((12, 12, 4)), keras.layers.DepthwiseConv2D(5, padding="same", use_bias=False)])
    network.layers[0].__class__ = DepthwiseConvolution
    images = tf.zeros([2, 12, 12, 4])
    assert "IdentityN" in operations(network, images, training=True)
    assert "IdentityN" not in operations(network, images, training=False)
