"""Any network of keras.applications, with the preprocessing its family was trained with inside the model."""

import difflib
import os
from collections.abc import Sequence

import keras
import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.stores.remote import local
from vision.models.layers import logits
from vision.settings import Application

# The kinds of preprocess_input; families not named here (EfficientNet, EfficientNetV2, MobileNetV3,
# ConvNeXt) preprocess inside the network.
_BLUE_FIRST = ("ResNet50", "ResNet101", "ResNet152", "VGG16", "VGG19")  # BGR minus the ImageNet mean, as in Caffe
_UNIT = ("InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "NASNetLarge", "NASNetMobile", "Xception",
         "ResNet50V2", "ResNet101V2", "ResNet152V2")  # -1..1
_STANDARD = ("DenseNet121", "DenseNet169", "DenseNet201")  # minus the ImageNet mean, over its deviation, as in Torch
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # red, green, blue, of 0..1
_CAFFE_MEAN = (103.939, 116.779, 123.68)  # blue, green, red, of 0..255


def architectures() -> list[str]:
    """Names of all networks in keras.applications."""
    return [name for name, value in vars(keras.applications).items() if name[:1].isupper() and callable(value)]


def build(
    settings: Application, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`. Grey images are given as three equal channels; `mean` and `std` have no effect here.

    The network's layers are layers of the model, so `train.freeze` finds them by their Keras names.

    Raises:
        ConfigError: no such network, images too small for it, or weights that cannot be read or downloaded.
    """
    name, known = settings.architecture, architectures()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ConfigError(f"model.architecture: {name} is not in keras.applications; nearest: {near}. All: {', '.join(known)}")
    weights = settings.weights if settings.weights in (None, "imagenet") else str(local(settings.weights))
    if weights not in (None, "imagenet") and not os.path.isfile(weights):
        raise ConfigError(f"model.weights: there is no file {weights}; give a weights file, imagenet, or null for a fresh start")
    images = keras.Input((*image_size, channels), dtype="float32", name="image")
    x = _preprocess(name, images if channels == 3 else keras.layers.Concatenate(name="colour", dtype="float32")([images] * 3))
    try:
        network = getattr(keras.applications, name)(
            include_top=False, weights=None, input_tensor=x, input_shape=(*image_size, 3), pooling="avg")
    except ValueError as error:
        raise ConfigError(f"model.architecture: {name} cannot take images of {image_size[0]} x {image_size[1]} px: {error}") from error
    if weights:
        _load(network, name, weights, image_size)
    features = network.output
    if settings.dropout:
        features = keras.layers.Dropout(settings.dropout, name="dropout")(features)
    return keras.Model(images, logits(features, classes), name=name.lower())


def _preprocess(name: str, images: keras.KerasTensor) -> keras.KerasTensor:
    """What `preprocess_input` of the family does to [batch, height, width, 3] in 0..255."""
    rescaling = keras.layers.Rescaling
    if name in _BLUE_FIRST:
        return rescaling(1.0, [-value for value in _CAFFE_MEAN], dtype="float32", name="normalise")(keras.ops.flip(images, axis=-1))
    if name in _UNIT:
        return rescaling(1.0 / 127.5, -1.0, dtype="float32", name="normalise")(images)
    if name in _STANDARD:
        scale = [1.0 / (255.0 * value) for value in _IMAGENET_STD]
        offset = [-mean / std for mean, std in zip(_IMAGENET_MEAN, _IMAGENET_STD)]
        return rescaling(scale, offset, dtype="float32", name="normalise")(images)
    return images


def _load(network: keras.Model, name: str, weights: str, image_size: tuple[int, int]) -> None:
    """Fills the network from a file, or from the ImageNet weights that Keras downloads (and keeps in ~/.keras)."""
    if weights == "imagenet":
        try:
            donor = getattr(keras.applications, name)(include_top=False, weights="imagenet", input_shape=(*image_size, 3), pooling="avg")
        except Exception as error:  # the download fails in many ways: URLError, Exception("URL fetch failure"), a bad hash
            raise ConfigError(
                f"model.weights: imagenet: the weights of {name} could not be downloaded ({error}). Without a network, set model.weights "
                f"to a file of {name} weights without top, or to null to train from scratch") from error
        network.set_weights(donor.get_weights())
    else:
        try:
            network.load_weights(weights)
        except (ValueError, OSError, KeyError) as error:
            raise ConfigError(f"model.weights: {weights} does not hold weights of {name} without top: {error}") from error
    _normalise_as_published(network, name, from_keras=weights == "imagenet")


def _normalise_as_published(network: keras.Model, name: str, *, from_keras: bool) -> None:
    """Makes the Normalization layers use the weights just loaded, as the network they come from does.

    They compute with constants that set_weights does not update. And Keras builds EfficientNetB0 to B7 with one layer more where
    weights are "imagenet", dividing by the root of each deviation, because the variance stored there is the deviation. Here the variance
    is corrected instead, so that the model is the same built, saved and loaded.

    Args:
        from_keras: Keras' own download; a file is known to be that by the deviations in it.
    """
    deviation = np.array(_IMAGENET_STD, np.float32)
    for layer in network.layers:
        if not isinstance(layer, keras.layers.Normalization):
            continue
        if name.startswith("EfficientNetB") and (from_keras or np.allclose(layer.adapt_variance.numpy(), deviation, rtol=1e-4)):
            layer.adapt_variance.assign(layer.adapt_variance.numpy() * deviation)
        layer.finalize_state()
