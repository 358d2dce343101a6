"""Ridge regression on tf-idf features of tokens: the baseline of numbers that belong to texts, and of them the model `linear`."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from nlp.models.bag import rarity
from nlp.models.linear import FOLDS, Fitted, counted, weighed
from nlp.tokens.base import Tokenizer
from pipelines.fitting.folds import folds
from pipelines.fitting.kernel import held_out

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the regularisation
CHOOSING = 2_000  # texts on which it is chosen, at most
FEW = 4_000  # texts up to which a system of equations of their number is solved
TOLERANCE = 1e-3  # of the solver for more


def fit(batches: Iterable[tuple[tf.Tensor, np.ndarray]], tokenizer: Tokenizer, *, groups: np.ndarray | None = None,
        seed: int = 0) -> Fitted:
    """Fits all texts.

    Args:
        batches: (token numbers [n, time], numbers [n, columns] float) of train.
        tokenizer: by which they were cut.
        groups: [texts], of those that are held out together; None: each by itself.
    """
    size, letters = tokenizer.size, tokenizer.letters
    parts = [(counted(ids, size), numbers) for ids, numbers in batches]
    counts, truth = sparse.vstack([part[0] for part in parts], format="csr"), np.concatenate([part[1] for part in parts])
    weights = rarity(np.bincount(counts.indices, minlength=size), counts.shape[0])
    known = np.flatnonzero(weights)
    texts = weighed(counts, weights, letters)[:, known]
    some = np.arange(len(truth)) if len(truth) <= CHOOSING else np.random.default_rng(seed).choice(len(truth), CHOOSING, replace=False)
    fold = folds(None, None if groups is None else groups[some], len(some), seed, FOLDS)
    mean = truth.mean(0)
    wanted, tried = (truth - mean)[some], []
    with threadpool_limits(1, user_api="blas"):  # as in pipelines.fitting.kernel
        alike = (texts[some] @ texts[some].T).toarray()
        for strength in STRENGTHS:
            tried.append((float(np.square(held_out(alike, wanted, strength, fold) - wanted).mean()), strength))
        loss, strength = min(tried)
        rows = _solved(texts, truth - mean, strength)
    how = (f"ridge {strength:g} was chosen on train, held out in {fold.max() + 1} folds "
           f"(R squared {1.0 - loss / max(float(np.square(wanted).mean()), 1e-12):.3g})")
    return Fitted(weights, letters, known, rows.astype(np.float32), mean.astype(np.float32), how)


def _solved(texts: sparse.csr_matrix, wanted: np.ndarray, strength: float) -> np.ndarray:
    """Weights [width, columns]; of few texts by their products with one another, of which there are fewer than features."""
    if texts.shape[0] <= FEW:
        alike = (texts @ texts.T).toarray()
        alike[np.diag_indices_from(alike)] += strength
        return np.asarray(texts.T @ cho_solve(cho_factor(alike, lower=True, overwrite_a=True), wanted))
    from sklearn.linear_model import Ridge

    fitted = Ridge(alpha=strength, solver="sparse_cg", tol=TOLERANCE, fit_intercept=False).fit(texts, wanted)
    return np.asarray(fitted.coef_).reshape(wanted.shape[1], -1).T
