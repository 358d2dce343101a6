"""Of boxes that overlap the best alone (greedy non-maximum suppression by class), in plain operations that every device, XLA and other
runtimes have; TensorFlow's own kernel is for CPUs, and says not from which place a box is."""

from typing import NamedTuple

import tensorflow as tf

from vision.outputs.box_loss import EPSILON, area

CANDIDATES = 5  # times as many as may be left are looked at, best first


class Kept(NamedTuple):
    """What is left, best first: places and classes [batch, most] int32, scores [batch, most] float32, 0 where there is no further one."""

    places: tf.Tensor
    classes: tf.Tensor
    scores: tf.Tensor


def suppress(boxes: tf.Tensor, chances: tf.Tensor, *, most: int, overlap: float, least: float) -> Kept:
    """
    Args:
        boxes: [batch, places, 4] float32.
        chances: [batch, places, classes] float32.
        overlap: of two boxes of a class with a larger intersection over union the better one is left.
        least: score below which there is no box.
    """
    places, classes = chances.shape[1:]
    scores, number = tf.math.top_k(tf.reshape(chances, [-1, places * classes]), min(CANDIDATES * most, places * classes))
    place, label = number // classes, number % classes
    mine = tf.gather(boxes, place, batch_dims=1)
    best_first = tf.range(scores.shape[1])
    hides = _overlap_more(mine, overlap) & (best_first[:, None] < best_first[None])  # [batch, the better one, the other]
    if classes > 1:
        hides &= label[:, :, None] == label[:, None]
    hides = tf.cast(hides, tf.float32)
    there = tf.cast(scores >= least, tf.float32)

    # Hidden by none that is left: said again of what that leaves, until nothing changes, which is what one after the other finds.
    def again(left: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(left != before)

    def look(left: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = tf.matmul(left[:, None], hides)[:, 0] > 0.0
        return tf.where(hidden, 0.0, there), left

    left, _ = tf.while_loop(again, look, (there, there - 1.0), maximum_iterations=scores.shape[1] + 1)
    best, order = tf.math.top_k(tf.where(left > 0.0, scores, -1.0), min(most, scores.shape[1]))
    padding = [[0, 0], [0, most - best.shape[1]]]
    found = (tf.where(best > 0.0, tf.gather(value, order, batch_dims=1), 0) for value in (place, label))
    return Kept(*(tf.pad(value, padding) for value in (*found, tf.maximum(best, 0.0))))


def _overlap_more(boxes: tf.Tensor, than: float) -> tf.Tensor:
    """Which pairs of boxes [batch, n, 4] have a larger intersection over union, [batch, n, n] bool; side by side, since n x n x 4 numbers
    take several times as long."""
    left, top, right, bottom = tf.unstack(boxes, axis=-1)

    def common(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.minimum(high[:, :, None], high[:, None]) - tf.maximum(low[:, :, None], low[:, None]))

    both, own = common(left, right) * common(top, bottom), area(boxes)
    return both > than * (own[:, :, None] + own[:, None] - both + EPSILON)
