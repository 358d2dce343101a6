"""Large pictures in tiles that overlap (as SAHI has them: Akyon et al. 2022, arXiv:2202.06934): the network sees tiles, and what it finds
in each is put together, in training as in answering. Tiles lie at even distances, from border to border.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Size = tuple[int, int]  # height and width, px


def corners(image_size: Size, tile: Size, overlap: float) -> list[tuple[int, int]]:
    """Top and left of each tile, row by row."""
    sides = []
    for whole, part in zip(image_size, tile):
        count = 1 + math.ceil(max(whole - part, 0) / ((1.0 - overlap) * part))
        sides.append([round(begin) for begin in np.linspace(0, whole - part, count).tolist()])
    return list(itertools.product(*sides))


class _Tiles(keras.layers.Layer):
    """Args: image_size, tile, overlap: of `corners`."""

    def __init__(self, image_size: Size, tile: Size, overlap: float, **options: Any):
        super().__init__(**options)
        self.image_size, self.tile, self.overlap = (int(image_size[0]), int(image_size[1])), (int(tile[0]), int(tile[1])), float(overlap)
        self.corners = corners(self.image_size, self.tile, self.overlap)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "image_size": self.image_size, "tile": self.tile, "overlap": self.overlap}


@keras.saving.register_keras_serializable(package="vision")
class CutTiles(_Tiles):
    """[batch, height, width, channels] to [batch x tiles, rows, columns, channels]."""

    def call(self, images: tf.Tensor) -> tf.Tensor:
        rows, columns = self.tile
        parts = [images[:, top:top + rows, left:left + columns] for top, left in self.corners]
        return tf.reshape(tf.stack(parts, 1), [-1, rows, columns, images.shape[-1]])

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (None, *self.tile, shape[-1])


@keras.saving.register_keras_serializable(package="vision")
class JoinBoxes(_Tiles):
    """What a detector finds, [batch x tiles, places, 4 + classes], as the places of the whole picture, [batch, tiles x places,
    4 + classes], with boxes in its pixels."""

    def call(self, found: tf.Tensor) -> tf.Tensor:
        places, width = found.shape[1:]
        shift = np.zeros((len(self.corners), 1, width), np.float32)
        shift[:, 0, :4] = [[left, top, left, top] for top, left in self.corners]
        return tf.reshape(tf.reshape(found, [-1, len(self.corners), places, width]) + shift, [-1, len(self.corners) * places, width])

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (None, len(self.corners) * (shape[1] or 0), shape[2])


@keras.saving.register_keras_serializable(package="vision")
class JoinPixels(_Tiles):
    """Logits [batch x tiles, rows, columns, classes] as those of the whole picture, [batch, height, width, classes]: where tiles overlap
    their mean, in which a pixel weighs less the nearer it is to the border of its tile."""

    def call(self, logits: tf.Tensor) -> tf.Tensor:
        (rows, columns), (height, width) = self.tile, self.image_size
        weight = np.minimum.outer(*(np.minimum(np.arange(side) + 1, side - np.arange(side)) for side in self.tile)).astype(np.float32)
        parts = tf.unstack(tf.reshape(logits, [-1, len(self.corners), rows, columns, logits.shape[-1]]) * weight[..., None], axis=1)
        total = np.zeros(self.image_size, np.float32)
        for top, left in self.corners:
            total[top:top + rows, left:left + columns] += weight
        placed = [tf.pad(part, [[0, 0], [top, height - rows - top], [left, width - columns - left], [0, 0]])
                  for part, (top, left) in zip(parts, self.corners)]
        return tf.add_n(placed) / total[..., None]

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (None, *self.image_size, shape[-1])


def over_tiles(network: Callable[[keras.KerasTensor], keras.KerasTensor], join: type[_Tiles], image_size: Size, tile: Size, overlap: float,
               channels: int) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """(whole pictures, what `network` makes of their tiles, put together)."""
    how: Any = {"image_size": image_size, "tile": tile, "overlap": overlap, "dtype": "float32"}
    pictures = keras.Input((*image_size, channels), dtype="float32", name="pictures")
    return pictures, join(**how, name="joined")(network(CutTiles(**how, name="tiles")(pictures)))
