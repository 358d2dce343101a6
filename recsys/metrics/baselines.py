"""Lists from the scores of histories, by what is fitted at once: a report's baselines; and how good they are, which chooses settings.

They answer from the same histories as the model, seen items excluded as for the model. Scores are float32.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from recsys.closed_form.histories import Scores
from recsys.metrics.per_user import hits, per_user

USERS = 256  # scored at a time


def top(scores: Scores | np.ndarray, rows: sparse.csr_matrix, seen: sparse.csr_matrix | None, k: int, allowed: np.ndarray) -> np.ndarray:
    """The `k` best items of each user: [users, k] int32, 0 where there are no more; of equal scores the lower number goes first.

    Args:
        scores: of histories, or those [1 + items] of all users alike.
        rows: histories [users, 1 + items], see `closed_form.histories.ages`.
        seen: what is no candidate, [users, 1 + items].
        allowed: [1 + items] bool.
    """
    order = _best(scores, allowed) if isinstance(scores, np.ndarray) else None
    lists = []
    for start in range(0, rows.shape[0], USERS):
        part = seen[start : start + USERS].tocsr() if seen is not None else None
        if order is not None:
            lists.append(_first(order, rows[start : start + USERS].shape[0], part, k, len(allowed)))
            continue
        values = scores(rows[start : start + USERS])  # type: ignore[operator]
        lists.append((_top_of_sparse if sparse.issparse(values) else _top_of_dense)(values, part, k, allowed))
    return np.concatenate(lists) if lists else np.zeros((0, k), np.int32)


HALF_LIVES = (4, 16, 64, 256)  # how many times an event loses half of its weight within the time of train: tried for what is recent


def recent(items: np.ndarray, times: np.ndarray, count: int, half_life: float) -> np.ndarray:
    """Popularity of late, [1 + count] float32: an event counts half for every `half_life` (s, above 0) that it is older than the newest."""
    weights = np.exp2((times - times.max(initial=-np.inf)) / half_life)
    return np.bincount(items, weights=weights, minlength=count + 1).astype(np.float32)


def _best(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """All allowed items, best first."""
    order = np.argsort(-scores, kind="stable")
    return order[allowed[order]].astype(np.int32)


def _first(order: np.ndarray, users: int, seen: sparse.csr_matrix | None, k: int, items: int) -> np.ndarray:
    """Of each user the first `k` of one order that were not seen: [users, k] int32."""
    most = int(np.diff(seen.indptr).max(initial=0)) if seen is not None else 0
    head = order[: k + most]
    place = np.full(items, len(head))
    place[head] = np.arange(len(head))
    free = np.ones((users, len(head) + 1), bool)
    if seen is not None:
        free[np.repeat(np.arange(users), np.diff(seen.indptr)), place[seen.indices]] = False
    free = free[:, :-1]
    rank = np.cumsum(free, axis=1)
    user, where = np.nonzero(free & (rank <= k))
    lists = np.zeros((users, k), np.int32)
    lists[user, rank[user, where] - 1] = head[where]
    return lists


def _top_of_sparse(values: sparse.csr_matrix, seen: sparse.csr_matrix | None, k: int, allowed: np.ndarray) -> np.ndarray:
    """As `_top_of_dense`; users with `k` candidates above 0 cost what they have, not the catalogue."""
    left = values.tocsr(copy=True)
    left.data[~allowed[left.indices]] = 0.0
    if seen is not None:
        left = (left - left.multiply(seen > 0)).tocsr()
    left.eliminate_zeros()
    lists = np.zeros((left.shape[0], k), np.int32)
    few = np.diff(left.indptr) < k
    for row in np.flatnonzero(~few):
        start, stop = left.indptr[row : row + 2]
        items = left.indices[start:stop]
        lists[row] = items[np.lexsort((items, -left.data[start:stop]))[:k]]
    if few.any():
        lists[few] = _top_of_dense(values[few].toarray(), seen[few] if seen is not None else None, k, allowed)
    return lists


def _top_of_dense(values: np.ndarray, seen: sparse.csr_matrix | None, k: int, allowed: np.ndarray) -> np.ndarray:
    """The `k` best of each row [rows, k] int32 among those that are allowed and not seen; of equal ones the lower place goes first."""
    values = np.array(values, np.float32)
    values[:, ~allowed] = -np.inf
    if seen is not None:
        values[np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr)), seen.indices] = -np.inf
    return _top_of(values, k)


def _top_of(values: np.ndarray, k: int) -> np.ndarray:
    """The places of the `k` largest of each row, [rows, k] int32: largest first, of equal ones the lower place, 0 for -inf."""
    width = values.shape[1]
    count = min(k, width)
    if count < width:
        chosen = np.argpartition(values, width - count, axis=1)[:, width - count :]
        bound = np.take_along_axis(values, chosen[:, :1], 1)
        # where more than fit are equal to the last, any of them may have been chosen
        for row in np.flatnonzero((np.sum(values >= bound, axis=1) > count) & np.isfinite(bound[:, 0])):
            above = np.flatnonzero(values[row] > bound[row])
            chosen[row] = np.concatenate([above, np.flatnonzero(values[row] == bound[row])[: count - len(above)]])
    else:
        chosen = np.tile(np.arange(width), (len(values), 1))
    chosen.sort(axis=1)
    best = np.take_along_axis(values, chosen, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    chosen, best = np.take_along_axis(chosen, order, axis=1), np.take_along_axis(best, order, axis=1)
    return np.pad(np.where(np.isfinite(best), chosen, 0).astype(np.int32), ((0, 0), (0, k - count)))


def ndcg(scores: Scores | np.ndarray, users: Mapping[str, Any], k: int, allowed: np.ndarray) -> float:
    """Mean NDCG@k.

    Args:
        users: rows, seen (see `top`), held_users, held_items (see `metrics.hits`), held [users].
    """
    lists = top(scores, users["rows"], users["seen"], k, allowed)
    hit = hits(lists, users["held_users"], users["held_items"], len(allowed) - 1)
    return float(np.mean(per_user(hit, users["held"], k)["ndcg"]))
