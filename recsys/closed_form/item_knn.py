"""Items that users had together (Sarwar et al. 2001), or one after another: of each item of a history the nearest others count.

In no order, the similarity of two items is the cosine of who had them. In order, an event counts for those that follow it within WINDOW
events of its user, 1 / distance each, and BACK of that for those before it: what comes next, as in sequential rules (Ludewig and Jannach
2018, arXiv:1803.09587). Both are shrunk, so that few common users say little.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from recsys.closed_form.histories import DECAY, DECAYS, Value, best, had, weighed
from recsys.data.catalogue import Histories
from recsys.settings import ItemKnn

WINDOW, BACK = 20, 0.3
FROM = 0.75  # in order, events of the item of the history to this power divide, those of the candidate to 1 less it; else 0.5 both
RECENCIES, PRIORS, LIVES = (0.0, 0.5, 1.0), (0.0, 0.1, 0.3, 1.0, 3.0, 10.0), 16  # tried; and the half-lives where nobody chooses
PAIRS = 10_000_000_000  # pairs of items with a user in common, each as often as it has one, up to which cosines are computed: minutes


@dataclass(frozen=True)
class FittedKnn:
    """Scores of histories.

    Attributes:
        settings: with what was chosen.
        similar: [1 + items, 1 + items] float32, from an item of a history (row) to the nearest candidates; from 0, which every history
            has once, to what is popular of late.
    """

    settings: ItemKnn
    similar: sparse.csr_matrix

    def __call__(self, rows: sparse.csr_matrix) -> sparse.csr_matrix:
        there = np.flatnonzero(np.diff(rows.indptr))
        once = sparse.csr_matrix((np.ones(len(there), np.float32), (there, np.zeros(len(there), np.int64))), shape=rows.shape)
        return (weighed(rows, self.settings.decay or 0.0) + once) @ self.similar

    def lists(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(nearest items [1 + items, width] int32, their similarities float32); 0 fills up. Width: neighbours, or more."""
        counts = np.diff(self.similar.indptr)
        rows = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(rows)) - np.repeat(self.similar.indptr[:-1], counts)
        items, values = np.zeros((len(counts), width), np.int32), np.zeros((len(counts), width), np.float32)
        items[rows, places], values[rows, places] = self.similar.indices, self.similar.data
        return items, values


def fits(histories: Histories) -> bool:
    """Whether the cosines of all items are computed in minutes."""
    return float(np.sum(histories.counts().astype(np.float64) ** 2)) <= PAIRS


def fit(histories: Histories, items: int, settings: ItemKnn, value: Value | None, *, timely: bool,
        late: Mapping[int, np.ndarray] | None = None) -> FittedKnn:
    """The nearest items of each, in the order and with the decay, then the recency, then the prior that validation likes best.

    Args:
        items: how many there are.
        value: of scores on validation; None: nobody chooses.
        timely: the events are in order, and the latest are held out: what holds where nobody chooses.
        late: half-lives in the time of train -> popularity of late, [1 + items]; None: no times are known.
    """
    orders: tuple[bool, ...] = (settings.ordered,) if settings.ordered is not None else (False, True) if value else (timely,)
    if settings.ordered is None and not fits(histories):
        orders = (True,)

    def tried() -> Iterator[FittedKnn]:
        for ordered in orders:
            similar = similarities(histories, items, settings.neighbours, shrink=settings.shrink, ordered=ordered)
            usual = DECAYS if value else (DECAY if timely else 0.0,)
            for decay in (settings.decay,) if settings.decay is not None else usual:
                yield FittedKnn(settings.model_copy(update={"ordered": ordered, "decay": decay}), similar)

    recent = best(_of_late(best(tried(), value), histories, items, settings, bool(value), late or {}), value)
    return best(_beside(recent, settings, bool(value), late or {}), value)


