"""Histograms of oriented gradients (Dalal and Triggs 2005, doi:10.1109/CVPR.2005.177) and a linear layer: features that learn nothing.

Private training adds noise to every weight: on a thousand examples a few hundred weights learn more than a network does (Tramer and Boneh
2021, arXiv:2011.11660).
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from vision.models.layers import check_size, logits
from vision.settings import Gradients


@keras.saving.register_keras_serializable(package="vision")
class OrientedGradients(keras.layers.Layer):
    """Images [batch, height, width, channels] float32 in 0..255 -> features [batch, n] float32 of mean 0 and one L2 norm for each image.

    The strength of a gradient counts by its square root, in each direction that it points to by its part in it; channels are averaged.

    Args:
        cells: edges of the windows, px; the windows of an edge lie half of it apart, and all edges count alike.
    """

    def __init__(self, orientations: int, cells: Sequence[int], norm: float, **options: Any):
        super().__init__(**options)
        self.orientations, self.cells, self.norm = orientations, tuple(cells), norm

    def call(self, images: Any) -> Any:
        padded = ops.pad(ops.mean(images, -1, keepdims=True) / 255.0, [[0, 0], [1, 1], [1, 1], [0, 0]])
        across, down = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2], padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
        angles = [2.0 * math.pi * number / self.orientations for number in range(self.orientations)]
        parts = ops.concatenate([ops.relu(math.cos(angle) * across + math.sin(angle) * down) for angle in angles], -1)
        shares = parts / (ops.sqrt(ops.sum(ops.square(parts), -1, keepdims=True) + 1e-12) + 0.1)
        strength = ops.sqrt(ops.sqrt(ops.square(across) + ops.square(down) + 1e-12))
        scales = [_centred(ops.average_pool(shares * strength, cell, max(1, cell // 2), padding="valid")) for cell in self.cells]
        return self.norm / math.sqrt(len(scales)) * ops.concatenate(scales, -1)

    def get_config(self) -> dict[str, Any]:
        own = {"orientations": self.orientations, "cells": list(self.cells), "norm": self.norm}
        return {**super().get_config(), **own}


def _centred(pooled: Any) -> Any:
    """[batch, ...] -> [batch, n] of mean 0 and L2 norm 1."""
    flat = ops.reshape(pooled, (-1, math.prod(pooled.shape[1:])))
    centred = flat - ops.mean(flat, -1, keepdims=True)
    return centred / ops.sqrt(ops.sum(ops.square(centred), -1, keepdims=True) + 1e-12)


def build(
    settings: Gradients, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`. Nothing is learned of pixels, so `mean` and `std` have no part in it."""
    check_size(image_size, max(settings.cells), "gradients")
    images = keras.Input((*image_size, channels), name="images")
    features = OrientedGradients(settings.orientations, settings.cells, settings.norm, dtype="float32", name="gradients")
    return keras.Model(images, logits(features(images), classes), name="gradients")
