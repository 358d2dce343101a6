"""Metrics of recommendation lists, for each user; definitions stand with the function and are checked against other libraries.

A list is judged by where the held-out items stand in it; gains are 0 or 1.
"""

import numpy as np
from scipy import sparse


def hits(lists: np.ndarray, held_users: np.ndarray, held_items: np.ndarray, items: int) -> np.ndarray:
    """Whether each place of each list holds a held-out item: [users, length] bool.

    Args:
        lists: [users, length] int, items from 1; 0 where the list is shorter.
        held_users, held_items: [pairs], the row of `lists` and the item of each held-out event; items that are 0 or less (unknown to
            the run) are never hit.
        items: in the catalogue.
    """
    width = np.int64(items) + 1
    wanted = np.unique(held_users[held_items > 0].astype(np.int64) * width + held_items[held_items > 0])
    keys = np.arange(len(lists), dtype=np.int64)[:, None] * width + lists
    place = np.searchsorted(wanted, keys.ravel()).clip(0, max(0, len(wanted) - 1))
    there = (wanted[place] == keys.ravel()).reshape(keys.shape) if len(wanted) else np.zeros(keys.shape, bool)
    return there & (lists > 0)


def per_user(hit: np.ndarray, held: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """The metrics of each user's first `k` places.

    hit_rate    1 if any of them holds a held-out item
    recall      held-out items among them / held-out items (equal to hit_rate where one is held out)
    ndcg        sum of 1 / log2(place + 1) over hits, divided by what the best list of `k` would have (Järvelin and Kekäläinen 2002)
    mrr         1 / place of the first hit, 0 without one
    map         mean over hits of precision at their place, divided by min(k, held-out items) instead of the hits

    Args:
        hit: [users, length] bool, see `hits`.
        held: [users], held-out items of each, at least 1.

    Returns:
        name -> [users] float64.
    """
    hit = hit[:, :k]
    places = np.arange(1, k + 1)
    discounts = 1.0 / np.log2(places + 1)
    most = np.minimum(k, held)
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[most]
    places, discounts = places[:hit.shape[1]], discounts[:hit.shape[1]]  # a list may be shorter than k, what is asked of it not
    any_hit = hit.any(axis=1)
    first = np.where(any_hit, hit.argmax(axis=1) + 1, 1)
    precision = np.cumsum(hit, axis=1) / places
    return {
        "ndcg": (hit * discounts).sum(axis=1) / ideal,
        "hit_rate": any_hit.astype(np.float64),
        "recall": hit.sum(axis=1) / held,
        "mrr": any_hit / first,
        "map": (precision * hit).sum(axis=1) / most,
    }


def by_chance(held: np.ndarray, k: int, items: int) -> float:
    """Mean NDCG@k of lists in random order: [users] held-out items each, of `items` candidates."""
    discounts = 1.0 / np.log2(np.arange(1, min(k, items) + 1) + 1)
    ideal = np.cumsum(discounts)[np.minimum(held, len(discounts)) - 1]
    return float(np.mean(held / items * discounts.sum() / ideal))


def coverage(lists: np.ndarray, k: int, items: int) -> float:
    """Share of the catalogue that is in at least one list's first `k` places."""
    shown = np.unique(lists[:, :k])
    return float(np.sum(shown > 0) / items)


def novelty(lists: np.ndarray, k: int, counts: np.ndarray, events: int) -> np.ndarray:
    """Mean self-information of what is shown to each user, bits: -log2 of the item's share of the train events (Zhou et al. 2010).

    Args:
        counts: [1 + items], train events of each item; events: of all.
    """
    top = lists[:, :k]
    bits = -np.log2(np.maximum(counts, 1) / max(1, events))
    return np.where(top > 0, bits[top], 0.0).sum(axis=1) / np.maximum(1, (top > 0).sum(axis=1))


def popularity(lists: np.ndarray, k: int, counts: np.ndarray) -> np.ndarray:
    """Mean train events of what is shown to each user, [users] float64."""
    top = lists[:, :k]
    return np.where(top > 0, counts[top], 0).sum(axis=1) / np.maximum(1, (top > 0).sum(axis=1))


def gini(lists: np.ndarray, k: int, items: int) -> float:
    """How unequally the items of the catalogue are shown in the first `k` places: 0 all alike, near 1 one alone.

    Twice the area between the Lorenz curve of what is shown and the diagonal (Gini 1912), items that are never shown included.
    """
    shown = lists[:, :k]
    often = np.sort(np.bincount(shown[shown > 0], minlength=items + 1)[1:]).astype(np.float64)
    if not often.sum():
        return 0.0
    return float(2 * np.sum(np.arange(1, items + 1) * often) / (items * often.sum()) - (items + 1) / items)


def head(lists: np.ndarray, k: int, counts: np.ndarray) -> np.ndarray:
    """Share of what is shown to each user that is of the head: the tenth of the catalogue with the most train events; [users] float64."""
    order = np.argsort(-counts[1:], kind="stable")
    popular = np.zeros(len(counts), bool)
    popular[1 + order[:max(1, len(order) // 10)]] = True
    top = lists[:, :k]
    return (popular[top] & (top > 0)).sum(axis=1) / np.maximum(1, (top > 0).sum(axis=1))


PAIRS = 20_000  # compared at a time


def diversity(lists: np.ndarray, k: int, vectors: sparse.csc_matrix) -> np.ndarray:
    """1 less the mean cosine of two items that are shown together, [users] float64; 1 where fewer than two are (Ziegler et al. 2005).

    Args:
        vectors: [any, 1 + items], each item's of length 1 or 0, such as who had it in train.
    """
    top = np.sort(lists[:, :k], axis=1).astype(np.int64)
    first, second = np.triu_indices(top.shape[1], 1)
    pairs = top[:, first] * vectors.shape[1] + top[:, second]
    there = top[:, first] > 0
    every, place = np.unique(pairs[there], return_inverse=True)
    cosines = [np.asarray(vectors[:, part // vectors.shape[1]].multiply(vectors[:, part % vectors.shape[1]]).sum(axis=0)).ravel()
               for part in np.split(every, range(PAIRS, len(every), PAIRS))]
    found = np.zeros(pairs.shape)
    found[there] = np.concatenate([*cosines, np.zeros(0)])[place]
    return 1.0 - found.sum(axis=1) / np.maximum(1, there.sum(axis=1))
