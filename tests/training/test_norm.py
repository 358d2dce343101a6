"""The fused batch normalisation is Keras' own layer, faster."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.training.batch_norm import FusedBatchNormalization

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("training", [True, False])
def test_fused_normalisation_is_keras_own(training):
    fused, own = FusedBatchNormalization(momentum=0.8), keras.layers.BatchNormalization(momentum=0.8)
    images = tf.random.stateless_normal([8, 5, 6, 16], [1, 2]) * 3.0 + 1.0
    results = []
    for layer in (fused, own):
        layer.build(images.shape)
        layer.set_weights([np.linspace(0.5, 1.5, 16), np.linspace(-1, 1, 16), np.linspace(-1, 1, 16), np.linspace(0.5, 2, 16)])
        with tf.GradientTape() as tape:
            tape.watch(images)
            outputs = layer(images, training=training)
            total = tf.reduce_sum(outputs**3)
        results.append([outputs, *tape.gradient(total, [images, layer.gamma.value, layer.beta.value]), *layer.get_weights()])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_frozen_normalisation_keeps_its_statistics():
    layer = FusedBatchNormalization()
    images = tf.random.stateless_normal([8, 4, 4, 3], [1, 2]) + 5.0
    layer.build(images.shape)
    layer.trainable = False
    np.testing.assert_allclose(layer(images, training=True), layer(images, training=False), atol=1e-6)
    assert np.array_equal(layer.get_weights()[2], np.zeros(3))
