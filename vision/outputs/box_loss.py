"""What a detector learns: which places give which box, and how far they are from it. Pure functions, in graph.

Places are the middles of the cells of all levels, finest first; A of them. Boxes are left, top, right and bottom in pixels.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

CLASS_POWER, OVERLAP_POWER = 0.5, 6.0  # alpha and beta of task-aligned assignment (Feng et al. 2021, arXiv:2108.07755)
EPSILON = 1e-9
LEAST = 1e-4  # added to overlaps that are compared, so that some place learns a box that no prediction meets yet


class Places(NamedTuple):
    """x and y of each place, [A, 2] float32, and the stride of its level, [A, 1] float32, in pixels."""

    middles: np.ndarray
    strides: np.ndarray


def area(boxes: tf.Tensor) -> tf.Tensor:
    """Of boxes [..., 4]; 0 of those without inside."""
    sides = tf.maximum(boxes[..., 2:] - boxes[..., :2], 0.0)
    return sides[..., 0] * sides[..., 1]


def overlaps(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Intersection over union of boxes, broadcast over all but their last dimension."""
    common = area(tf.concat([tf.maximum(first[..., :2], second[..., :2]), tf.minimum(first[..., 2:], second[..., 2:])], -1))
    return common / (area(first) + area(second) - common + EPSILON)


def generalised_overlaps(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Generalised intersection over union, -1 to 1 (Rezatofighi et al. 2019, arXiv:1902.09630)."""
    common = area(tf.concat([tf.maximum(first[..., :2], second[..., :2]), tf.minimum(first[..., 2:], second[..., 2:])], -1))
    union = area(first) + area(second) - common
    around = area(tf.concat([tf.minimum(first[..., :2], second[..., :2]), tf.maximum(first[..., 2:], second[..., 2:])], -1))
    return common / (union + EPSILON) - (around - union) / (around + EPSILON)


class Assigned(NamedTuple):
    """What each place learns.

    quality: [batch, A] float32, how well it lies, 0 where it learns that there is nothing.
    box: [batch, A, 4] float32; class_number: [batch, A] int32; thing: [batch, A] int32, the number of the box; all without meaning where
    quality is 0.
    """

    quality: tf.Tensor
    box: tf.Tensor
    class_number: tf.Tensor
    thing: tf.Tensor


def assigned(probabilities: tf.Tensor, predicted: tf.Tensor, boxes: tf.Tensor, classes: tf.Tensor, where: Places, most: int) -> Assigned:
    """Task-aligned assignment: each box goes to the places in it, at most `most`, whose class and box are best together.

    A place in several boxes learns the one that its own overlaps most. Its quality is the overlap of the box's best place, times how well
    aligned it is beside the best aligned one.

    Args:
        probabilities: [batch, A, classes] float32.
        predicted: [batch, A, 4] float32.
        boxes, classes: the true ones, [batch, n, 4] float32 and [batch, n] int32, -1 where there is none.
    """
    overlap = overlaps(boxes[:, :, None], predicted[:, None])  # [batch, n, A]
    chance = tf.einsum("bnc,bac->bna", tf.one_hot(classes, probabilities.shape[-1]), probabilities)
    half = tf.maximum((boxes[..., 2:] - boxes[..., :2]) / 2.0, float(where.strides.min()) / 2.0)  # of a tiny box the next place counts
    middle = (boxes[..., :2] + boxes[..., 2:]) / 2.0
    inside = tf.reduce_all(tf.abs(where.middles - middle[:, :, None]) <= half[:, :, None], -1) & (classes >= 0)[..., None]
    aligned = tf.where(inside, chance**CLASS_POWER * (overlap + LEAST)**OVERLAP_POWER, 0.0)
    least = tf.math.top_k(aligned, min(most, aligned.shape[-1])).values[..., -1:]
    chosen = inside & (aligned >= least)
    own = tf.argmax(tf.where(chosen, overlap, -1.0), 1, tf.int32)  # [batch, A], the box of each place
    chosen &= own[:, None] == tf.range(tf.shape(boxes)[1])[:, None]
    aligned, overlap = tf.where(chosen, aligned, 0.0), tf.where(chosen, overlap, 0.0)
    best = tf.math.divide_no_nan(tf.reduce_max(overlap, -1, keepdims=True), tf.reduce_max(aligned, -1, keepdims=True))
    return Assigned(*map(tf.stop_gradient, (tf.reduce_max(aligned * best, 1), tf.gather(boxes, own, batch_dims=1),
                                            tf.gather(classes, own, batch_dims=1), own)))


def losses(outputs: tf.Tensor, boxes: tf.Tensor, classes: tf.Tensor, where: Places, *, most: int, weight: float,
           ) -> tuple[tf.Tensor, Assigned]:
    """(the loss of each picture, summed over its places, [batch] float32: binary cross-entropy of all classes, whose target is a place's
    quality, and `weight` times 1 - generalised overlap of boxes, weighed by quality; what each place learns).

    Args:
        outputs: [batch, A, 4 + classes], boxes in pixels and logits (vision.models.detector).
        boxes, classes, most: as in `assigned`.
    """
    predicted, logits = tf.split(tf.cast(outputs, tf.float32), [4, outputs.shape[-1] - 4], -1)
    learned = assigned(tf.nn.sigmoid(logits), predicted, boxes, classes, where, most)
    quality = learned.quality
    wanted = tf.one_hot(learned.class_number, logits.shape[-1]) * quality[..., None]
    of_classes = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits), [1, 2])
    of_boxes = tf.reduce_sum(quality * (1.0 - generalised_overlaps(predicted, learned.box)), 1)
    return of_classes + weight * of_boxes, learned
