"""The part of train that is fitted to, and its folds, of which each is held out once: by groups where there are any, else by chance,
classes divided evenly; and how sure answers are that were held out."""

from collections.abc import Callable

import numpy as np
from scipy.special import log_expit, log_softmax

from pipelines.data.source import Source

FOLDS = 5  # at most


def fitting_part(train: Source, most: int) -> Source:
    """The training examples that are fitted to: all, or `most` drawn at random from a fixed seed."""
    if len(train) <= most:
        return train
    return train.subset(np.sort(np.random.default_rng(0).choice(len(train), most, replace=False)))


def folds(labels: np.ndarray | None, groups: np.ndarray | None, examples: int, seed: int, count: int = FOLDS) -> np.ndarray:
    """The fold of each example, [examples] int64.

    Args:
        labels: [examples], or None where they are not known or an example has several.
        groups: [examples] of those that stay together (speakers, patients); None: each example by itself.
    """
    if groups is not None and len(set(groups)) > 1:
        return by_group(groups, count)
    return by_chance(labels, examples, seed, count)


def by_group(groups: np.ndarray, count: int = FOLDS) -> np.ndarray:
    """The fold of each example: those of a group share one, and folds are alike in size."""
    names, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    fold, sizes = np.zeros(len(names), np.int64), np.zeros(min(count, len(names)), np.int64)
    for group in np.argsort(-counts, kind="stable"):
        fold[group] = np.argmin(sizes)
        sizes[fold[group]] += counts[group]
    return fold[which]


def by_chance(labels: np.ndarray | None, examples: int, seed: int, count: int = FOLDS) -> np.ndarray:
    """The fold of each example: classes are divided evenly."""
    mixed = np.random.default_rng(seed).permutation(examples)
    if labels is not None:
        mixed = mixed[np.argsort(labels[mixed], kind="stable")]
    fold = np.empty(examples, np.int64)
    fold[mixed] = np.arange(examples) % count
    return fold


BOUNDS = (-3.0, 5.0)  # of the logarithm of the scale


def of_classes(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """(scale, mean loss in nats): of scores [n, classes] whose softmax is the probability of each class [n] (Guo et al. 2017)."""
    rows = np.arange(len(labels))
    return _smallest(lambda scale: -float(log_softmax(scale * scores, axis=1)[rows, labels].mean()))


def of_labels(scores: np.ndarray, truth: np.ndarray, border: float) -> tuple[float, float]:
    """As `of_classes`, of scores [n, classes] less `border`, of which each is the log-odds of a label that is there or not, bool."""
    signed = np.where(truth, 1.0, -1.0) * (scores - border)
    return _smallest(lambda scale: -float(log_expit(scale * signed).mean()))


def _smallest(loss: Callable[[float], float]) -> tuple[float, float]:
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(lambda log_scale: loss(float(np.exp(log_scale))), bounds=BOUNDS, method="bounded")
    return float(np.exp(best.x)), float(best.fun)
