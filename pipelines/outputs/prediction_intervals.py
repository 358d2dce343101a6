"""Intervals of numbers that hold the truth as often as they promise: split conformal prediction on validation.

An answer comes with a lower and an upper guess (the answer itself, or learned quantiles). By how far the truth of an example lies outside
of them is its score, and the `ceil((n + 1) share)`-th smallest score of n held-out examples, added on both sides, makes an interval that
holds a new example's truth with at least that probability, whatever the model and the distribution, as long as examples are exchangeable
(Papadopoulos et al. 2002; Vovk et al. 2005, "Algorithmic Learning in a Random World", chapter 2; with quantiles Romano et al. 2019,
"Conformalized Quantile Regression"). Examples are put into bins by their answer, each with a margin of its own (Mondrian: Vovk et al.,
chapter 4), so that the promise holds for small and for large answers. All is in the learned scale: of logarithms, margins are ratios.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

BINS, LEAST = 4, 40  # bins at most, and examples of validation in each: with 40 a promised 0.9 is 0.902 on average


def margins(values: np.ndarray, low: np.ndarray, high: np.ndarray, *, truth: np.ndarray, share: float) -> dict[str, Any] | None:
    """What is added on both sides of the guesses for one number: {"share", "edges", "margins"}; None where there are too few examples.

    Args:
        values: [n], the answers; NaN in `truth` [n] does not count.
        low, high: [n], the lower and the upper guess.

    Returns:
        `edges` [bins - 1], answers that divide the bins, ascending; `margins` [bins].
    """
    known = np.isfinite(truth)
    values, truth = values[known].astype(np.float64), truth[known]
    scores = np.maximum(low[known] - truth, truth - high[known]).astype(np.float64)
    if len(scores) < math.ceil((len(scores) + 1) * share):
        return None
    bins = max(1, min(BINS, len(scores) // max(LEAST, math.ceil(share / (1.0 - share)))))
    edges = np.unique(np.quantile(values, np.arange(1, bins) / bins)) if bins > 1 else np.zeros(0)
    which = np.searchsorted(edges, values, side="left")
    counts = np.bincount(which, minlength=len(edges) + 1)
    if counts.min() * (1.0 - share) < share:  # many answers are equal: bins by them are too small
        edges, which = np.zeros(0), np.zeros(len(values), np.int64)
    return {"share": share, "edges": edges.tolist(),
            "margins": [_quantile(scores[which == number], share) for number in range(len(edges) + 1)]}


def _quantile(scores: np.ndarray, share: float) -> float:
    place = math.ceil((len(scores) + 1) * share)
    return float(np.sort(scores)[place - 1])


def widened(found: dict[str, Any], values: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Both ends of the interval of each answer, [batch] float32 each, which hold the answer itself; in graph.

    Args:
        found: as `margins` gave it.
        values, low, high: [batch] float32.
    """
    which = tf.reduce_sum(tf.cast(values[:, None] > tf.constant([found["edges"]], tf.float32, [1, len(found["edges"])]), tf.int32), 1)
    margin = tf.gather(tf.constant(found["margins"], tf.float32), which)
    return tf.minimum(low - margin, values), tf.maximum(high + margin, values)
