"""The masks of things, each drawn by a small network of its own (CondInst: Tian et al. 2020, arXiv:2003.05664), and their loss; in graph.

A thing's network is three 1 x 1 convolutions over features that all things of a picture share, and over where a pixel lies from the place
that found the thing; its weights are what the detector gives at that place.
"""

import numpy as np
import tensorflow as tf

REACH = 8.0  # strides of a place's level within which a pixel's distance from it is 1 or less
NEAR = 0.5  # of a box's sides: how far around it pixels are in the loss of pixels


def logits(features: tf.Tensor, controls: tf.Tensor, middles: tf.Tensor, strides: tf.Tensor, pixel: int) -> tf.Tensor:
    """[batch, things, rows, columns] float32, above 0 where a thing is.

    Args:
        features: [batch, rows, columns, width] float32.
        controls: [batch, things, vision.models.detector.count_weights(width)] float32.
        middles, strides: x and y of the place of each, and the stride of its level, [batch, things, 2] and [batch, things, 1], in pixels.
        pixel: stride of the features.
    """
    (rows, columns, width), things = features.shape[1:], controls.shape[1]
    sizes = [(width + 2) * width, width, width * width, width, width, 1]
    first, first_bias, second, second_bias, third, third_bias = tf.split(controls, sizes, -1)
    first, second = tf.reshape(first, [-1, things, width + 2, width]), tf.reshape(second, [-1, things, width, width])
    grid = tf.stack(tf.meshgrid((tf.range(columns, dtype=tf.float32) + 0.5) * pixel, (tf.range(rows, dtype=tf.float32) + 0.5) * pixel), -1)
    seen = tf.reshape(tf.concat([features, tf.zeros_like(features[..., :2]) + grid], -1), [-1, rows * columns, width + 2])
    # (grid - middle) / reach times its weights, without a tensor of every thing's distances
    slope = first[:, :, width:] / (REACH * strides[..., None])
    begin = first_bias - tf.reduce_sum(middles[..., None] * slope, 2)
    first = tf.transpose(tf.concat([first[:, :, :width], slope], 2), [0, 2, 1, 3])
    x = tf.matmul(seen, tf.reshape(first, [-1, width + 2, things * width]))
    x = tf.transpose(tf.reshape(x, [-1, rows * columns, things, width]), [0, 2, 1, 3])
    x = tf.nn.relu(tf.matmul(tf.nn.relu(x + begin[:, :, None]), second) + second_bias[:, :, None])
    return tf.reshape(tf.matmul(x, third[..., None]) + third_bias[:, :, None], [-1, things, rows, columns])


def enlarge(masks: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Masks [..., rows, columns] float32 of another size (rows, columns), between the middles of pixels linearly, by matrix products."""
    rows, columns = (tf.constant(_interpolation(int(old), new)) for old, new in zip(masks.shape[-2:], size))
    return tf.matmul(tf.matmul(rows, masks), columns, transpose_b=True)


def _interpolation(old: int, new: int) -> np.ndarray:
    """[new, old] float32: the shares of old pixels in each new one."""
    place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    first = np.minimum(place.astype(int), max(old - 2, 0))
    shares = np.zeros((new, old), np.float32)
    shares[np.arange(new), first] = 1 - (place - first)
    shares[np.arange(new), np.minimum(first + 1, old - 1)] += (place - first).astype(np.float32)
    return shares


def losses(given: tf.Tensor, true: tf.Tensor, boxes: tf.Tensor, pixel: float) -> tf.Tensor:
    """Of each thing, [batch, things] float32: 1 - Dice over the whole picture (Milletari et al. 2016, arXiv:1606.04797), and the mean
    binary cross-entropy of the pixels in its box and around it.

    Args:
        given: logits [batch, things, rows, columns].
        true: the share of each pixel that is the thing's, of the same shape.
        boxes: [batch, things, 4] in pixels of the image, of which one of the masks has `pixel`.
    """
    chance = tf.nn.sigmoid(given)
    common = tf.reduce_sum(chance * true, [2, 3])
    dice = 1.0 - 2.0 * common / (tf.reduce_sum(chance * chance, [2, 3]) + tf.reduce_sum(true * true, [2, 3]) + 1e-5)
    near = tf.cast(inside(around(boxes, NEAR), given.shape[2], given.shape[3], pixel), tf.float32)
    each = tf.nn.sigmoid_cross_entropy_with_logits(true, given) * near
    return dice + tf.reduce_sum(each, [2, 3]) / tf.maximum(tf.reduce_sum(near, [2, 3]), 1.0)


def around(boxes: tf.Tensor, share: float) -> tf.Tensor:
    """Boxes that reach a share of their sides further, on each side."""
    more = share * (boxes[..., 2:] - boxes[..., :2])
    return tf.concat([boxes[..., :2] - more, boxes[..., 2:] + more], -1)


def inside(boxes: tf.Tensor, rows: int, columns: int, pixel: float = 1.0) -> tf.Tensor:
    """Which pixels' middles lie in each box, [batch, things, rows, columns] bool."""
    x, y = ((tf.range(count, dtype=tf.float32) + 0.5) * pixel for count in (columns, rows))
    left, top, right, bottom = (side[..., None] for side in tf.unstack(boxes, axis=-1))
    return ((y >= top) & (y <= bottom))[..., None] & ((x >= left) & (x <= right))[:, :, None]
