"""Anchor-free one-stage detectors: features of an eighth, a sixteenth and a thirty-second of the picture's sides, a pyramid over them (Lin
et al. 2017, arXiv:1612.03144), and two towers, of classes and of boxes, whose convolutions all levels share (Tian et al. 2019,
arXiv:1904.01355); norms and last layers are each level's own (Tan et al. 2020, arXiv:1911.09070).

Every detector takes [batch, height, width, channels] float32 images, 0..255, and gives [batch, places, 4 + classes] float32: of each place,
the middles of the cells of all levels, finest first and row by row, the left, top, right and bottom of a box in pixels of the image, and
the logits of the classes. How a network's own numbers become boxes is its last layer's, and nobody else's.

With a `MaskHead` it gives these as `places`, and of each place `controls` [batch, places, numbers] float32, the weights of the small
network that draws a thing's mask from `features` [batch, rows, columns, mask_width] float32 (vision.outputs.mask_network).
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.training.batch_norm import FusedBatchNormalization
from vision.models.layers import pixels
from vision.models.pretrained import stages
from vision.models.tiles import JoinBoxes, corners, over_tiles
from vision.settings import Detector, MaskHead, PretrainedDetector, SmallDetector, Tiled

STRIDES = (8, 16, 32)  # pixels between neighbouring places of each level
RARE = 0.01  # probability of each class at a place before anything is learned (Lin et al. 2017, arXiv:1708.02002)
FIRST = 2.0  # the distance to each side at first, about, in strides


def small(settings: SmallDetector, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float],
          std: Sequence[float]) -> keras.Model:
    """A network from scratch."""
    seen = check_size(image_size, settings)
    images, x = pixels(seen, channels, mean, std)
    levels = []
    for stage, width in enumerate(settings.widths, 1):
        x = _unit(x, width, stride=2, name=f"stage{stage}_down")
        x = keras.layers.Add(name=f"stage{stage}_add")([x, _unit(x, width, name=f"stage{stage}_conv")]) if stage > 1 else x
        levels.append(x)
    features = keras.Model(images, levels[-len(_levels(settings)):], name="features")
    return _detector(features, settings, classes, image_size, "small")


def pretrained(settings: PretrainedDetector, *, image_size: tuple[int, int], channels: int, classes: int,
               facts: dict[str, Any]) -> keras.Model:
    """An encoder of KerasHub. Raises ConfigError where it has no stages of these sizes."""
    seen = check_size(image_size, settings)
    features = stages(settings, image_size=seen, channels=channels, facts=facts, levels=_levels(settings))
    return _detector(features, settings, classes, image_size, "pretrained")


def _levels(settings: Detector) -> tuple[str, ...]:
    """The stages of an encoder that are seen, as KerasHub calls them: the strides, before them that from which masks are drawn."""
    finest = ("P2",) if isinstance(settings, MaskHead) and settings.mask_stride < STRIDES[0] else ()
    return (*finest, "P3", "P4", "P5")


def check_size(image_size: tuple[int, int], settings: Tiled | None = None) -> tuple[int, int]:
    """What the network sees: the picture or its tiles. Raises ConfigError where the coarsest stride does not divide both sides."""
    tiled = settings is not None and settings.tile is not None
    seen, name = seen_size(image_size, settings), "model.tile" if tiled else "data.image_size"
    if any(edge % STRIDES[-1] for edge in seen):
        height, width = (STRIDES[-1] * max(1, round(edge / STRIDES[-1])) for edge in seen)
        raise ConfigError(f"{name}: a detector needs sides that {STRIDES[-1]} divides, and they are {seen[0]} x {seen[1]} px; set "
                          f"[{height}, {width}]")
    return seen


def seen_size(image_size: tuple[int, int], settings: Tiled | None) -> tuple[int, int]:
    """Height and width of a tile, or of the picture where there are none. Raises ConfigError for a tile that is larger."""
    if settings is None or settings.tile is None:
        return image_size
    if any(part > whole for part, whole in zip(settings.tile, image_size)):
        raise ConfigError(f"model.tile: {settings.tile[0]} x {settings.tile[1]} px are more than pictures have, which are of "
                          f"{image_size[0]} x {image_size[1]} (data.image_size)")
    return settings.tile[0], settings.tile[1]


def places_of(image_size: tuple[int, int], settings: Tiled | None) -> tuple[np.ndarray, np.ndarray]:
    """As `cells`, of all tiles where there are such."""
    if settings is None or settings.tile is None:
        return cells(image_size)
    tile = (settings.tile[0], settings.tile[1])
    (middles, strides), begins = cells(tile), corners(image_size, tile, settings.tile_overlap)
    moved = [middles + np.array([left, top], np.float32) for top, left in begins]
    return np.concatenate(moved), np.tile(strides, (len(begins), 1))


def cells(image_size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the middle of each place, [places, 2] float32, and the stride of its level, [places, 1] float32, in pixels."""
    middles, steps = [], []
    for stride in STRIDES:
        rows, columns = np.mgrid[:image_size[0] // stride, :image_size[1] // stride]
        middles.append((np.stack([columns.ravel(), rows.ravel()], 1) + 0.5) * stride)
        steps.append(np.full((rows.size, 1), stride))
    return np.concatenate(middles).astype(np.float32), np.concatenate(steps).astype(np.float32)


@keras.saving.register_keras_serializable(package="vision")
class DistancesToSides(keras.layers.Layer):
    """[batch, places, 4 + classes], whose first four numbers are, by their softplus, distances in strides from a place to the sides of a
    box, to the same with the box in their stead, float32.

    Args:
        image_size: height and width, px.
    """

    def __init__(self, image_size: tuple[int, int], **options: Any):
        super().__init__(**options)
        self.image_size = (int(image_size[0]), int(image_size[1]))

    def call(self, raw: tf.Tensor) -> tf.Tensor:
        middles, strides = cells(self.image_size)
        distances = tf.nn.softplus(raw[..., :4]) * strides
        return tf.concat([middles - distances[..., :2], middles + distances[..., 2:], raw[..., 4:]], -1)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "image_size": self.image_size}


