"""Segmenters: an encoder's features of a half to a thirty-second of the picture's sides, and a decoder that joins them from the coarsest
to the finest, in the manner of U-Net (Ronneberger et al. 2015, arXiv:1505.04597).

A segmenter takes [batch, height, width, channels] float32 images, 0..255, and gives [batch, height, width, classes] float32 logits.
"""

from collections.abc import Sequence
from typing import Any

import keras

from pipelines.training.batch_norm import FusedBatchNormalization
from vision.models.detector import seen_size
from vision.models.layers import check_size, pixels
from vision.models.pretrained import Resample, stages
from vision.models.tiles import JoinPixels, over_tiles
from vision.settings import PretrainedSegmenter, Segmenter, SmallSegmenter

LEAST = 32  # px of the shorter side, of which the coarsest stage leaves one
LEVELS = ("P1", "P2", "P3", "P4", "P5")


def small(settings: SmallSegmenter, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float],
          std: Sequence[float]) -> keras.Model:
    """A network from scratch."""
    seen = _seen(image_size, settings, "small")
    images, x = pixels(seen, channels, mean, std)
    levels = []
    for stage, width in enumerate(settings.widths, 1):
        x = _unit(x, width, stride=2, name=f"stage{stage}_down")
        x = keras.layers.Add(name=f"stage{stage}_add")([x, _unit(x, width, name=f"stage{stage}_conv")]) if stage > 1 else x
        levels.append(x)
    return _segmenter(keras.Model(images, levels, name="features"), settings, classes, image_size, "small")


def pretrained(settings: PretrainedSegmenter, *, image_size: tuple[int, int], channels: int, classes: int,
               facts: dict[str, Any]) -> keras.Model:
    """An encoder of KerasHub. Raises ConfigError where it has no stages of these sizes."""
    seen = _seen(image_size, settings, "pretrained")
    features = stages(settings, image_size=seen, channels=channels, facts=facts, levels=LEVELS)
    return _segmenter(features, settings, classes, image_size, "pretrained")


def _seen(image_size: tuple[int, int], settings: Segmenter, name: str) -> tuple[int, int]:
    seen = seen_size(image_size, settings)
    check_size(seen, LEAST, name)
    return seen


def _segmenter(features: keras.Model, settings: Segmenter, classes: int, image_size: tuple[int, int], name: str) -> keras.Model:
    images = features.inputs[0]
    seen = (images.shape[1], images.shape[2])
    inputs = [keras.Input(level.shape[1:], dtype=level.dtype, name=f"level{number}") for number, level in enumerate(features.outputs)]
    head = keras.Model(inputs, _decoder(inputs, settings, classes, seen), name="head")
    if settings.tile is not None:
        return keras.Model(*over_tiles(lambda x: head(features(x)), JoinPixels, image_size, seen, settings.tile_overlap, images.shape[-1]),
                           name=name)
    return keras.Model(images, head(features(images)), name=name)


def _decoder(levels: list[keras.KerasTensor], settings: Segmenter, classes: int, image_size: tuple[int, int]) -> keras.KerasTensor:
    """Logits of each pixel; the coarsest level also knows the mean of the whole picture (Liu et al. 2015, arXiv:1506.04579)."""
    layers = keras.layers
    x = levels[-1]
    whole = layers.GlobalAveragePooling2D(keepdims=True, name="whole_mean")(x)
    whole = layers.Dense(settings.decoder[-1], activation="relu", name="whole")(whole)
    x = layers.Add(name="whole_add")([_unit(x, settings.decoder[-1], size=1, name="coarsest"), whole])
    for number in reversed(range(len(levels) - 1)):
        finer = levels[number]
        x = Resample(finer.shape[1:3], name=f"up{number}")(x)
        x = layers.Concatenate(name=f"join{number}")([x, finer])
        x = _unit(x, settings.decoder[number], name=f"decode{number}")
    x = layers.SpatialDropout2D(settings.dropout, name="dropout")(x) if settings.dropout else x
    x = layers.Conv2D(classes, 1, dtype="float32", name="logits")(x)
    return Resample(image_size, dtype="float32", name="pixels")(x)


def _unit(x: keras.KerasTensor, width: int, size: int = 3, stride: int = 1, *, name: str) -> keras.KerasTensor:
    x = keras.layers.Conv2D(width, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal", name=name)(x)
    return keras.layers.ReLU(name=f"{name}_relu")(FusedBatchNormalization(momentum=0.97, epsilon=1e-3, name=f"{name}_norm")(x))
