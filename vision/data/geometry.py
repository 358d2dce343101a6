"""Where things lie in a picture that is brought to a model's size and augmented: maps of pixels, so that boxes, points and masks go along.

A map is [..., 2, 3] float32: it takes a point (x, y) of one picture to that of another, in pixels from the upper left corner, so that the
centre of the first pixel is (0.5, 0.5). All functions are pure and in graph.
"""

import tensorflow as tf

from pipelines.machine import kernels


def part_to_size(top: tf.Tensor, left: tf.Tensor, height: tf.Tensor, width: tf.Tensor, size: tuple[int, int] | tf.Tensor,
                 above: tf.Tensor | int = 0, beside: tf.Tensor | int = 0) -> tf.Tensor:
    """The map [2, 3] of a part of a picture that is scaled to `size` (height, width), `above` and `beside` pixels into the new one."""
    top, left, height, width, above, beside, rows, columns = (
        tf.cast(value, tf.float32) for value in (top, left, height, width, above, beside, size[0], size[1]))
    down, across = rows / height, columns / width
    return tf.stack([tf.stack([across, 0.0, beside - left * across]), tf.stack([0.0, down, above - top * down])])


def then(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """The map of both, one after the other."""
    turned = second[..., :2] @ first[..., :2]
    return tf.concat([turned, second[..., :2] @ first[..., 2:] + second[..., 2:]], -1)


def inverse(maps: tf.Tensor) -> tf.Tensor:
    """The maps that lead back."""
    back = tf.linalg.inv(maps[..., :2])
    return tf.concat([back, -(back @ maps[..., 2:])], -1)


def move_points(points: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Points [batch, n, 2] float32, x and y, by maps [batch, 2, 3]."""
    return points @ tf.linalg.matrix_transpose(maps[..., :2]) + tf.linalg.matrix_transpose(maps[..., 2:])


def move_boxes(boxes: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Boxes [batch, n, 4] float32, left, top, right and bottom, by maps that turn nothing; not cut at any border."""
    first, second = move_points(boxes[..., :2], maps), move_points(boxes[..., 2:], maps)
    return tf.concat([tf.minimum(first, second), tf.maximum(first, second)], -1)


def clip_boxes(boxes: tf.Tensor, part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(boxes cut at the border of a part of the picture, left, top, right and bottom [4] or [batch, 4], [batch, n, 4]; what is left of each
    one's area, [batch, n])."""
    low, high = (tf.tile(side, [*[1] * (len(side.shape) - 1), 2])[..., None, :] for side in (part[..., :2], part[..., 2:]))
    cut = tf.clip_by_value(boxes, low, high)
    return cut, tf.math.divide_no_nan(_area(cut), _area(boxes))


def _area(boxes: tf.Tensor) -> tf.Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def move_masks(masks: tf.Tensor, maps: tf.Tensor, size: tuple[int, int], outside: int) -> tf.Tensor:
    """Masks [batch, height, width] of class numbers by maps, each new pixel as the old one nearest to it; [batch, *size] of the same type.

    Args:
        outside: the number of pixels that come from beyond the old border.
    """
    x, y = _origins(maps, size[0], size[1])
    height, width = tf.shape(masks)[1], tf.shape(masks)[2]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    flat = tf.reshape(masks, [tf.shape(masks)[0], -1])
    found = kernels.gather(flat, tf.where(inside, y * width + x, 0), batch_dims=1)
    return tf.reshape(tf.where(inside, found, tf.cast(outside, masks.dtype)), [-1, *size])


def move_mask(mask: tf.Tensor, one: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """A mask [height, width] by a map [2, 3] to a `size` [2] int32 that is known in graph alone; beyond its border the nearest pixel."""
    x, y = _origins(one[None], size[0], size[1])
    height, width = tf.shape(mask)[0], tf.shape(mask)[1]
    place = tf.clip_by_value(y, 0, height - 1) * width + tf.clip_by_value(x, 0, width - 1)
    return tf.reshape(tf.gather(tf.reshape(mask, [-1]), place[0]), size)


def _origins(maps: tf.Tensor, height: tf.Tensor | int, width: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
    """Column and row of the old pixel from which each new one comes, [batch, height x width] int32 each."""
    columns, rows = (tf.range(tf.cast(edge, tf.float32)) + 0.5 for edge in (width, height))
    grid = tf.reshape(tf.stack(tf.meshgrid(columns, rows), -1), [1, -1, 2])
    where = tf.cast(tf.floor(move_points(tf.repeat(grid, tf.shape(maps)[0], 0), inverse(maps))), tf.int32)
    return where[..., 0], where[..., 1]