def _detector(features: keras.Model, settings: Detector, classes: int, image_size: tuple[int, int], name: str) -> keras.Model:
    inputs = [keras.Input(level.shape[1:], dtype=level.dtype, name=f"level{number}") for number, level in enumerate(features.outputs)]
    levels = _pyramid(inputs, settings.width)
    towers = _towers(levels[-len(STRIDES):], settings, classes)
    masks = {"features": _mask_features(levels[0], settings)} if isinstance(settings, MaskHead) else {}
    head = keras.Model(inputs, {**towers, **masks} if masks else towers["places"], name="head")
    images = features.inputs[0]
    seen = (images.shape[1], images.shape[2])
    boxes = DistancesToSides(seen, dtype="float32", name="boxes")
    if settings.tile is not None:
        return keras.Model(*over_tiles(lambda x: boxes(head(features(x))), JoinBoxes, image_size, seen, settings.tile_overlap,
                                       images.shape[-1]), name=name)
    found = head(features(images))
    return keras.Model(images, {**found, "places": boxes(found["places"])} if masks else boxes(found), name=name)


def _pyramid(levels: list[keras.KerasTensor], width: int) -> list[keras.KerasTensor]:
    """Each level with what the coarser ones know."""
    found: list[keras.KerasTensor] = []
    for number in reversed(range(len(levels))):
        x = _unit(levels[number], width, size=1, name=f"lateral{number}")
        if found:
            above = keras.layers.UpSampling2D(2, interpolation="nearest", name=f"above{number}")(found[0])
            x = keras.layers.Add(name=f"pyramid{number}_add")([x, above])
        found.insert(0, _unit(x, width, name=f"pyramid{number}") if number < len(levels) - 1 else x)
    return found


def _mask_features(x: keras.KerasTensor, settings: MaskHead) -> keras.KerasTensor:
    for number in range(2):
        x = _unit(x, settings.width, name=f"masks{number}")
    return keras.layers.Conv2D(settings.mask_width, 1, dtype="float32", name="mask_features")(x)


def _towers(levels: list[keras.KerasTensor], settings: Detector, classes: int) -> dict[str, keras.KerasTensor]:
    layers, outputs, controls = keras.layers, list[keras.KerasTensor](), list[keras.KerasTensor]()
    shared = {tower: [_convolution(settings.width, name=f"{tower}{number}") for number in range(settings.depth)]
              for tower in ("classes", "boxes")}
    for level, features in enumerate(levels):
        seen = {}
        for tower, convolutions in shared.items():
            seen[tower] = features
            for number, convolution in enumerate(convolutions):
                seen[tower] = _active(convolution(seen[tower]), f"{tower}{number}_level{level}")
        boxes = layers.Conv2D(4, 1, bias_initializer=keras.initializers.Constant(FIRST), dtype="float32", name=f"boxes_level{level}")
        logits = layers.Conv2D(classes, 1, bias_initializer=keras.initializers.Constant(-math.log((1 - RARE) / RARE)),
                               kernel_initializer=keras.initializers.RandomNormal(0.0, 0.01), dtype="float32", name=f"logits_level{level}")
        both = layers.Concatenate(dtype="float32", name=f"both_level{level}")([boxes(seen["boxes"]), logits(seen["classes"])])
        outputs.append(layers.Reshape((-1, 4 + classes), dtype="float32", name=f"places_level{level}")(both))
        if isinstance(settings, MaskHead):
            numbers = count_weights(settings.mask_width)
            given = layers.Conv2D(numbers, 1, dtype="float32", kernel_initializer=keras.initializers.RandomNormal(0.0, 0.01),
                                  bias_initializer=keras.initializers.RandomNormal(0.0, 0.3), name=f"controls_level{level}")
            controls.append(layers.Reshape((-1, numbers), dtype="float32", name=f"weights_level{level}")(given(seen["boxes"])))
    joined = {"places": outputs} | ({"controls": controls} if controls else {})
    return {name: layers.Concatenate(axis=1, dtype="float32", name=name)(parts) for name, parts in joined.items()}


def count_weights(width: int) -> int:
    """Numbers that the three 1 x 1 convolutions of a mask's network have, with biases: of its features and the place of each pixel, to
    `width` channels, to as many, and to one."""
    return (width + 2) * width + width + width * width + width + width + 1


def _convolution(width: int, size: int = 3, stride: int = 1, *, name: str) -> keras.layers.Layer:
    return keras.layers.Conv2D(width, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal", name=name)


def _active(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Norm and SiLU: by ReLU all features of a rare class may die while the first steps push every class down, and it is never found."""
    norm = FusedBatchNormalization(momentum=0.97, epsilon=1e-3, name=f"{name}_norm")(x)
    return keras.layers.Activation("silu", name=f"{name}_silu")(norm)


def _unit(x: keras.KerasTensor, width: int, size: int = 3, stride: int = 1, *, name: str) -> keras.KerasTensor:
    return _active(_convolution(width, size, stride, name=name)(x), name)
