"""Ridge regression on tf-idf features of tokens: the baseline of numbers that belong to texts, and of them the model `linear`."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from scipy import sparse

from nlp.models.bag import rarity
from nlp.models.linear import FOLDS, Fitted, counted, weighed
from nlp.tokens.base import Tokenizer
from pipelines.fitting.folds import folds

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the regularisation
CHOOSING = 5_000  # texts on which it is chosen, at most
TOLERANCE = 1e-3  # of the solver


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
    tried = []
    for strength in STRENGTHS:
        held = np.empty_like(truth[some])
        for number in range(fold.max() + 1):
            rows, border = _solved(texts[some[fold != number]], truth[some[fold != number]], strength)
            held[fold == number] = texts[some[fold == number]] @ rows + border
        tried.append((float(np.square(held - truth[some]).mean()), strength))
    loss, strength = min(tried)
    rows, border = _solved(texts, truth, strength)
    how = (f"ridge {strength:g} was chosen on train, held out in {fold.max() + 1} folds "
           f"(R squared {1.0 - loss / max(float(truth[some].var(0).mean()), 1e-12):.3g})")
    return Fitted(weights, letters, known, rows.astype(np.float32), border.astype(np.float32), how)


def _solved(texts: sparse.csr_matrix, truth: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [width, columns] and what is added [columns]."""
    from sklearn.linear_model import Ridge

    mean = truth.mean(0)
    fitted = Ridge(alpha=strength, solver="sparse_cg", tol=TOLERANCE).fit(texts, truth - mean)
    rows = np.asarray(fitted.coef_).reshape(truth.shape[1], -1).T
    return rows, mean + np.reshape(fitted.intercept_, -1)
