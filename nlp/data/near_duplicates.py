"""Near duplicates: texts whose sets of word pairs overlap, found by MinHash (Broder 1997) and then compared exactly."""

import numpy as np
import tensorflow as tf

ROWS, BANDS = 4, 8  # a pair 80 % alike agrees in one band at least with probability 98.5 %, one 40 % alike with 19 %
ALIKE = 0.8  # Jaccard index from which two texts count as nearly the same
MOST = 100_000  # pairs compared
GROUP = 50  # where more texts share a band, only neighbours are compared


def near_pairs(parts: list[tf.RaggedTensor]) -> tuple[list[tuple[int, int, float]], bool]:
    """Pairs (place, place, Jaccard index) of texts at least 80 % alike, and whether there were too many to compare all.

    Args:
        parts: [texts, None] int64, the hashes of each text's word pairs; places count over all parts.
    """
    sets = [np.unique(row) for part in parts if part.nrows() > 0
            for row in np.split(part.flat_values.numpy(), part.row_splits.numpy()[1:-1])]
    marks = _minima(sets)
    candidates: set[tuple[int, int]] = set()
    capped = False
    for band in range(BANDS):
        keys = marks[:, band * ROWS:(band + 1) * ROWS]
        order = np.lexsort(keys.T)
        same = (keys[order][1:] == keys[order][:-1]).all(axis=1)
        edges = np.flatnonzero(~same) + 1
        for group in np.split(order, edges):
            if len(group) < 2 or not len(sets[group[0]]):
                continue
            reach = len(group) if len(group) <= GROUP else 2
            for at, first in enumerate(group.tolist()):
                for second in group[at + 1:at + reach].tolist():
                    candidates.add((min(first, second), max(first, second)))
            if len(candidates) > MOST:
                capped = True
                break
        if capped:
            break
    alike = []
    for first, second in sorted(candidates):
        one, other = sets[first], sets[second]
        both = len(np.intersect1d(one, other, assume_unique=True))
        share = both / (len(one) + len(other) - both)
        if share >= ALIKE:
            alike.append((first, second, share))
    return alike, capped


def _minima(sets: list[np.ndarray]) -> np.ndarray:
    """[texts, ROWS * BANDS] uint64: the minimum of each set under as many hash functions."""
    lengths = np.array([len(one) for one in sets], np.int64)
    marks = np.full((len(sets), ROWS * BANDS), np.iinfo(np.uint64).max, np.uint64)
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return marks
    flat = np.concatenate([sets[place] for place in filled]).astype(np.uint64)
    starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
    draw = np.random.default_rng(0)
    for column in range(ROWS * BANDS):
        factor, offset = (int(value) for value in draw.integers(1, 1 << 62, 2))
        mixed = flat * np.uint64(factor * 2 + 1) + np.uint64(offset)
        mixed ^= mixed >> np.uint64(32)
        marks[filled, column] = np.minimum.reduceat(mixed, starts)
    return marks
