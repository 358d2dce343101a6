"""Four pictures of a batch in one, with what lies in them (Bochkovskiy et al. 2020, arXiv:2004.10934). Pure functions, in graph.

The four quarters meet at a random place; each shows a corner of its picture, made smaller by a random factor. Which pictures come together
is said by their places in the batch: an example and the three whose numbers differ from its own in the lowest two bits.
"""

from typing import NamedTuple

import tensorflow as tf

from pipelines.data import draws
from vision.data import geometry
from vision.data.augment import moved_by

STREAM = 48  # the first of seven draws from a key
MIDDLE, SMALLEST = (0.3, 0.7), 0.5  # where the quarters meet, in shares of the sides; the smallest factor


class Parts(NamedTuple):
    """Of each quarter, a list of four: the example in it [batch] int32; the map from that to the mosaic [batch, 2, 3] float32; and left,
    top, right and bottom of what the picture covers of the quarter [batch, 4] float32, in pixels."""

    examples: list[tf.Tensor]
    maps: list[tf.Tensor]
    quarters: list[tf.Tensor]


def draw_parts(keys: tf.Tensor, size: tuple[int, int], share: float) -> Parts:
    """What each example's mosaic is; with a probability of 1 - share the example alone, as it is.

    Args:
        keys: [batch, 2] int32.
        size: height and width of the images.
    """
    batch, (height, width) = tf.shape(keys)[0], (float(edge) for edge in size)
    values = draws.uniform(keys, STREAM, 7)
    mixed = values[0] < share
    middle = MIDDLE[0] + (MIDDLE[1] - MIDDLE[0]) * values[1:3]
    x, y = tf.where(mixed, width * middle[0], width), tf.where(mixed, height * middle[1], height)
    nought, found = tf.zeros_like(x), Parts([], [], [])
    for number in range(4):
        right, below = number % 2, number // 2
        factor = tf.where(mixed, SMALLEST + (1.0 - SMALLEST) * values[3 + number], 1.0)
        across, down = (x if right else x - factor * width), (y if below else y - factor * height)
        found.examples.append(tf.minimum(tf.bitwise.bitwise_xor(tf.range(batch), number), batch - 1))
        found.maps.append(tf.stack([tf.stack([factor, nought, across], 1), tf.stack([nought, factor, down], 1)], 1))
        found.quarters.append(tf.stack([
            x if right else tf.maximum(across, 0.0), y if below else tf.maximum(down, 0.0),
            tf.minimum(x + factor * width, width) if right else x, tf.minimum(y + factor * height, height) if below else y], 1))
    return found


def join_images(images: tf.Tensor, parts: Parts, fill: list[float]) -> tf.Tensor:
    """[batch, height, width, channels] float32; what no picture covers is `fill`."""
    made = tf.zeros_like(images) + tf.constant(fill, tf.float32)
    for example, one, quarter in zip(*parts):
        inside = _inside(quarter, images.shape[1], images.shape[2])
        made = tf.where(inside[..., None], moved_by(tf.gather(images, example), one, fill), made)
    return made


def join_masks(masks: tf.Tensor, parts: Parts, outside: int, step: int = 0) -> tf.Tensor:
    """Masks [batch, height, width] of numbers; what no picture covers is `outside`.

    Args:
        step: how much higher than in the quarter before the numbers of things are.
    """
    made = tf.fill(tf.shape(masks), tf.cast(outside, masks.dtype))
    for number, (example, one, quarter) in enumerate(zip(*parts)):
        moved = geometry.move_masks(tf.gather(masks, example), one, (masks.shape[1], masks.shape[2]), outside)
        moved = tf.where(moved > 0, moved + tf.cast(number * step, masks.dtype), moved) if step else moved
        made = tf.where(_inside(quarter, masks.shape[1], masks.shape[2]), moved, made)
    return made


def join_boxes(boxes: tf.Tensor, maps: tf.Tensor, parts: Parts) -> tuple[tf.Tensor, tf.Tensor]:
    """(boxes of all quarters, cut at their borders, [batch, 4 n, 4] float32; what is left of each one's area, [batch, 4 n]).

    Args:
        boxes: [batch, n, 4] float32, in the pixels from which `maps` [batch, 2, 3] lead to the images that are put together.
    """
    found = []
    for example, one, quarter in zip(*parts):
        whole = geometry.move_boxes(tf.gather(boxes, example), geometry.then(tf.gather(maps, example), one))
        found.append(geometry.clip_boxes(whole, quarter))
    return tf.concat([cut for cut, _ in found], 1), tf.concat([left for _, left in found], 1)


def _inside(quarter: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The pixels whose middles lie in it, [batch, height, width] bool."""
    left, top, right, bottom = (side[:, None] for side in tf.unstack(quarter, axis=-1))
    x, y = ((tf.range(edge, dtype=tf.float32) + 0.5)[None] for edge in (width, height))
    return ((y >= top) & (y < bottom))[:, :, None] & ((x >= left) & (x < right))[:, None]
