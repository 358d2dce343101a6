"""An image encoder of keras-hub with the preprocessing of its preset inside the model, and a linear layer on its pooled features.

The facts hold the encoder's settings and its image converter's, so that a finished run is rebuilt without the preset. Two parts, each a
layer of the model: `features`, which holds the encoder as `backbone`, and `head`. Needs the extra `pretrained`.
"""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.encoders import blend, presets
from pipelines.encoders.settings import PretrainedModel
from pipelines.fitting.kernel import kept_of
from pipelines.training.batch_norm import FusedBatchNormalization
from pipelines.training.depthwise import DepthwiseConvolution
from vision.models.kernel import describe
from vision.models.layers import logits
from vision.settings import Pretrained

_FIRST = ("DeiTBackbone", "DINOV2Backbone", "DINOV3Backbone", "ViTBackbone")  # their first token stands for the whole image
_SMALLER = 0.7  # of the preset's image size: smaller images are enlarged to that: benchmarks/results/images-sizes.csv
_STEP = 32  # px; encoders reduce images by this factor
_KEPT = ("image_size", "scale", "offset", "interpolation", "antialias")  # of a converter's settings; what it crops is data.resize here


def learn(settings: PretrainedModel) -> dict[str, Any]:
    """What the facts keep of the preset: `backbone`, `image_converter` and `encoder`. Reads its headers, no weights.

    Raises:
        ConfigError: the preset cannot be had or read, is of another domain, or does not say how pixels are scaled.
    """
    preset = presets.find(settings.preset, domain="vision")
    backbone = presets.description(presets.load(preset, weights=False))
    backbone["config"]["name"] = "backbone"
    try:
        converter = presets.hub().layers.ImageConverter.from_preset(str(preset.folder))
    except Exception as error:  # keras-hub raises many kinds: no such file, or settings that it does not know
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{preset.key}: {preset.handle} does not say how pixels are scaled for it ({reason}); image_converter.json is "
                          "missing or damaged: copy the preset again, whole") from error
    config = presets.description(converter)["config"]
    return {"backbone": backbone, "image_converter": {name: config[name] for name in _KEPT}, "encoder": presets.record(preset)}


def preset_size(facts: dict[str, Any]) -> tuple[int, int] | None:
    """Height and width of the images that the encoder was trained on, where its preset says so."""
    size = facts["image_converter"]["image_size"]
    return (size[0], size[1]) if size else None


def encoder_size(settings: Pretrained, facts: dict[str, Any], image_size: tuple[int, int], fixed: tuple[int | None, ...],
                 ) -> tuple[int, int]:
    """Height and width that the encoder gets: as set, else its only size, else the images' own; small ones are enlarged.

    Args:
        image_size: of the images that the model takes.
        fixed: height and width of the backbone's input; None where it takes any.

    Raises:
        ConfigError: model.image_size is set, and the encoder takes another size alone.
    """
    wanted = settings.image_size
    size = None if wanted is None else (wanted, wanted) if isinstance(wanted, int) else (wanted[0], wanted[1])
    if fixed[0] and fixed[1]:
        only = (int(fixed[0]), int(fixed[1]))
        if size not in (None, only):
            raise ConfigError(f"model.image_size: {settings.preset} takes images of {only[0]} x {only[1]} px alone; leave the setting out")
        return only
    if size:
        return size
    least = _STEP * max(1, round(_SMALLER * min(preset_size(facts) or image_size) / _STEP))
    short = min(image_size)
    if short >= least:
        return image_size
    height, width = (_STEP * math.ceil(least * edge / short / _STEP) for edge in image_size)
    return height, width


def build(settings: Pretrained, *, image_size: tuple[int, int], channels: int, classes: int, facts: dict[str, Any]) -> keras.Model:
    """See `vision.models.build`. Grey images are given as three equal channels."""
    backbone = presets.rebuilt(presets.hub().models, facts["backbone"])
    if settings.weights == "preset":
        backbone.set_weights(presets.load(presets.find(settings.preset, domain="vision")).get_weights())
    _fuse(backbone)
    images = keras.Input((*image_size, channels), dtype="float32", name="image")
    features = _features(backbone, settings, facts, image_size, channels)
    inputs = keras.Input(features.output.shape[1:], dtype="float32", name="features")
    x = keras.layers.Dropout(settings.dropout, name="dropout")(inputs) if settings.dropout else inputs
    head = keras.Model(inputs, logits(x, classes), name="head")
    model = keras.Model(images, head(features(images)), name="pretrained")
    if settings.blend is None:
        return model
    return blend.build(model, images.shape[1:], describe, support=kept_of(facts), classes=classes)


