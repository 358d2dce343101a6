"""Every image model: builds, trains a step as the harness does, keeps its promises of type and size, saves and reloads."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from vision import models
from vision.models import application
from vision.settings import Application, Cnn, Fast, Gradients, Residual, Vit

pytestmark = pytest.mark.slow(seconds=40)

MEAN, STD = [125.0, 123.0, 114.0], [63.0, 62.0, 67.0]
SMALL = {
    "cnn": Cnn(name="cnn", widths=[8, 16], hidden=16, dropout=0.2),
    "cnn_norm": Cnn(name="cnn", widths=[8, 16], hidden=16, batch_norm=True),
    "residual": Residual(name="residual", depth=1, widths=[8, 16], dropout=0.1),
    "fast": Fast(name="fast", widths=[16, 32]),
    "fast_unwhitened": Fast(name="fast", widths=[16, 32], whiten=False),
    "gradients": Gradients(name="gradients"),
    "vit": Vit(name="vit", depth=1, width=24, heads=3, dropout=0.1),
    "application": Application(name="application", architecture="MobileNetV3Small", dropout=0.1),
}


@pytest.fixture(autouse=True)
def policy():
    before = keras.config.dtype_policy()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy(before)


def build(settings, size=(32, 32), channels=3, classes=7) -> keras.Model:
    return models.build(settings, image_size=size, channels=channels, classes=classes, mean=MEAN[:channels], std=STD[:channels])


def pixels(count=16, size=(32, 32), channels=3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *size, channels)).astype(np.float32)


def gradients_of(model, *, batch, compiled=False):
    """(loss, gradients, state after) of the pure step."""
    @tf.function(input_signature=[tf.TensorSpec([batch, *model.input_shape[1:]]), tf.TensorSpec([batch], tf.int32)], jit_compile=compiled)
    def step(images, labels):
        weights = [tf.convert_to_tensor(v.value) for v in model.trainable_variables]
        state = [tf.convert_to_tensor(v.value) for v in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits, after = model.stateless_call(weights, state, images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, weights), after, logits

    images = pixels(size=model.input_shape[1:3], channels=model.input_shape[3])
    return step(tf.constant(images), tf.range(16) % 7)


@pytest.mark.parametrize("name, precision", [
    *((name, precision) for name in SMALL for precision in ("float32", "mixed_bfloat16") if name != "application"),
    ("fast", "mixed_float16"), ("vit", "mixed_float16"), ("application", "mixed_bfloat16")])  # the last takes seconds to trace
def test_a_model_trains_a_step(name, precision):
    keras.config.set_dtype_policy(precision)
    model = build(SMALL[name])
    models.initialise(model, pixels(64))
    for batch in (16, None) if precision == "float32" else (16,):
        loss, gradients, _, logits = gradients_of(model, batch=batch)
        assert logits.dtype == tf.float32 and logits.shape[-1] == 7
        assert np.isfinite(loss) and all(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)
        assert all(gradient.dtype == tf.float32 for gradient in gradients)
        # the output weights learn from the first step on (a network that passes nothing on would not)
        assert float(tf.reduce_max(tf.abs(gradients[-1]))) > 0.0
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


@pytest.mark.parametrize("name", ["cnn_norm", "residual", "fast", "vit"])
def test_xla_computes_the_same_step(name):
    model = build(SMALL[name].model_copy(update={"dropout": 0.0}) if hasattr(SMALL[name], "dropout") else SMALL[name])
    plain, compiled = gradients_of(model, batch=16), gradients_of(model, batch=16, compiled=True)
    np.testing.assert_allclose(compiled[0], plain[0], rtol=1e-4)
    for a, b in zip(plain[2], compiled[2]):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_saved_and_loaded_in_safe_mode(name, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16" if name == "fast" else "float32")
    model = build(SMALL[name])
    models.initialise(model, pixels(64))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    images = pixels()
    assert np.array_equal(loaded(images), model(images))
    assert np.std(model(images)) > 0.0


def test_classic_parameter_counts():
    classic = build(Cnn(name="cnn"), classes=10)
    assert classic.count_params() == (27 * 64 + 64) + (576 * 128 + 128) + (8 * 8 * 128 * 256 + 256) + (256 * 10 + 10)
    fast = build(Fast(name="fast", widths=[64, 128, 256]), classes=10)
    trained = sum(int(np.prod(v.shape)) for v in fast.trainable_variables)
    assert fast.count_params() - trained > 0  # the whitening and the moving statistics do not train
    assert not any(v.path.startswith("whiten") for v in fast.trainable_variables)
    resnet50 = build(Application(name="application", architecture="ResNet50"), classes=1000)
    assert resnet50.count_params() == 25_636_712  # as Keras documents it


@pytest.mark.parametrize("size, channels", [((28, 28), 1), ((48, 40), 3)])
@pytest.mark.parametrize("name", ["cnn", "residual", "fast", "vit"])
def test_other_sizes_and_grey_images(name, size, channels):
    model = build(SMALL[name], size, channels)
    assert model(pixels(4, size, channels)).shape == (4, 7)


def test_normalisation_stands_inside():
    model = build(SMALL["cnn"])
    images = np.broadcast_to(np.array(MEAN, np.float32), (2, 32, 32, 3))
    assert np.abs(model.get_layer("normalise")(images)).max() < 1e-4
    assert np.abs(model.get_layer("normalise")(images + np.array(STD, np.float32)) - 1.0).max() < 1e-5


def test_images_too_small_are_an_error_with_a_remedy():
    for settings in (Cnn(name="cnn", widths=[8] * 5), Fast(name="fast", widths=[8] * 5), Residual(name="residual", widths=[8] * 6)):
        with pytest.raises(ConfigError, match=r"data\.image_size"):
            build(settings, (8, 8))
    with pytest.raises(ConfigError, match=r"model\.patch: 5 px does not divide"):
        build(Vit(name="vit", patch=5), (32, 32))


# ---- fast

def test_whitening_makes_patches_uncorrelated():
    model = build(SMALL["fast"])
    y, x = np.mgrid[0:32, 0:32]
    rng = np.random.default_rng(0)
    waves = rng.uniform(0.1, 0.6, (200, 2, 3))
    # with noise: the patches of smooth waves alone are near singular, and what rounding leaves then differs between processors
    smooth = 127.0 + 100.0 * np.sin(y[None, :, :, None] * waves[:, None, None, 0] + x[None, :, :, None] * waves[:, None, None, 1])
    images = smooth + rng.normal(0.0, 30.0, smooth.shape)
    models.initialise(model, images)
    inner = keras.Model(model.input, model.get_layer("whiten").output)
    outputs = np.asarray(inner(images.astype(np.float32)), np.float64)
    filters = outputs.shape[-1]
    np.testing.assert_allclose(outputs[..., filters // 2:], -outputs[..., : filters // 2], atol=1e-4)
    flat = outputs[..., : filters // 2].reshape(-1, filters // 2)
    second = flat.T @ flat / len(flat)
    assert np.abs(second - np.diag(np.diag(second))).max() < 1e-2 * np.diag(second).max()
    assert np.diag(second)[0] == pytest.approx(1.0, abs=0.01)


def test_whitening_touches_only_whitened_models():
    for name in ("cnn", "fast_unwhitened"):
        model = build(SMALL[name])
        before = [weight.copy() for weight in model.get_weights()]
        models.initialise(model, pixels())
        assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights()))


# ---- keras.applications

@pytest.mark.parametrize("name, module", [("ResNet50", "resnet"), ("DenseNet121", "densenet"), ("MobileNetV2", "mobilenet_v2"),
                                          ("MobileNetV3Small", "mobilenet_v3"), ("EfficientNetB0", "efficientnet"), ("VGG16", "vgg16")])
def test_preprocessing_is_the_familys_own(name, module):
    images = keras.Input((32, 32, 3))
    inner = keras.Model(images, application._preprocess(name, images))
    sample = pixels(2)
    expected = getattr(keras.applications, module).preprocess_input(sample.copy())
    np.testing.assert_allclose(inner(sample), expected, rtol=1e-4, atol=1e-3)


def test_every_application_has_its_preprocessing():
    inside = {name for name in application.architectures() if name.startswith(("EfficientNet", "MobileNetV3", "ConvNeXt"))}
    named = set(application._BLUE_FIRST) | set(application._UNIT) | set(application._STANDARD)
    assert named | inside == set(application.architectures()) and not named & inside


def test_application_takes_grey_images():
    model = build(SMALL["application"], (32, 32), 1)
    assert model(pixels(2, channels=1)).shape == (2, 7)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """EfficientNetB0's ImageNet weights as Keras gives them, but for the numbers, which are made; and the file that it downloads."""
    from keras.src.applications import efficientnet

    path = tmp_path / "efficientnetb0_notop.weights.h5"
    donor = keras.applications.EfficientNetB0(include_top=False, weights=None, input_shape=(32, 32, 3), pooling="avg")
    normalization = next(layer for layer in donor.layers if isinstance(layer, keras.layers.Normalization))
    # the mean and what is stored as variance: the deviation
    normalization.set_weights([np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]), np.array(0)])
    donor.save_weights(path)
    monkeypatch.setattr(efficientnet.file_utils, "get_file", lambda *_, **__: str(path))
    return path


