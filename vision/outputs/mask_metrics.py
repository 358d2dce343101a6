"""How masks are judged: intersection over union, Dice, and F1 of boundaries. A mask is [batch, height, width] class numbers; numbers of
classes or above are void."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.task import intervals
from pipelines.task.units import Units

NEAR = 0.0075  # share of the diagonal within which boundaries meet (Csurka et al. 2013, "What is a good evaluation measure for semantic
# segmentation?")


def confusion(given: tf.Tensor, true: tf.Tensor, classes: int) -> tf.Tensor:
    """Pixels of each true class (rows) that are given each class (columns), [batch, classes, classes] float32; void ones do not count."""
    batch = tf.shape(true)[0]
    numbers = tf.cast(true, tf.int32)
    cells = tf.range(batch)[:, None, None] * classes * classes + numbers * classes + tf.cast(given, tf.int32)
    cells = tf.where(numbers < classes, cells, -1)  # which segment_sum leaves out
    flat = tf.reshape(cells, [-1])
    table = tf.math.unsorted_segment_sum(tf.ones_like(flat, tf.float32), flat, batch * classes * classes)
    return tf.reshape(table, [-1, classes, classes])


def _parts(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(common, given, true) pixels of each class, [m, classes] each, of sums [m, 3 x classes]."""
    return tuple(np.split(np.asarray(sums, np.float64), 3, 1))  # type: ignore[return-value]


def ious(sums: np.ndarray) -> np.ndarray:
    """Intersection over union of each class, [m, classes]; NaN of those that are neither there nor given."""
    common, given, true = _parts(sums)
    union = given + true - common
    return np.where(union > 0, common / np.maximum(union, 1), np.nan)


def mean_iou(sums: np.ndarray) -> np.ndarray:
    """The mean over the classes that are there or given, [m]; NaN where there is none."""
    return _mean(ious(sums))


def mean_dice(sums: np.ndarray) -> np.ndarray:
    """As `mean_iou`, of twice the common pixels over those given and those true."""
    common, given, true = _parts(sums)
    return _mean(np.where(given + true > 0, 2 * common / np.maximum(given + true, 1), np.nan))


def _mean(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    count = known.sum(1)
    return np.where(count > 0, np.where(known, values, 0.0).sum(1) / np.maximum(count, 1), np.nan)


def by_class(sums: np.ndarray, names: Sequence[str], *, resamples: int, units: Units) -> list[dict[str, Any]]:
    """A row for each class: its share of the true pixels, IoU with its interval, precision and recall.

    Args:
        sums: [examples, 3 x classes].
    """
    common, given, true = (part[0] for part in _parts(sums.sum(0, keepdims=True)))
    rows = []
    for number, name in enumerate(names):
        iou = intervals.interval(sums, partial(_iou_of, number), resamples=resamples, units=units)
        known = given[number] + true[number] > 0
        rows.append({"class": name, "share": float(true[number] / max(true.sum(), 1)), "iou": iou.value if known else None,
                     "low": iou.low if known else None, "high": iou.high if known else None,
                     "precision": float(common[number] / given[number]) if given[number] else None,
                     "recall": float(common[number] / true[number]) if true[number] else None})
    return rows


def _iou_of(number: int, sums: np.ndarray) -> np.ndarray:
    return np.nan_to_num(ious(sums)[:, number])


def tolerance(height: int, width: int) -> int:
    """Pixels within which boundaries meet."""
    return max(1, round(NEAR * float(np.hypot(height, width))))


def boundary_f1(given: tf.Tensor, true: tf.Tensor, classes: int) -> tf.Tensor:
    """F1 of the boundaries of classes, its mean over the classes that are there or given, [batch] float32 (Csurka et al. 2013).

    Boundaries are pixels with one of another class beside them; void pixels have none.
    """
    near = 2 * tolerance(int(true.shape[1]), int(true.shape[2])) + 1
    counts = tf.cast(true, tf.int32) < classes
    first, second = (_boundaries(one, counts, classes) for one in (given, true))
    precision = _met(first, tf.nn.max_pool2d(second, near, 1, "SAME"))
    recall = _met(second, tf.nn.max_pool2d(first, near, 1, "SAME"))
    there = tf.cast(tf.reduce_any((first > 0) | (second > 0), [1, 2]), tf.float32)
    f1 = tf.math.divide_no_nan(2.0 * precision * recall, precision + recall)
    return tf.where(tf.reduce_sum(there, -1) > 0, tf.math.divide_no_nan(tf.reduce_sum(f1 * there, -1), tf.reduce_sum(there, -1)), 1.0)


def _met(boundaries: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(boundaries * others, [1, 2]), tf.reduce_sum(boundaries, [1, 2]))


def _boundaries(mask: tf.Tensor, counts: tf.Tensor, classes: int) -> tf.Tensor:
    """[batch, height, width, classes] float32."""
    inside = tf.one_hot(tf.where(counts, tf.cast(mask, tf.int32), -1), classes)
    others = tf.cast(counts, tf.float32)[..., None] - inside  # void pixels belong to neither
    return inside * tf.nn.max_pool2d(others, 3, 1, "SAME")
