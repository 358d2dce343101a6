"""What every recommendation report shows beside the model: popularity, item-item similarity, and EASE where it fits memory.

All are fitted on train alone, and answer from the same histories as the model, seen items excluded as for the model.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from recsys.metrics import hits, per_user

USERS = 256  # scored at a time
LARGEST = 12_000  # the smaller of users and items up to which EASE is solved
CELLS = 1_500_000_000  # users x items (or items x items) of float32 that EASE may hold
Scores = Callable[[sparse.csr_matrix], np.ndarray]  # histories [some, 1 + items] -> scores [some, 1 + items]


def popularity(train: sparse.csr_matrix) -> Scores:
    """Items by their train events, the same for all users."""
    counts = np.asarray(train.sum(axis=0)).ravel().astype(np.float32)
    return lambda rows: np.tile(counts, (rows.shape[0], 1))


def item_knn(train: sparse.csr_matrix, neighbours: int) -> Scores:
    """Sum of cosine similarities to the items of the history (Sarwar et al. 2001), of each item the nearest `neighbours` kept."""
    norms = np.sqrt(np.asarray(train.multiply(train).sum(axis=0)).ravel())
    scaled = (train @ sparse.diags(1.0 / np.maximum(norms, 1e-12))).tocsc().astype(np.float32)
    transposed = scaled.T.tocsr()
    parts = []
    step = max(1, min(1024, 50_000_000 // max(1, train.shape[1])))
    for start in range(0, train.shape[1], step):
        block = (transposed[start : start + step] @ scaled).toarray()
        rows = np.arange(len(block))
        block[rows, start + rows] = 0.0
        if neighbours < block.shape[1]:
            bound = np.partition(block, -neighbours, axis=1)[:, -neighbours][:, None]
            block[block < bound] = 0.0
        parts.append(sparse.csr_matrix(block))
    similar = sparse.vstack(parts).tocsr()
    return lambda rows: (rows @ similar.T).toarray()


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
        mx = (x.T @ inverse.T).T.astype(np.float32)  # M X, [users, items]
        diagonal = (1.0 - np.asarray(x.multiply(mx).sum(axis=0)).ravel()) / l2

        def dual(rows: sparse.csr_matrix) -> np.ndarray:
            rows = rows.astype(np.float64)
            product = (rows.toarray() - (rows @ x.T).toarray() @ mx) / l2
            return rows.toarray() - product / diagonal

        return dual
    inverse = np.linalg.inv((x.T @ x).toarray() + l2 * np.eye(items))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return lambda rows: rows.astype(np.float64) @ weights


def top(scores: Scores, rows: sparse.csr_matrix, seen: sparse.csr_matrix | None, k: int, allowed: np.ndarray) -> np.ndarray:
    """The `k` best items of each user: [users, k] int32, 0 where there are no more; of equal scores the lower number goes first.

    Args:
        rows: histories [users, 1 + items].
        seen: what is no candidate, [users, 1 + items].
        allowed: [1 + items] bool.
    """
    found = []
    for start in range(0, rows.shape[0], USERS):
        values = np.asarray(scores(rows[start : start + USERS]), np.float64)
        values[:, ~allowed] = -np.inf
        if seen is not None:
            part = seen[start : start + USERS].tocoo()
            values[part.row, part.col] = -np.inf
        count = min(k, values.shape[1])
        order = np.argsort(-values, axis=1, kind="stable")[:, :count]
        best = np.take_along_axis(values, order, axis=1)
        order = np.where(np.isfinite(best), order, 0).astype(np.int32)
        found.append(np.pad(order, ((0, 0), (0, k - count))))
    return np.concatenate(found) if found else np.zeros((0, k), np.int32)


def best_ease(
    train: sparse.csr_matrix,
    choices: list[float],
    validation: dict[str, Any] | None,
    k: int,
    allowed: np.ndarray,
) -> tuple[float, Scores]:
    """EASE with the l2 that has the best NDCG@k on validation users, or the first where there are none.

    Args:
        validation: rows, seen (see `top`), held_users, held_items (see `metrics.hits`), held [users].
    """
    if validation is None or len(choices) == 1:
        return choices[0], ease(train, choices[0])
    best, found, kept = -1.0, choices[0], None
    for l2 in choices:
        scores = ease(train, l2)
        lists = top(scores, validation["rows"], validation["seen"], k, allowed)
        value = float(
            np.mean(
                per_user(hits(lists, validation["held_users"], validation["held_items"], train.shape[1] - 1), validation["held"], k)["ndcg"]
            )
        )
        if value > best:
            best, found, kept = value, l2, scores
    assert kept is not None
    return found, kept
