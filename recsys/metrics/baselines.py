"""What every recommendation report shows beside the model: popularity, item-item similarity, and EASE where it fits memory.

All are fitted on train alone, and answer from the same histories as the model, seen items excluded as for the model. Scores are float32.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from recsys.metrics.per_user import hits, per_user

USERS = 256  # scored at a time
LARGEST = 12_000  # the smaller of users and items up to which EASE is solved
CELLS = 1_500_000_000  # users x items (or items x items) of float32 that EASE may hold
PAIRS = 10_000_000_000  # pairs of items with a user in common, each as often as it has one, up to which item_knn is fitted: minutes
# histories [some, 1 + items] -> scores [some, 1 + items], sparse where most are 0 and none is less; or those [1 + items] of all users alike
Scores = Callable[[sparse.csr_matrix], np.ndarray | sparse.csr_matrix] | np.ndarray


def popularity(train: sparse.csr_matrix) -> np.ndarray:
    """Items by their train events, the same for all users: [1 + items] float32."""
    return np.asarray(train.sum(axis=0)).ravel().astype(np.float32)


def knn_fits(train: sparse.csr_matrix) -> bool:
    """Whether similarities of all items are computed in minutes."""
    return float(np.sum(np.diff(train.indptr).astype(np.float64) ** 2)) <= PAIRS


def item_knn(train: sparse.csr_matrix, neighbours: int) -> Scores:
    """Sum of cosine similarities to the items of the history (Sarwar et al. 2001), of each item the nearest `neighbours` kept."""
    norms = np.sqrt(np.asarray(train.multiply(train).sum(axis=0)).ravel())
    scaled = (train @ sparse.diags(1.0 / np.maximum(norms, 1e-12))).tocsr().astype(np.float32)
    transposed = scaled.T.tocsr()
    parts = []
    step = max(1, min(1024, 50_000_000 // max(1, train.shape[1])))
    for start in range(0, train.shape[1], step):
        block = (transposed[start : start + step] @ scaled).tocoo()
        other = block.col != start + block.row
        block = sparse.csr_matrix((block.data[other], (block.row[other], block.col[other])), shape=block.shape)
        for first, stop in pairwise(block.indptr.tolist()):
            if stop - first > neighbours:
                values = block.data[first:stop]
                values[values < np.partition(values, -neighbours)[-neighbours]] = 0.0
        block.eliminate_zeros()
        parts.append(block)
    similar = sparse.vstack(parts).T.tocsr()
    return lambda rows: rows.astype(np.float32) @ similar


def ease_fits(train: sparse.csr_matrix) -> bool:
    """Whether EASE can be solved in memory."""
    users, items = train.shape
    return min(users, items) <= LARGEST and min(users, items) * items <= CELLS


def ease(train: sparse.csr_matrix, l2: float) -> Scores:
    """Embarrassingly shallow autoencoder (Steck 2019, arXiv:1905.03375), exactly, in the smaller of its two forms.

    With P = (X'X + l2 I)^-1 the weights are I - P / diag(P) column by column. Where users are fewer than items, P is
    (I - X' M X) / l2 with M = (XX' + l2 I)^-1 (Woodbury), so that only users x users is inverted.
    """
    users, items = train.shape
    x = train.astype(np.float64)
    if users < items:
        inverse = np.linalg.inv((x @ x.T).toarray() + l2 * np.eye(users))
        mx = (train.astype(np.float32).T @ inverse.astype(np.float32).T).T  # M X, [users, items]
        diagonal = ((1.0 - np.asarray(x.multiply(mx).sum(axis=0)).ravel()) / l2).astype(np.float32)

        def dual(rows: sparse.csr_matrix) -> np.ndarray:
            dense = rows.toarray().astype(np.float32)
            product = (dense - (rows @ x.T).toarray().astype(np.float32) @ mx) / np.float32(l2)
            return dense - product / diagonal

        return dual
    inverse = np.linalg.inv((x.T @ x).toarray() + l2 * np.eye(items))
    weights = (-inverse / np.diag(inverse)).astype(np.float32)
    np.fill_diagonal(weights, 0.0)
    return lambda rows: rows.astype(np.float32) @ weights


def top(scores: Scores, rows: sparse.csr_matrix, seen: sparse.csr_matrix | None, k: int, allowed: np.ndarray) -> np.ndarray:
    """The `k` best items of each user: [users, k] int32, 0 where there are no more; of equal scores the lower number goes first.

    Args:
        rows: histories [users, 1 + items].
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


def ndcg(scores: Scores, users: Mapping[str, Any], k: int, allowed: np.ndarray) -> float:
    """Mean NDCG@k.

    Args:
        users: rows, seen (see `top`), held_users, held_items (see `metrics.hits`), held [users].
    """
    lists = top(scores, users["rows"], users["seen"], k, allowed)
    hit = hits(lists, users["held_users"], users["held_items"], len(allowed) - 1)
    return float(np.mean(per_user(hit, users["held"], k)["ndcg"]))


def best_ease(train: sparse.csr_matrix, choices: list[float], validation: Mapping[str, Any] | None, k: int, allowed: np.ndarray,
              ) -> tuple[float, Scores]:
    """EASE with the l2 that has the best NDCG@k on validation users (see `ndcg`), or the first where there are none."""
    if validation is None or len(choices) == 1:
        return choices[0], ease(train, choices[0])
    best, chosen, kept = -1.0, choices[0], None
    for l2 in choices:
        scores = ease(train, l2)
        value = ndcg(scores, validation, k, allowed)
        if value > best:
            best, chosen, kept = value, l2, scores
    assert kept is not None
    return chosen, kept
