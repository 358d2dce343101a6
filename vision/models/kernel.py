"""A kernel machine on small copies, colours and gradients of images: the baseline of images, and the model `kernel`."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.fitting import kernel
from vision.models.gradients import OrientedGradients
from vision.settings import Kernel

COPY, SEEN = 8, 32  # px: edges of a small copy, and of the one whose gradients and colours are seen
CELLS, ORIENTATIONS = (4, 8), 8  # px, and directions of these
BINS = 8  # of each channel's histogram; a value between the middles of two counts for both


def build(settings: Kernel, *, image_size: tuple[int, int], channels: int, classes: int, facts: dict[str, Any]) -> keras.Model:
    """See `vision.models.build`. All weights are 0 before they are fitted, and no step trains them."""
    support = kernel.kept_of(facts, settings.support)
    return kernel.build((*image_size, channels), describe, support=support, classes=classes)


def describe(images: tf.Tensor) -> tf.Tensor:
    """Images [batch, height, width, channels] float32 in 0..255 as [batch, values] float32, what `parts` gives beside one another; in
    graph."""
    return tf.concat(parts(images), 1)


def blocks(shape: Sequence[int]) -> list[int]:
    """The number of values of each part of images of that height, width and channels."""
    return [int(part.shape[1]) for part in parts(tf.zeros([1, *shape]))]


def parts(images: tf.Tensor) -> list[tf.Tensor]:
    """Small copies, histograms of oriented gradients, and where there are colours, of those; each [batch, some] float32."""
    height, width, channels = images.shape[1:]
    seen = _smaller(images, SEEN)
    cells = [cell for cell in CELLS if cell <= min(height, width, SEEN)]
    found = [_flat(_smaller(images, COPY)) / 255.0]
    if cells:
        found.append(_flat(OrientedGradients(ORIENTATIONS, cells, 1.0, dtype="float32")(seen)))
    if channels > 1:
        places = seen[..., None] * (BINS / 256.0) - (np.arange(BINS, dtype=np.float32) + 0.5)
        found.append(_flat(tf.reduce_mean(tf.maximum(1.0 - tf.abs(places), 0.0), [1, 2])))
    return found


def _flat(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [-1, int(np.prod(values.shape[1:]))])


def _smaller(images: tf.Tensor, edge: int) -> tf.Tensor:
    """Images of `edge` x `edge` px at most, whose pixels are means of areas: by products of matrices, which every device has."""
    rows, columns = (tf.constant(_areas(int(old), min(edge, int(old)))) for old in images.shape[1:3])
    return tf.einsum("ih,bhwc,jw->bijc", rows, images, columns)


def _areas(old: int, new: int) -> np.ndarray:
    """[new, old] float32: the share of each old pixel in each new one, along a line."""
    edges = np.arange(new + 1) * (old / new)
    inside = np.minimum(edges[1:, None], np.arange(old) + 1) - np.maximum(edges[:-1, None], np.arange(old))
    return (np.maximum(inside, 0.0) * (new / old)).astype(np.float32)