def test_published_weights_answer_as_in_keras_before_and_after_saving(published, tmp_path):
    images = pixels(2)
    expected = keras.applications.EfficientNetB0(include_top=False, weights="imagenet", input_shape=(32, 32, 3), pooling="avg")(images)
    model = build(Application(name="application", architecture="EfficientNetB0", weights="imagenet"))
    features = keras.Model(model.input, model.get_layer("classes").input)
    np.testing.assert_allclose(features(images), expected, rtol=1e-4, atol=1e-6 + 1e-4 * float(np.abs(expected).max()))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_allclose(loaded(images), model(images), rtol=1e-5, atol=1e-7)


def test_application_weights_from_a_file(tmp_path):
    donor = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(32, 32, 3), pooling="avg")
    path = tmp_path / "donor.weights.h5"
    donor.save_weights(path)
    model = build(Application(name="application", architecture="MobileNetV2", weights=str(path)))
    donated = {tuple(weight.path.split("/")[-2:]): weight for weight in donor.weights}
    shared = [(weight, donated[key]) for weight in model.weights if (key := tuple(weight.path.split("/")[-2:])) in donated]
    assert len(shared) == len(donor.weights)
    assert all(np.array_equal(own, given) for own, given in shared)


@pytest.mark.parametrize("settings, size, message", [
    ({"architecture": "Resnet50"}, 32, "nearest: ResNet50"),
    ({"architecture": "InceptionV3"}, 32, "at least 75"),
    ({"architecture": "ResNet50", "weights": "nowhere.weights.h5"}, 32, "there is no file nowhere.weights.h5"),
])
def test_application_errors_name_the_setting_and_the_remedy(settings, size, message):
    with pytest.raises(ConfigError, match=message):
        build(Application(name="application", **settings), (size, size))


def test_weights_of_another_network_are_an_error(tmp_path):
    path = tmp_path / "other.weights.h5"
    build(SMALL["cnn"]).save_weights(path)
    with pytest.raises(ConfigError, match="does not hold weights of MobileNetV2"):
        build(Application(name="application", architecture="MobileNetV2", weights=str(path)))


def test_imagenet_weights_without_a_network_are_an_error(monkeypatch):
    def fail(*args, **kwargs):
        raise Exception("URL fetch failure")

    monkeypatch.setattr("keras.src.utils.file_utils.get_file", fail)
    monkeypatch.setattr("keras.src.applications.mobilenet_v2.file_utils.get_file", fail)
    with pytest.raises(ConfigError, match=r"Without a network, set model\.weights"):
        build(Application(name="application", architecture="MobileNetV2", weights="imagenet"), (96, 96))
