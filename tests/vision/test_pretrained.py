"""An image encoder of keras-hub: a tiny one with random weights, built here, gives what its own preset's preprocessing and weights give."""

import importlib.util
import os
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.encoders import trainable
from pipelines.encoders.trainable import blocks
from pipelines.machine import compiling
from tests.encoders import tiny
from vision import models
from vision.models import pretrained
from vision.settings import Pretrained
from vision.tasks.classification import Classification

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not importlib.util.find_spec("keras_hub") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub): what it tests is not tested here")]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """The folder of a tiny EfficientNet for 64 px whose normalisation and weights are random."""
    return tiny.efficientnet(tmp_path_factory.mktemp("presets") / "tiny")


def built(preset, size=(32, 40), channels=3, **settings) -> keras.Model:
    chosen = Pretrained(name="pretrained", preset=str(preset), **settings)
    return models.build(chosen, image_size=size, channels=channels, classes=5, mean=[0.0] * channels, std=[1.0] * channels,
                        facts=pretrained.learn(chosen))


def images(size=(32, 40), channels=3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, *size, channels)).astype(np.float32)


def expected(preset, pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Features by keras-hub's own objects."""
    import keras_hub

    backbone = keras_hub.models.Backbone.from_preset(str(preset))
    resized = tf.image.resize(tf.repeat(pixels, 3 // pixels.shape[-1], -1), size, "bicubic")
    return tf.reduce_mean(backbone(resized * tiny.SCALE + tiny.OFFSET, training=False), [1, 2]).numpy()


@pytest.mark.parametrize("channels", [1, 3])
def test_the_features_are_the_presets_own(preset, channels):
    model = built(preset, size=(24, 40), channels=channels)
    pixels = images((24, 40), channels)
    features = model.get_layer("features")
    assert features.get_layer("resample").size == (32, 64), "0.7 of 64 px, in steps of 32"
    np.testing.assert_allclose(features(pixels), expected(preset, pixels, (32, 64)), atol=1e-4)
    assert model(pixels).shape == (3, 5) and model.get_layer("head").output.dtype == "float32"
    random = built(preset, size=(24, 40), channels=channels, weights=None)
    assert not np.allclose(random.get_layer("features")(pixels), features(pixels), atol=1e-2)


def test_a_frozen_encoder_answers_alike_in_training(preset):
    features, pixels = built(preset).get_layer("features"), images()
    assert not [layer.name for layer in features.layers if layer.name == "resample"], "the images are large enough"
    before, backbone = features(pixels).numpy(), features.get_layer("backbone")
    backbone.trainable = False
    for layer in backbone._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    np.testing.assert_allclose(features(pixels, training=True), before, atol=1e-5)
    backbone.trainable = True
    assert not np.allclose(features(pixels, training=True), before, atol=1e-3), "batch statistics"


@pytest.mark.parametrize(("activation", "first"), [("relu6", "unfused"), ("relu6", "v1")])
def test_it_trains_as_keras_hubs_own_blocks_do(preset, monkeypatch, activation, first):
    pixels, results, facts = tf.constant(images()), [], pretrained.learn(Pretrained(name="pretrained", preset=str(preset)))
    facts["backbone"]["config"] |= {"activation": activation, "stackwise_block_types": [first, "unfused"], "stackwise_strides": [1, 2]}
    monkeypatch.setattr(pretrained, "learn", lambda settings: facts)
    for ours in (True, False):
        if not ours:
            monkeypatch.setattr(pretrained, "_fuse", lambda backbone: None)
        keras.utils.set_random_seed(0)  # the head's weights, and what dropout draws
        model = built(preset)

        def pure(weights, state, model=model):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                answers, after = model.stateless_call(weights, state, pixels, training=True)
                total = tf.reduce_sum(answers**2)
            return answers, tape.gradient(total, weights), after

        values = [[tf.convert_to_tensor(variable) for variable in several] for several in (model.trainable_variables,
                                                                                           model.non_trainable_variables)]
        function = compiling.function(pure, xla=False, parts=True)
        types = [operation.type for operation in function.get_concrete_function(*values).graph.get_operations()]
        assert types.count("FusedBatchNormV3") == (8 if ours else 0)
        results.append(tf.nest.flatten(function(*values)))
    for first, second in zip(*results):
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(second).max()))


