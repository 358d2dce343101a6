"""Ratings as mean, biases and the product of a user's and an item's factors, by alternating least squares.

What the biases leave over is factorised with a penalty l2 on all factors (Koren, Bell and Volinsky 2009, "Matrix factorization techniques
for recommender systems"): with one side fixed, each vector of the other is a ridge regression.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from recsys.closed_form import biases
from recsys.closed_form.biases import Biases
from recsys.settings import Factors

ROUNDS = 8
L2S, L2 = (40.0, 20.0, 10.0, 5.0, 2.5), 20.0  # tried from strong to weak until validation likes none better; and used without validation
BLOCK = 8_192  # users or items whose regressions are solved together
Rated = tuple[np.ndarray, np.ndarray, np.ndarray]  # users, items from 1 (0: unknown) and ratings, [n] each


@dataclass(frozen=True)
class FittedFactors:
    """Ratings of users and items.

    Attributes:
        settings: with what was chosen.
        biases: mean and biases.
        user, item: [1 + users, rank] and [1 + items, rank] float64; 0 for the unknown.
        low, high: the lowest and the highest rating learned from; none beyond is answered.
    """

    settings: Factors
    biases: Biases
    user: np.ndarray
    item: np.ndarray
    low: float
    high: float

    def __call__(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """[n] float64."""
        products = np.concatenate([np.einsum("nr,nr->n", self.user[users[start:start + 2**20]], self.item[items[start:start + 2**20]])
                                   for start in range(0, len(users), 2**20)] or [np.zeros(0)])
        return np.clip(self.biases(users, items) + products, self.low, self.high)


def fit(train: Rated, users: int, items: int, settings: Factors, validation: Rated | None, seed: int = 0) -> FittedFactors:
    """With the l2 whose squared error on validation is the least; l2 is in units of the standard deviation that the biases leave over.

    Args:
        users, items: how many there are.
    """
    fitted = biases.fit(*train, users, items)
    rest = np.asarray(train[2], np.float64) - fitted(*train[:2])
    low, high = float(np.min(train[2])), float(np.max(train[2]))
    known = (train[0] > 0) & (train[1] > 0)
    matrix = sparse.csr_matrix((rest[known], (train[0][known], train[1][known])), shape=(users + 1, items + 1))
    best, least = None, np.inf
    for l2 in (settings.l2,) if settings.l2 is not None else (L2S if validation is not None else (L2,)):
        user, item = factorise(matrix, settings.rank, l2 * max(float(rest.std()), 1e-12), seed)
        one = FittedFactors(settings.model_copy(update={"l2": l2}), fitted, user, item, low, high)
        error = float(np.mean((one(*validation[:2]) - validation[2]) ** 2)) if validation is not None else 0.0
        if error > least:
            break
        best, least = one, error
    assert best is not None
    return best


def factorise(matrix: sparse.csr_matrix, rank: int, l2: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors of rows [rows, rank] and columns [columns, rank], whose products are near the entries that are there, 0 among them."""
    turned = matrix.T.tocsr()
    columns = np.random.default_rng(seed).normal(0.0, 0.1, (matrix.shape[1], rank))
    for _ in range(ROUNDS):
        rows = _regressed(matrix, columns, l2)
        columns = _regressed(turned, rows, l2)
    return rows, columns


def _regressed(matrix: sparse.csr_matrix, others: np.ndarray, l2: float) -> np.ndarray:
    """[rows, rank] of the ridge regressions of each row's entries on the factors `others` [columns, rank]."""
    rank = others.shape[1]
    upper = np.triu_indices(rank)
    there = sparse.csr_matrix((np.ones_like(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
    products = others[:, upper[0]] * others[:, upper[1]]
    solved = np.zeros((matrix.shape[0], rank))
    for start in range(0, matrix.shape[0], BLOCK):
        rows = slice(start, start + BLOCK)
        grams = there[rows] @ products
        whole = np.zeros((len(grams), rank, rank))
        whole[:, upper[0], upper[1]] = grams
        whole[:, upper[1], upper[0]] = grams
        whole[:, np.arange(rank), np.arange(rank)] += l2
        solved[rows] = np.linalg.solve(whole, (matrix[rows] @ others)[..., None])[..., 0]
    return solved
