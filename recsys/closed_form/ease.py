"""EASE (Steck 2019, arXiv:1905.03375), a linear model of items on items in closed form, at a rank that fits memory.

With the eigenvectors Q and eigenvalues e of X'X, P = (X'X + l2 I)^-1 is (I - Q diag(e / (e + l2)) Q') / l2, and EASE's weights are
I - P / diag(P) column by column. Off its diagonal, which is 0, that is a product of a vector for each item of the history and one for each
candidate; eigenvectors left out count as of eigenvalue 0. With as many as there are users or items it is EASE exactly.

Damped, X is U^-d X I^-d with the numbers of events of users U and items I: busy users count less, and l2 grows with an item's popularity.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from recsys.closed_form.histories import DECAY, DECAYS, Value, best, had, weighed
from recsys.data.catalogue import Histories
from recsys.settings import Ease

EXACT = 6_000  # users or items up to which eigenvectors are computed of X'X or XX' whole
ITERATIONS = 4  # power iterations of the random projection
LEADING = 50  # eigenvalues whose mean says how large l2 should be
SHARES, SHARE = (0.1, 0.2, 0.3, 0.5, 1.0), 0.3  # of that mean: tried for l2, and used where there is nobody to choose by
DAMPINGS, DAMPING = (0.0, 0.25), 0.125  # likewise
DOUBLE = 2_000  # up to which in float64, which takes twice the time
TINY = 1e-6


@dataclass(frozen=True)
class Spectrum:
    """The leading eigenvectors of X'X, and their eigenvalues.

    Attributes:
        vectors: [1 + items, rank] float32.
        values: [rank] float64, largest first.
        damping: of X.
        scale: [1 + items] float32, what X's columns were multiplied with.
    """

    vectors: np.ndarray
    values: np.ndarray
    damping: float
    scale: np.ndarray

    def sides(self, l2: float) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of items in a history and of candidates, each [1 + items, rank] float32."""
        kept = (self.values / (self.values + l2)).astype(np.float32)
        diagonal = np.maximum(1.0 - np.sum(self.vectors**2 * kept, axis=1), TINY)  # of l2 P
        return self.vectors * kept * self.scale[:, None], self.vectors / (self.scale * diagonal)[:, None]

    @property
    def leading(self) -> float:
        """Of which a good l2 is some share, whatever the size of the data."""
        return float(self.values[:LEADING].mean())


def decompose(train: sparse.csr_matrix, rank: int, damping: float, seed: int = 0) -> Spectrum:
    """Exact where users or items are few, else by random projection (Halko et al. 2011, arXiv:0909.4061).

    Args:
        train: [1 + users, 1 + items], 1 where the user had the item.
        rank: at most the smaller of users and items.
    """
    users, items = (np.maximum(np.asarray(train.sum(axis=axis)).ravel(), 1.0) ** -damping for axis in (1, 0))
    x = (sparse.diags(users) @ train.astype(np.float64) @ sparse.diags(items)).tocsr()
    scale = items.astype(np.float32)
    dual = x.shape[0] < x.shape[1]
    if min(x.shape) > EXACT:
        from sklearn.utils.extmath import randomized_svd

        _, singular, right = randomized_svd(x.astype(np.float32), rank, n_iter=ITERATIONS, random_state=seed)
        return Spectrum(right.T.astype(np.float32), singular.astype(np.float64) ** 2, damping, scale)
    gram = (x @ x.T if dual else x.T @ x).toarray()
    gram = gram.astype(np.float32) if len(gram) > DOUBLE else gram
    values, vectors = linalg.eigh(gram, subset_by_index=[len(gram) - rank, len(gram) - 1], overwrite_a=True, check_finite=False)
    values, vectors = np.maximum(values[::-1], 0.0).astype(np.float64), vectors[:, ::-1]
    if dual:
        vectors = (x.T @ vectors) / np.sqrt(np.maximum(values, TINY))
    return Spectrum(np.where(values > TINY, vectors, 0.0).astype(np.float32), values, damping, scale)


@dataclass(frozen=True)
class FittedEase:
    """Scores of histories.

    Attributes:
        settings: with what was chosen.
        history, candidates: [1 + items, rank] float32.
    """

    settings: Ease
    history: np.ndarray
    candidates: np.ndarray

    def __call__(self, rows: sparse.csr_matrix) -> np.ndarray:
        scores: np.ndarray = (weighed(rows, self.settings.decay or 0.0) @ self.history) @ self.candidates.T
        return scores


def fits(users: int, items: int) -> bool:
    """Whether it is fitted within half a minute or so."""
    return min(users, items) <= EXACT and users + items <= 50 * EXACT


def fit(histories: Histories, items: int, settings: Ease, value: Value | None, *, timely: bool, seed: int = 0) -> FittedEase:
    """With the l2, damping and decay that validation likes best: the decay where the others are chosen.

    Args:
        items: how many there are.
        value: of scores on validation; None: nobody chooses.
        timely: the events are in order, and the latest are held out: what holds where nobody chooses.
    """
    train = had(histories, items)
    usual = DECAY if timely else 0.0

    def tried() -> Iterator[FittedEase]:
        for damping in (settings.damping,) if settings.damping is not None else DAMPINGS if value else (DAMPING,):
            spectrum = decompose(train, min(settings.rank, *train.shape), damping, seed)
            shares = SHARES if value else (SHARE,)
            for l2 in (settings.l2,) if settings.l2 is not None else [share * spectrum.leading for share in shares]:
                decay = usual if settings.decay is None else settings.decay
                yield FittedEase(settings.model_copy(update={"l2": l2, "damping": damping, "decay": decay}), *spectrum.sides(l2))

    fitted = best(tried(), value)
    if value is None or settings.decay is not None:
        return fitted
    return best((FittedEase(fitted.settings.model_copy(update={"decay": decay}), fitted.history, fitted.candidates)
                 for decay in dict.fromkeys((usual, *DECAYS))), value)
