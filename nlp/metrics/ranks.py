"""How high the text that belongs to another one stands among all of a split."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTH = 10
BLOCK = 512  # texts compared at once
METRICS = (f"mrr@{DEPTH}", f"ndcg@{DEPTH}", f"recall@{DEPTH}", "recall@1")
Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ranks(similarity: Similarity, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair's first text, where its second one stands among the second texts of all pairs, from 1, [n] int64; and the pair whose
    second text stands highest of the others, [n] int64, or its own where there is no other. Equal texts stand there once; those that
    belong to the same first text are no mistakes, and are left out. Of ties half stand before.

    Args:
        similarity: numbers of some first texts [m], numbers of some second texts [k] -> how alike they are, [m, k].
        first, second: [n] int64, the number of each text; equal texts have the same.
    """
    _, chosen, place = np.unique(second, return_index=True, return_inverse=True)
    together = set(zip(first.tolist(), place.tolist()))
    of_first = dict[int, list[int]]()
    for one, other in sorted(together):
        of_first.setdefault(one, []).append(other)
    found, best = np.zeros(len(first), np.int64), np.arange(len(first))
    for start in range(0, len(first), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(first)))
        alike = np.array(similarity(rows, chosen), np.float32)
        own = alike[np.arange(len(rows)), place[rows]]
        for row, number in enumerate(rows.tolist()):
            alike[row, of_first[int(first[number])]] = -np.inf
        ties = (alike == own[:, None]).sum(1)
        found[rows] = 1 + (alike > own[:, None]).sum(1) + (ties + 1) // 2
        top = alike.argmax(1)
        best[rows] = np.where(np.isfinite(alike[np.arange(len(rows)), top]), chosen[top], rows)
    return found, best


def of_ranks(found: np.ndarray) -> dict[str, np.ndarray]:
    """Each of METRICS of each text, [n] float64. With one right text nDCG is 1 / log2(1 + rank) (Järvelin and Kekäläinen 2002)."""
    inside = found <= DEPTH
    values: tuple[Any, ...] = (inside / found, inside / np.log2(1.0 + found), inside, found == 1)
    return {name: np.asarray(value, np.float64) for name, value in zip(METRICS, values)}


def figure(found: np.ndarray, most: int = 1_000) -> "Figure":
    """The share of texts that stand among the first so many."""
    places = np.arange(1, 1 + max(DEPTH, min(most, int(found.max(initial=1)))))
    with figures.style():
        drawn = figures.new_figure(5.0, 3.5)
        axis = drawn.add_subplot()
        axis.plot(places, np.searchsorted(np.sort(found), places, side="right") / max(1, len(found)))
        axis.set(xscale="log", xlabel="first so many", ylabel="share found", ylim=(0.0, 1.02), xlim=(1, places[-1]))
        axis.yaxis.set_major_formatter("{x:.0%}")
    return drawn
