"""ROC and precision-recall: areas with intervals, points, and one figure of them.

Equal scores are one threshold throughout, so a constant score has an area of 0.5 whatever the order of the examples.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pipelines.base.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, new_figure, style
from pipelines.task.intervals import resampled_by_counts
from pipelines.task.results import Metric
from pipelines.task.units import EXAMPLES, Units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 2000  # of a drawn curve


def area(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Area under the ROC: the chance that a positive example scores above a negative one, ties half. None where one kind is missing."""
    if not 0 < positive.sum() < len(positive):
        return None
    return float(_areas(*_grouped(scores, positive), np.ones((1, len(scores))))[0])


def auroc(scores: np.ndarray, positive: np.ndarray, *, resamples: int = 1000, seed: int = 0, units: Units = EXAMPLES) -> Metric:
    """`area` with its bootstrap interval.

    Args:
        scores: [n]; higher means positive.
        positive: [n] bool, of both kinds.
    """
    return _resampled(_areas, scores, positive, resamples, seed, units)


def average_precision(scores: np.ndarray, positive: np.ndarray, *, resamples: int = 1000, seed: int = 0, units: Units = EXAMPLES,
                      ) -> Metric:
    """Sum over thresholds of precision x the recall gained there, with its bootstrap interval."""
    return _resampled(_precisions, scores, positive, resamples, seed, units)


def roc(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(false positive rate, true positive rate) at every threshold, from (0, 0) to (1, 1)."""
    _, edges, true = _grouped(scores, positive)
    hits, seen = np.cumsum(true)[edges], edges + 1
    return np.append(0, (seen - hits) / max(1, (~positive).sum())), np.append(0, hits / max(1, positive.sum()))


def precision_recall(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(recall, precision) at every threshold."""
    _, edges, true = _grouped(scores, positive)
    hits = np.cumsum(true)[edges]
    return hits / max(1, positive.sum()), hits / (edges + 1)


def figure(lines: Mapping[str, tuple[np.ndarray, np.ndarray]], *, kind: str, title: str = "") -> "Figure":
    """Curves in one figure.

    Args:
        lines: name -> points as `roc` or `precision_recall` give them.
        kind: "roc" or "precision_recall".
    """
    with style():
        drawn = new_figure(5.2, 5.0)
        axis = drawn.subplots()
        for (name, (x, y)), colour in zip(lines.items(), (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)):
            step = max(1, len(x) // POINTS)
            keep = np.unique(np.append(np.arange(0, len(x), step), len(x) - 1))
            axis.plot(x[keep], y[keep], color=colour, label=name, drawstyle="default" if kind == "roc" else "steps-pre")
        if kind == "roc":
            axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
            axis.set(xlabel="false positive rate", ylabel="true positive rate")
        else:
            axis.set(xlabel="recall", ylabel="precision")
        axis.set(xlim=(0, 1), ylim=(0, 1.02))
        axis.set_title(title or ("ROC" if kind == "roc" else "Precision and recall"))
        axis.legend(loc="lower right" if kind == "roc" else "lower left")
    return drawn


def _grouped(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(order, highest first; the last place of each group of equal scores; positive in that order)."""
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    ranked = np.asarray(scores)[order]
    edges = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    return order, edges, np.asarray(positive, bool)[order]


def _areas(order: np.ndarray, edges: np.ndarray, true: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[m] for counts [m, n] of each example."""
    counts = counts[:, order]
    hits = np.cumsum(counts * true, axis=1)[:, edges]
    misses = np.cumsum(counts * ~true, axis=1)[:, edges]
    gained = np.diff(misses, axis=1, prepend=0)
    height = hits - np.diff(hits, axis=1, prepend=0) / 2
    return (gained * height).sum(axis=1) / np.maximum(hits[:, -1] * misses[:, -1], 1)


def _precisions(order: np.ndarray, edges: np.ndarray, true: np.ndarray, counts: np.ndarray) -> np.ndarray:
    counts = counts[:, order]
    hits = np.cumsum(counts * true, axis=1)[:, edges]
    seen = np.cumsum(counts, axis=1)[:, edges]
    return (np.diff(hits, axis=1, prepend=0) * hits / np.maximum(seen, 1)).sum(axis=1) / np.maximum(hits[:, -1], 1)


def _resampled(statistic, scores: np.ndarray, positive: np.ndarray, resamples: int, seed: int, units: Units) -> Metric:
    grouped = _grouped(scores, positive)
    return resampled_by_counts(lambda counts: statistic(*grouped, counts), len(scores), resamples=resamples, seed=seed, width=4,
                               units=units)