def test_half_precision_follows_the_policy(preset):
    before = keras.config.dtype_policy()
    try:
        exact = built(preset).get_layer("features")(images()).numpy()
        keras.config.set_dtype_policy("mixed_bfloat16")
        features = built(preset).get_layer("features")
        assert {layer.compute_dtype for layer in features.get_layer("backbone").layers[1:]} == {"bfloat16"}
        halves = features(images())
        assert halves.dtype == tf.float32
        np.testing.assert_allclose(halves, exact, rtol=0.2, atol=0.05 * np.abs(exact).max())
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("interpolation, size", [("bicubic", (30, 9)), ("bilinear", (7, 33)), ("nearest", (40, 40))])
def test_resampling_is_tensorflows(interpolation, size):
    pixels = images((16, 20))
    layer = pretrained.Resample(size, interpolation)
    np.testing.assert_allclose(layer(pixels), tf.image.resize(pixels, size, interpolation), atol=1e-3)
    assert layer.compute_output_shape((None, 16, 20, 3)) == (None, *size, 3)
    compiled = tf.function(layer, jit_compile=True)(tf.constant(pixels))
    np.testing.assert_allclose(compiled, layer(pixels), atol=1e-3)


@pytest.mark.parametrize("images_are, settings, fixed, sees", [
    ((32, 32), {}, (None, None), (160, 160)),
    ((28, 56), {}, (None, None), (160, 320)),
    ((100, 150), {}, (None, None), (160, 256)),
    ((160, 200), {}, (None, None), (160, 200)),
    ((300, 300), {}, (None, None), (300, 300)),
    ((300, 300), {"image_size": 96}, (None, None), (96, 96)),
    ((32, 32), {}, (224, 224), (224, 224)),
])
def test_the_size_that_the_encoder_sees(images_are, settings, fixed, sees):
    chosen = Pretrained(name="pretrained", preset="x", **settings)
    assert pretrained.encoder_size(chosen, {"image_converter": {"image_size": [224, 224]}}, images_are, fixed) == sees


def test_an_encoder_for_one_size_refuses_another():
    chosen = Pretrained(name="pretrained", preset="x", image_size=96)
    with pytest.raises(ConfigError, match=r"model.image_size: x takes images of 224 x 224 px alone"):
        pretrained.encoder_size(chosen, {"image_converter": {"image_size": [224, 224]}}, (32, 32), (224, 224))


def test_a_preset_that_does_not_say_how_pixels_are_scaled(preset, tmp_path):
    lacking = shutil.copytree(preset, tmp_path / "lacking")
    (lacking / "image_converter.json").unlink()
    with pytest.raises(ConfigError, match=r"does not say how pixels are scaled .*image_converter.json is missing"):
        pretrained.learn(Pretrained(name="pretrained", preset=str(lacking)))


def test_facts_without_the_encoder_are_named(preset):
    from vision.settings import ImageClassification

    experiment = ImageClassification.model_validate({
        "task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "pretrained", "preset": str(preset)}})
    task = Classification(experiment, {"classes": []})
    assert task.facts_error() == "backbone: field required"


@pytest.mark.parametrize(("examples", "name"), [(299, "frozen"), (300, "last")])
def test_where_nothing_is_said_the_later_blocks_train_on_enough_images(preset, examples, name):
    model = built(preset)
    said = SimpleNamespace(model=Pretrained(name="pretrained", preset=str(preset)), train=SimpleNamespace(freeze=None))
    way = trainable.way_of(said, model, examples)
    assert way.name == name
    trainable.settle(way, model)
    training = [any(layer.trainable_weights for layer in block) for block in blocks(model)]
    assert training == ([False, False, True] if name == "last" else [False] * 3)  # stem, two blocks of which 0.7 is one
    assert set(trainable.shares(way, model, peak=0.01).values()) == ({0.1} if name == "last" else set())  # 0.001 of a peak of 0.01
