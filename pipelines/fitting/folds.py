"""The part of train that is fitted to, and its folds, of which each is held out once: by groups where there are any, else by chance,
classes divided evenly."""

import numpy as np

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
