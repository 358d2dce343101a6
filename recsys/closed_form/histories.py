"""Histories as matrices of users by items, what an item of a history weighs by its age, and how settings are chosen."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from recsys.data.catalogue import Histories

# histories of `ages` -> scores [users, 1 + items], sparse where most are 0 and none is less
Scores = Callable[[sparse.csr_matrix], np.ndarray | sparse.csr_matrix]
Value = Callable[[Any], float]  # how good scores, or those of all users alike, are on validation: the larger the better
Fitted = TypeVar("Fitted", bound=Scores)

DECAYS, DECAY = (0.0, 0.5, 1.0), 0.75  # tried; and used for events in order of time where there is no validation to choose by


def had(histories: Histories, items: int) -> sparse.csr_matrix:
    """[1 + users, 1 + items] float32, 1 where the user had the item; the unknown item is left out."""
    users = np.repeat(np.arange(len(histories.offsets) - 1), histories.counts())
    there = histories.items > 0
    matrix = sparse.csr_matrix((np.ones(int(there.sum()), np.float32), (users[there], histories.items[there])),
                               shape=(len(histories.offsets) - 1, items + 1))
    matrix.data[:] = 1.0
    return matrix


def ages(rows: np.ndarray, columns: np.ndarray, users: int, items: int) -> sparse.csr_matrix:
    """[users, 1 + items] float32: how many of the user's events ago the item came last, 1 for the latest event; 0 where it is not there.

    Args:
        rows, columns: [n] user and item of each event, sorted by user, each user's oldest first; items that are 0 or less do not count.
    """
    there = columns > 0
    rows, columns = rows[there], columns[there]
    age = np.cumsum(np.bincount(rows, minlength=users))[rows] - np.arange(len(rows))
    pairs = rows.astype(np.int64) * (items + 1) + columns
    _, latest = np.unique(pairs[::-1], return_index=True)
    latest = len(rows) - 1 - latest
    return sparse.csr_matrix((age[latest].astype(np.float32), (rows[latest], columns[latest])), shape=(users, items + 1))


def weighed(rows: sparse.csr_matrix, decay: float) -> sparse.csr_matrix:
    """`ages` as weights: to minus the power `decay`."""
    return sparse.csr_matrix((rows.data**-decay, rows.indices, rows.indptr), shape=rows.shape)


def best(tried: Iterable[Fitted], value: Value | None) -> Fitted:
    """The one that validation likes best, of equal ones the first; the first where there is no validation."""
    return max(tried, key=value) if value is not None else next(iter(tried))
