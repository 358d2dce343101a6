"""Linear support vector machines on tf-idf features of tokens, one for each class: the baseline of texts, and the model `linear`.

Their scores are scaled to log-odds by texts that were held out, on which the regularisation is chosen, too. Where texts have several
labels, a label is given from even odds on: there its F1 on these texts is the highest.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from scipy import sparse

from nlp.models.bag import Bias, RarityPool, rarity
from nlp.models.parts import PAD, assembled, encoder_inputs
from nlp.settings import Linear
from nlp.tokens.base import Tokenizer
from pipelines.fitting.folds import folds, of_classes, of_labels

STRENGTHS = (0.1, 0.3, 1.0, 3.0)  # C of the machines: less is more regularisation
FOLDS, CHOOSING = 3, 1_500  # in which these are tried on train, and of how many texts at most
TOLERANCE = 1e-2  # of the machines' solver; 1e-4 takes longer and divides no better


class Rows(keras.layers.Embedding):
    """What each token adds to the score of each class."""

    @property
    def variable(self) -> keras.Variable:
        """[size, classes] float32."""
        return self.embeddings


def build(settings: Linear, *, size: int, classes: int, letters: int | None = None) -> keras.Model:
    """See `nlp.models.build`. All weights are 0 before `put`, and no step trains them."""
    vectors, ids = encoder_inputs(classes)
    pooled = RarityPool(size, letters, name="pool")([vectors, ids])
    encoder = keras.Model([vectors, ids], Bias(dtype="float32", name="bias", trainable=False)(pooled), name="encoder")
    table = Rows(size, classes, embeddings_initializer="zeros", dtype="float32", name="embedding", trainable=False)
    return assembled(encoder, table, 0.0, PAD, "linear")


@dataclass(frozen=True)
class Fitted:
    """What was learned.

    Attributes:
        rarity: [size] float32, the weight of each token; 0 of those that train lacks.
        letters: the first number of character n-grams; None where they are weighed with the words.
        known: the tokens of train, ascending.
        rows: [known, classes] float32, what each of them adds to each class.
        bias: [classes] float32.
        how: what was chosen, and by what.
    """

    rarity: np.ndarray
    letters: int | None
    known: np.ndarray
    rows: np.ndarray
    bias: np.ndarray
    how: str

    def logits(self, ids: Iterable[tf.Tensor]) -> np.ndarray:
        """Token numbers [n, time] of some texts after the other -> [texts, classes], as the model gives them."""
        texts = (weighed(_counted(one, len(self.rarity)), self.rarity, self.letters)[:, self.known] for one in ids)
        return np.concatenate([each @ self.rows + self.bias for each in texts])


def put(model: keras.Model, fitted: Fitted) -> None:
    """Sets the weights of a model of `build`."""
    table, encoder = model.get_layer("embedding"), model.get_layer("encoder")
    rows = np.zeros(table.variable.shape, np.float32)
    rows[fitted.known] = fitted.rows
    table.variable.assign(rows)
    encoder.get_layer("pool").weight.assign(fitted.rarity)
    encoder.get_layer("bias").bias.assign(fitted.bias)


def fit(batches: Iterable[tuple[tf.Tensor, np.ndarray]], tokenizer: Tokenizer, classes: int, *, groups: np.ndarray | None = None,
        seed: int = 0) -> Fitted:
    """Fits all texts.

    Args:
        batches: (token numbers [n, time], labels) of train; labels are classes [n], or [n, classes] of 0 and 1 where texts have several.
            A text of another class is left out.
        tokenizer: by which they were cut.
        groups: [texts], of those that are held out together; None: each by itself.
    """
    size, letters = tokenizer.size, tokenizer.letters
    parts = [(_counted(ids, size), labels) for ids, labels in batches]
    held, labels = sparse.vstack([part[0] for part in parts], format="csr"), np.concatenate([part[1] for part in parts])
    many = labels.ndim > 1
    truth = labels > 0 if many else labels[:, None] == np.arange(classes)
    if not many and not (inside := truth.any(1)).all():
        held, truth, groups = held[inside], truth[inside], None if groups is None else groups[inside]
    weights = rarity(np.bincount(held.indices, minlength=size), held.shape[0])
    known = np.flatnonzero(weights)
    texts = weighed(held, weights, letters)[:, known]
    some = np.arange(len(truth)) if len(truth) <= CHOOSING else np.random.default_rng(seed).choice(len(truth), CHOOSING, replace=False)
    fold = folds(None if many else truth[some].argmax(1), None if groups is None else groups[some], len(some), seed, FOLDS)
    tried = []
    for strength in STRENGTHS:
        scores = _held_out(texts[some], truth[some], fold, strength)
        scale, shift, loss, right = _of_labels(scores, truth[some]) if many else _of_classes(scores, truth[some].argmax(1))
        tried.append((loss, strength, scale, shift, right))
    _, strength, scale, shift, right = min(tried)
    rows, bias = divided(texts, truth, strength)
    how = f"C = {strength:g} was chosen on train, held out in {fold.max() + 1} folds ({right:.1%} {'F1' if many else 'right'})"
    return Fitted(weights, letters, known, (scale * rows).astype(np.float32), (scale * bias + shift).astype(np.float32), how)


def _counted(ids: tf.Tensor, size: int) -> sparse.csr_matrix:
    """[texts, size] float32: how often a text holds each token."""
    rows = np.asarray(ids)
    there = rows != PAD
    begins = np.concatenate([[0], np.cumsum(there.sum(1))])
    counts = sparse.csr_matrix((np.ones(begins[-1], np.float32), rows[there], begins), shape=(len(rows), size))
    counts.sum_duplicates()
    return counts


def weighed(counts: sparse.csr_matrix, weights: np.ndarray, letters: int | None) -> sparse.csr_matrix:
    """Counts of tokens as `RarityPool` weighs them: of words, and of the character n-grams from `letters` on, each of norm 1."""
    own = weights[counts.indices]
    part = (counts.indices >= letters).astype(np.int64) if letters is not None else np.zeros(len(own), np.int64)
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    squares = np.bincount(2 * row + part, counts.data * own * own, 2 * counts.shape[0])
    shares = counts.data * own / np.sqrt(np.maximum(squares, 1e-6))[2 * row + part]
    return sparse.csr_matrix((shares.astype(np.float64), counts.indices, counts.indptr), shape=counts.shape)


def divided(texts: sparse.csr_matrix, truth: np.ndarray, strength: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Weights [width, classes] and borders [classes] of the machines of texts [n, width] whose classes are `truth` [n, classes] bool; of a
    class that no text has, or all have, the border alone."""
    from sklearn.svm import LinearSVC

    def machine(labels: np.ndarray) -> LinearSVC:
        return LinearSVC(C=strength, random_state=0, tol=TOLERANCE).fit(texts, labels)

    weights, border = np.zeros((texts.shape[1], truth.shape[1])), np.where(truth.all(0) & truth.any(0), 1.0, -1.0)
    divides = np.flatnonzero(truth.any(0) & ~truth.all(0))
    if len(divides) > 1 and (truth.sum(1) == 1).all():
        every = machine(truth.argmax(1))
        both = len(divides) == 2  # then one classifier divides them, and is positive for the second
        weights[:, divides] = np.concatenate([-every.coef_, every.coef_]).T if both else every.coef_.T
        border[divides] = np.concatenate([-every.intercept_, every.intercept_]) if both else every.intercept_
        return weights, border
    for each in divides:
        one = machine(truth[:, each])
        weights[:, each], border[each] = one.coef_[0], one.intercept_[0]
    return weights, border


def _held_out(texts: sparse.csr_matrix, truth: np.ndarray, fold: np.ndarray, strength: float) -> np.ndarray:
    """The score of each text [n, classes] by machines that have not seen its fold."""
    scores = np.empty(truth.shape)
    for number in range(fold.max() + 1):
        rows, border = divided(texts[fold != number], truth[fold != number], strength)
        scores[fold == number] = texts[fold == number] @ rows + border
    return scores


def _of_classes(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float, float]:
    """(scale, shift, loss, share of right answers)."""
    scale, loss = of_classes(scores, labels)
    return scale, 0.0, loss, float(np.mean(scores.argmax(1) == labels))


def _of_labels(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float, float, float]:
    """(scale, shift, loss, F1): labels are given from even odds on where their F1 over all texts is best."""
    order = np.argsort(-scores, axis=None)
    ranked, hits = scores.ravel()[order], np.cumsum(truth.ravel()[order])
    f1 = 2.0 * hits / (np.arange(1, len(hits) + 1) + truth.sum())
    best = int(f1.argmax())
    border = float(ranked[best:best + 2].mean())
    scale = of_labels(scores, truth, border)[0]
    return scale, -scale * border, 1.0 - float(f1[best]), float(f1[best])