def _of_late(fitted: FittedKnn, histories: Histories, items: int, settings: ItemKnn, chosen: bool, late: Mapping[int, np.ndarray],
             ) -> Iterator[FittedKnn]:
    """`fitted`, its candidates counting by how much more popular they are of late than on the whole, each way that is to be tried."""
    powers = (settings.recency,) if settings.recency is not None else RECENCIES if chosen else (0.0,)
    if 0.0 in powers or not late:
        yield FittedKnn(fitted.settings.model_copy(update={"recency": 0.0}), fitted.similar)
    counts = np.bincount(histories.items, minlength=items + 1).astype(np.float64)
    total = max(1.0, counts.sum())
    lives = (settings.half_lives,) if settings.half_lives is not None else tuple(late) if chosen else (LIVES,)
    for power, many in ((power, many) for power in powers for many in lives if power and late):
        share = late[many] / max(late[many].sum(), 1e-30)
        similar = fitted.similar.copy()
        similar.data *= (((share + 1.0 / total) / (counts / total + 1.0 / total)) ** power).astype(np.float32)[similar.indices]
        yield FittedKnn(fitted.settings.model_copy(update={"recency": power, "half_lives": many}), similar)


def _beside(fitted: FittedKnn, settings: ItemKnn, chosen: bool, late: Mapping[int, np.ndarray]) -> Iterator[FittedKnn]:
    """`fitted` with what is popular of late beside its similarities, each way that is to be tried."""
    shares = (settings.prior,) if settings.prior is not None else PRIORS if chosen else (0.0,)
    if 0.0 in shares or not late:
        yield FittedKnn(fitted.settings.model_copy(update={"prior": 0.0}), fitted.similar)
    most = fitted.similar.max(axis=1).toarray()
    usual = float(np.median(most[most > 0])) if (most > 0).any() else 1.0
    lives = (fitted.settings.half_lives,) if fitted.settings.half_lives is not None else tuple(late) if chosen else (LIVES,)
    for share, many in ((share, many) for share in shares for many in lives if share and late):
        first = np.argsort(-late[many], kind="stable")[:settings.neighbours]
        first = first[(first > 0) & (late[many][first] > 0)]
        values = (share * usual * late[many][first] / late[many].max()).astype(np.float32)
        row = sparse.csr_matrix((values, (np.zeros(len(first), np.int64), first)), shape=(1, fitted.similar.shape[1]))
        yield FittedKnn(fitted.settings.model_copy(update={"prior": share, "half_lives": many}),
                        sparse.vstack([row, fitted.similar[1:]]).tocsr())


def similarities(histories: Histories, items: int, neighbours: int, *, shrink: float, ordered: bool) -> sparse.csr_matrix:
    """[1 + items, 1 + items] float32: of each item (row) the most similar others, at most `neighbours`."""
    train = had(histories, items)
    counts = np.asarray(train.sum(axis=0)).ravel()
    power = FROM if ordered else 0.5
    own, other = np.maximum(counts, 1.0) ** power, np.maximum(counts, 1.0) ** (1.0 - power)
    together = _following(histories, items) if ordered else train.T.tocsr()
    step = max(1, min(1024, 50_000_000 // (items + 1)))
    parts = []
    for start in range(0, items + 1, step):
        block = (together[start:start + step] if ordered else together[start:start + step] @ train).tocoo()
        values = block.data / (own[start + block.row] * other[block.col] + shrink)
        kept = block.col != start + block.row
        nearest = sparse.csr_matrix((values[kept].astype(np.float32), (block.row[kept], block.col[kept])), shape=block.shape)
        for first, stop in pairwise(nearest.indptr.tolist()):
            if stop - first > neighbours:
                one = nearest.data[first:stop]
                one[np.argsort(-one, kind="stable")[neighbours:]] = 0.0
        nearest.eliminate_zeros()
        parts.append(nearest)
    return sparse.vstack(parts).tocsr()


def _following(histories: Histories, items: int) -> sparse.csr_matrix:
    """[1 + items, 1 + items] float32: how often, and how closely, the second item came after the first, and BACK of that before it."""
    users = np.repeat(np.arange(len(histories.offsets) - 1), histories.counts())
    there = histories.items > 0
    users, numbers = users[there], histories.items[there]
    shape = (items + 1, items + 1)
    total = sparse.csr_matrix(shape, dtype=np.float32)
    for distance in range(1, WINDOW + 1):
        same = users[distance:] == users[:-distance]
        first, second = numbers[:-distance][same], numbers[distance:][same]
        total += sparse.csr_matrix((np.full(len(first), 1.0 / distance, np.float32), (first, second)), shape=shape)
    return (total + BACK * total.T).tocsr()