def _features(backbone: Any, settings: Pretrained, facts: dict[str, Any], image_size: tuple[int, int], channels: int) -> keras.Model:
    """[batch, height, width, channels] float32, 0..255 -> [batch, width] float32."""
    one = not any(isinstance(tensors, (dict, list, tuple)) for tensors in (backbone.input, backbone.output))
    if not one or len(backbone.input.shape) != 4:
        raise ConfigError(f"model.preset: {settings.preset} ({facts['backbone']['class']}) does not turn one image into features")
    converter = facts["image_converter"]
    size = encoder_size(settings, facts, image_size, tuple(backbone.input.shape[1:3]))
    images = x = keras.Input((*image_size, channels), dtype="float32", name="image")
    if size != image_size:
        x = Resample(size, converter["interpolation"], converter["antialias"], dtype="float32", name="resample")(x)
    x = _normalised(x, converter, channels)
    try:
        x = backbone(x)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"model.image_size: {settings.preset} cannot take images of {size[0]} x {size[1]} px: {reason}") from error
    x = keras.layers.Activation("linear", dtype="float32", name="float32")(x)
    first = settings.pooling == "first" or (settings.pooling is None and facts["backbone"]["class"] in _FIRST)
    if len(x.shape) == 4:
        x = keras.layers.GlobalAveragePooling2D(dtype="float32", name="mean")(x)
    else:
        x = x[:, 0] if first else keras.layers.GlobalAveragePooling1D(dtype="float32", name="mean")(x)
    return keras.Model(images, x, name="features")


def _normalised(x: keras.KerasTensor, converter: dict[str, Any], channels: int) -> keras.KerasTensor:
    """Pixels 0..255 as the encoder takes them, with three channels."""
    if channels == 1:
        x = keras.layers.Concatenate(dtype="float32", name="colour")([x] * 3)
    scale, offset = converter["scale"], converter["offset"]
    if scale is None and offset is None:
        return x
    return keras.layers.Rescaling(1.0 if scale is None else scale, 0.0 if offset is None else offset, dtype="float32", name="normalise")(x)


def stages(settings: PretrainedModel, *, image_size: tuple[int, int], channels: int, facts: dict[str, Any],
           levels: tuple[str, ...]) -> keras.Model:
    """The features of several stages of an encoder, finest first: [batch, height, width, channels] float32, 0..255 -> a tensor of each.

    Args:
        levels: as KerasHub calls them: P3 has an eighth of the height and width, P4 a sixteenth, ...

    Raises:
        ConfigError: the encoder has no such stages.
    """
    whole = presets.rebuilt(presets.hub().models, facts["backbone"])
    missing = set(levels) - set(getattr(whole, "pyramid_outputs", {}))
    if missing:
        raise ConfigError(f"model.preset: {settings.preset} ({facts['backbone']['class']}) gives no features of several sizes; take a "
                          "convolutional encoder of KerasHub, such as an EfficientNet")
    if settings.weights == "preset":
        whole.set_weights(presets.load(presets.find(settings.preset, domain="vision")).get_weights())
    _fuse(whole)
    backbone = keras.Model(whole.input, [whole.pyramid_outputs[name] for name in levels], name="backbone")
    images = keras.Input((*image_size, channels), dtype="float32", name="image")
    return keras.Model(images, backbone(_normalised(images, facts["image_converter"], channels)), name="features")


def _fuse(backbone: keras.Model) -> None:
    """Lets batch normalisation over images be computed by one fused operation, which takes an EfficientNet two thirds of the time, and
    depthwise convolutions have another kernel for their gradient; same weights."""
    for layer in backbone._flatten_layers():
        # layers inside of a block are attributes of it, which only their class can change
        if type(layer) is keras.layers.BatchNormalization and layer.input_spec.ndim == 4 and layer.axis in (-1, 3):
            layer.__class__ = FusedBatchNormalization
        elif type(layer) is keras.layers.DepthwiseConv2D:
            layer.__class__ = DepthwiseConvolution


FEW = 4  # channels


@keras.saving.register_keras_serializable(package="vision")
class Resample(keras.layers.Layer):
    """Images [batch, height, width, channels] of another size, as `tf.image.resize` has them, by two matrix products.

    These run on every device and compile under XLA; TensorFlow's bicubic kernel is for CPUs alone.

    Args:
        size: new height and width in px.
        interpolation, antialias: as in `tf.image.resize`.
    """

    def __init__(self, size: tuple[int, int], interpolation: str = "bilinear", antialias: bool = False, **options: Any):
        super().__init__(**options)
        self.size, self.interpolation, self.antialias = (int(size[0]), int(size[1])), interpolation, bool(antialias)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.rows, self.columns = (self._matrix(int(old or 0), new) for old, new in zip(input_shape[1:3], self.size))

    def _matrix(self, old: int, new: int) -> np.ndarray:
        """[new, old] float32: a line of pixels resampled, since resampling is linear and separable."""
        with tf.init_scope():
            return tf.image.resize(tf.eye(old)[:, :, None], (new, old), self.interpolation, antialias=self.antialias)[..., 0].numpy()

    def call(self, images: tf.Tensor) -> tf.Tensor:
        height, width, channels = images.shape[1:]  # as products, not as an einsum, whose form in LiteRT cannot be loaded
        down = tf.matmul(tf.cast(self.rows, images.dtype), tf.reshape(images, [-1, height, width * channels]))
        if channels <= FEW:  # one large product is faster than many narrow ones, though most of its factors are 0
            across = np.kron(self.columns, np.eye(channels, dtype=np.float32)).T
            wide = tf.matmul(tf.reshape(down, [-1, width * channels]), tf.cast(across, images.dtype))
            return tf.reshape(wide, [-1, *self.size, channels])
        return tf.matmul(tf.cast(self.columns, images.dtype), tf.reshape(down, [-1, self.size[0], width, channels]))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], *self.size, input_shape[3])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self.size, "interpolation": self.interpolation, "antialias": self.antialias}
