"""YOLOX-Nano (Ge et al. 2021, arXiv:2107.08430): a depthwise CSP network, a path aggregation pyramid and decoupled heads, without anchors,
with the weights that it learned on COCO.

Takes and gives what every detector does (vision.models.detector). Its batch norms are folded into its convolutions, so that it trains as
convolutions with biases. A preset is a folder with weights.npz, arrays under the names of the original's parts, and classes.txt.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.base import npz
from pipelines.base.errors import ConfigError
from pipelines.encoders import arrays, presets
from vision.models.detector import STRIDES, cells, check_size
from vision.settings import Yolox

SIZE = (416, 416)  # px, of the pictures that it was trained on
HIGHEST = 10.0  # logarithm of a side in strides, so that none overflows
WIDTH = 64  # filters of the heads
DEPTHS = {"dark2": (32, 1), "dark3": (64, 3), "dark4": (128, 3), "dark5": (256, 1)}  # filters and blocks of the stages
_CLASSES = "head.cls_preds"


def found(settings: Yolox) -> presets.Preset:
    """The preset, of whose weights only headers are read. Raises ConfigError where it is none."""
    return presets.find_arrays(settings.preset, arrays.YOLOX)


def class_names(folder: Path) -> list[str]:
    """Of the things that a preset knows, in the order of its outputs. Raises ConfigError where that file is damaged."""
    names = (folder / "classes.txt").read_text("utf-8", "replace").split("\n")
    names = [name.strip() for name in names if name.strip()]
    if not 1 <= len(names) <= 10_000 or len(set(names)) < len(names):
        raise ConfigError(f"model.preset: {folder / 'classes.txt'} does not name each class once; copy the preset again")
    return names


def build(settings: Yolox, *, image_size: tuple[int, int], channels: int, classes: int, facts: Mapping[str, Any]) -> keras.Model:
    """See vision.models.detector. The layer that tells classes apart is new, but for those that have a name of the preset's.

    Raises:
        ConfigError: no such preset, or its weights are of another network.
    """
    check_size(image_size)
    images = keras.Input((*image_size, channels), dtype="float32", name="image")
    outputs = _heads(_neck(*_backbone(_blue_first(images, channels))), classes)
    model = keras.Model(images, outputs, name="yolox")
    if settings.weights == "preset":
        _fill(model, found(settings), list(facts["classes"]), settings.trains == "nothing")
    model.trainable = settings.trains == "whole"
    return model


def _fill(model: keras.Model, preset: presets.Preset, classes: list[str], all_of_them: bool) -> None:
    file, known = preset.files[0], class_names(preset.folder)
    rows = [(own, known.index(name)) for own, name in enumerate(classes) if name in known]
    if all_of_them and len(rows) < len(classes):
        strange = next(name for name in classes if name not in known)
        raise ConfigError(f"model.trains: nothing: {preset.handle} does not know {strange!r}, only {', '.join(known)}; set trains: whole")
    try:
        with npz.opened(file) as stored:
            for layer in model.layers:
                if not layer.weights:
                    continue
                turned = (2, 3, 0, 1) if isinstance(layer, keras.layers.DepthwiseConv2D) else (2, 3, 1, 0)
                values = [stored.read(f"{layer.name}.weight").transpose(turned), stored.read(f"{layer.name}.bias")]
                if layer.name.startswith(_CLASSES):
                    theirs, values = values, layer.get_weights()
                    for own, other in rows:
                        values[0][..., own], values[1][own] = theirs[0][..., other], theirs[1][other]
                layer.set_weights(values)
    except (npz.Damaged, KeyError, ValueError, IndexError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(f"model.preset: {file} holds no weights of YOLOX-Nano ({reason}); copy the preset again") from error


def _blue_first(images: keras.KerasTensor, channels: int) -> keras.KerasTensor:
    """Blue, green, red, and of each 2 x 2 pixels one with their 12 numbers, columns from the left and in each from above."""
    return Folded(dtype="float32", name="focus")(images if channels == 3 else keras.layers.Concatenate(name="colour")([images] * 3))


@keras.saving.register_keras_serializable(package="vision")
class Folded(keras.layers.Layer):
    """[batch, height, width, 3] red, green, blue to [batch, height / 2, width / 2, 12]."""

    def call(self, images: tf.Tensor) -> tf.Tensor:
        images = tf.reverse(images, [-1])
        return tf.concat([images[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (shape[0], (shape[1] or 0) // 2, (shape[2] or 0) // 2, 12)


def _unit(x: keras.KerasTensor, filters: int, name: str, *, size: int = 1, stride: int = 1, depthwise: bool = False) -> keras.KerasTensor:
    name = f"{name}.conv"
    if stride > 1:  # as many pixels on every side, where "same" pads below and on the right alone
        x = keras.layers.ZeroPadding2D(size // 2, name=f"{name}.padding")(x)
    how: dict[str, Any] = {"strides": stride, "padding": "same" if stride == 1 else "valid", "name": name}
    convolution = keras.layers.DepthwiseConv2D(size, **how) if depthwise else keras.layers.Conv2D(filters, size, **how)
    return keras.layers.Activation("silu", name=f"{name}.silu")(convolution(x))


def _separable(x: keras.KerasTensor, filters: int, name: str, *, stride: int = 1) -> keras.KerasTensor:
    x = _unit(x, filters, f"{name}.dconv", size=3, stride=stride, depthwise=True)
    return _unit(x, filters, f"{name}.pconv")


def _partial(x: keras.KerasTensor, filters: int, name: str, *, blocks: int = 1, add: bool = False) -> keras.KerasTensor:
    """Cross-stage partial blocks (Wang et al. 2020, arXiv:1911.11929): half of the filters pass them, half go by."""
    own = _unit(x, filters // 2, f"{name}.conv1")
    for number in range(blocks):
        block = f"{name}.m.{number}"
        inner = _separable(_unit(own, filters // 2, f"{block}.conv1"), filters // 2, f"{block}.conv2")
        own = keras.layers.Add(name=f"{block}.add")([own, inner]) if add else inner
    return _unit(_joined([own, _unit(x, filters // 2, f"{name}.conv2")], name), filters, f"{name}.conv3")


def _joined(parts: list[keras.KerasTensor], name: str) -> keras.KerasTensor:
    return keras.layers.Concatenate(name=f"{name}.joined")(parts)


def _backbone(x: keras.KerasTensor) -> list[keras.KerasTensor]:
    """The features of an eighth, a sixteenth and a thirty-second of the picture's sides."""
    levels, x = [], _unit(x, 16, "backbone.backbone.stem.conv", size=3)
    for stage, (filters, blocks) in DEPTHS.items():
        name = f"backbone.backbone.{stage}"
        x, last = _separable(x, filters, f"{name}.0", stride=2), stage == "dark5"
        if last:
            x = _unit(x, filters // 2, f"{name}.1.conv1")
            pooled = [keras.layers.MaxPooling2D(size, 1, "same", name=f"{name}.1.pool{size}")(x) for size in (5, 9, 13)]
            x = _unit(_joined([x, *pooled], f"{name}.1"), filters, f"{name}.1.conv2")
        x = _partial(x, filters, f"{name}.{2 if last else 1}", blocks=blocks, add=not last)
        levels.append(x)
    return levels[1:]


def _neck(fine: keras.KerasTensor, middle: keras.KerasTensor, coarse: keras.KerasTensor) -> list[keras.KerasTensor]:
    def twice(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        return keras.layers.UpSampling2D(2, interpolation="nearest", name=name)(x)

    down = _unit(coarse, 128, "backbone.lateral_conv0")
    x = _partial(_joined([twice(down, "up0"), middle], "up0"), 128, "backbone.C3_p4")
    half = _unit(x, 64, "backbone.reduce_conv1")
    first = _partial(_joined([twice(half, "up1"), fine], "up1"), 64, "backbone.C3_p3")
    second = _partial(_joined([_separable(first, 64, "backbone.bu_conv2", stride=2), half], "down0"), 128, "backbone.C3_n3")
    third = _partial(_joined([_separable(second, 128, "backbone.bu_conv1", stride=2), down], "down1"), 256, "backbone.C3_n4")
    return [first, second, third]


def _heads(levels: list[keras.KerasTensor], classes: int) -> keras.KerasTensor:
    def predicted(x: keras.KerasTensor, filters: int, name: str) -> keras.KerasTensor:
        return keras.layers.Conv2D(filters, 1, dtype="float32", name=name)(x)

    outputs = []
    for level, features in enumerate(levels):
        x, towers = _unit(features, WIDTH, f"head.stems.{level}"), []
        for tower in ("reg_convs", "cls_convs"):
            inner = x
            for number in (0, 1):
                inner = _separable(inner, WIDTH, f"head.{tower}.{level}.{number}")
            towers.append(inner)
        boxes, things = (predicted(towers[0], width, f"head.{name}.{level}") for name, width in (("reg_preds", 4), ("obj_preds", 1)))
        both = keras.layers.Concatenate(dtype="float32", name=f"both{level}")(
            [boxes, things, predicted(towers[1], classes, f"{_CLASSES}.{level}")])
        outputs.append(keras.layers.Reshape((-1, 5 + classes), dtype="float32", name=f"places{level}")(both))
    sizes = [(int(level.shape[1]), int(level.shape[2])) for level in levels]
    return MiddlesAndSides(sizes, dtype="float32", name="boxes")(keras.layers.Concatenate(axis=1, dtype="float32", name="places")(outputs))


@keras.saving.register_keras_serializable(package="vision")
class MiddlesAndSides(keras.layers.Layer):
    """[batch, places, 5 + classes] to the form of every detector, [batch, places, 4 + classes] float32.

    Of a place come in: x and y of the box's middle from the cell's upper left corner, in strides; the logarithms of its width and height in
    strides; the logit of something being there; those of the classes of what is there. The logit of the product of both probabilities
    goes out.

    Args:
        sizes: rows and columns of the cells of each level, finest first.
    """

    def __init__(self, sizes: list[tuple[int, int]], **options: Any):
        super().__init__(**options)
        self.sizes = [(int(rows), int(columns)) for rows, columns in sizes]

    def call(self, raw: tf.Tensor) -> tf.Tensor:
        middles, strides = cells((self.sizes[0][0] * STRIDES[0], self.sizes[0][1] * STRIDES[0]))
        middle = raw[..., :2] * strides + (middles - strides / 2.0)
        half = tf.exp(tf.minimum(raw[..., 2:4], HIGHEST)) * (strides / 2.0)
        there, which = -raw[..., 4:5], -raw[..., 5:]
        against = tf.reduce_logsumexp(tf.stack([there + tf.zeros_like(which), which, there + which], -1), -1)  # log(1 / p - 1)
        return tf.concat([middle - half, middle + half, -against], -1)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*shape[:2], (shape[2] or 0) - 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sizes": self.sizes}
