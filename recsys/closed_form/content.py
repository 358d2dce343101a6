"""Items like those of the history by their columns alone: what a model that learns from them has to beat, also for items nobody had yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from recsys.closed_form.histories import DECAY, DECAYS, Value, best, weighed


@dataclass
class Content:
    """Scores of histories: the cosine of the sum of the history's items and each candidate, a mean over the kinds of columns.

    Attributes:
        kinds: [1 + items, any] each, rows of length 1, or 0 of items of which nothing is said: the values of categories and lists, weighed
            by how rare they are (Salton and Buckley 1988), and each column of vectors.
        decay: see `ClosedForm.decay`.
    """

    kinds: list[sparse.csr_matrix | np.ndarray]
    decay: float

    def __call__(self, rows: sparse.csr_matrix) -> np.ndarray:
        """[users, 1 + items] float32; see `Scores`."""
        weights, total = weighed(rows, self.decay), np.zeros(rows.shape, np.float32)
        for kind in self.kinds:
            scores = _unit(weights @ kind) @ kind.T
            total += (scores.toarray() if sparse.issparse(scores) else scores) / len(self.kinds)
        return total


def fit(facts: Sequence[Mapping[str, Any]], features: Mapping[str, np.ndarray], counts: np.ndarray, value: Value | None, *,
        timely: bool) -> Content | None:
    """With the decay that validation likes best; None where no category, list or vector says anything of items.

    Args:
        facts: of the feature columns; features: those of items, as `entity_arrays` gives them.
        counts: [1 + items] train events: how rare a value is, is learned from what train has.
        value, timely: as `item_knn.fit` takes them.
    """
    known = {one["name"]: one["kind"] for one in facts if one["of"] == "item"}
    kinds: list[sparse.csr_matrix | np.ndarray] = [_unit(values) for name, values in features.items() if known.get(name) == "vector"]
    texts = [_values(values) for name, values in features.items() if known.get(name) in ("category", "list")]
    if texts:
        every = sparse.hstack(texts, format="csr")
        often = np.asarray((every[counts > 0] > 0).sum(axis=0)).ravel()
        rare = np.log((1.0 + np.sum(counts > 0)) / (1.0 + often)) + 1.0
        kinds.append(_unit((every @ sparse.diags(rare)).tocsr().astype(np.float32)))
    if not kinds:
        return None
    return best((Content(kinds, decay) for decay in (DECAYS if value else (DECAY if timely else 0.0,))), value)


def _values(codes: np.ndarray) -> sparse.csr_matrix:
    """[1 + items, codes] float32: 1 where the item has the value, from [1 + items] or [1 + items, length] codes, 0 for none."""
    codes = codes.reshape(len(codes), -1)
    rows, places = np.nonzero(codes)
    shape = (len(codes), int(codes.max(initial=0)) + 1)
    found = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, codes[rows, places])), shape=shape)
    found.data[:] = 1.0
    return found


def _unit(matrix: Any) -> Any:
    """Rows of length 1; those of zeros stay so."""
    if sparse.issparse(matrix):
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        return (sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ matrix).tocsr().astype(np.float32)
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
