"""What a text's words say by themselves, beside an encoder: the scores of linear classifiers of its runs of tokens.

There are several classifiers, each fitted to the texts of train but for one fold, and a text is scored by the one whose fold it belongs to,
by its own tokens (stacking: Wolpert 1992, "Stacked Generalization"). So no training text is scored by a classifier that has seen it or a
copy of it, and what learns from the scores trusts them as far as new texts bear out.
"""

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf
from scipy import sparse

from nlp.models.bag import rarity
from nlp.models.linear import divided
from nlp.tokens.base import PAD
from pipelines.encoders.features import ClassScores

FOLDS = 5
OF_A_TEXT = 64  # rows of a classifier for each text of train, of which other runs of tokens take the same
LEAST, MOST = 1 << 12, 1 << 20  # rows of a classifier
NUMBERS = 1 << 24  # in all of them, with a column for each class
PRIME, BASE = (1 << 31) - 1, 1_540_483_477  # a run's hash is a polynomial of its tokens (Karp and Rabin 1987)


class WordScores(ClassScores):
    """Token numbers [batch, time] -> [batch, classes] float32: how far a text lies within the border of each class. Before `fit` all are 0.

    Args:
        longest: run of tokens that counts; each counts once a text, by its rarity, and a text's weights have norm 1 (tf-idf).
        classes: or labels.
        buckets: rows of each classifier; two runs may share one.
    """

    def __init__(self, longest: int, classes: int, buckets: int, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.longest, self.classes, self.buckets = longest, classes, buckets

    def build(self, _):
        self.rarity = self.add_weight(shape=(self.buckets,), initializer="zeros", trainable=False, name="rarity")
        self.table = self.add_weight(shape=(FOLDS * self.buckets, self.classes), initializer="zeros", trainable=False, name="table")
        self.border = self.add_weight(shape=(FOLDS, self.classes), initializer="zeros", trainable=False, name="border")

    @property
    def looked_up(self) -> list[keras.Variable]:
        """Weights of which rows are taken as they are."""
        return [self.rarity, self.table]

    def call(self, ids):
        runs, fold = self.runs(ids), folds(ids)
        weights = tf.gather(tf.convert_to_tensor(self.rarity), runs)
        weights *= tf.math.rsqrt(tf.maximum(tf.reduce_sum(weights * weights, 1, keepdims=True), 1e-6))
        rows = tf.gather(tf.convert_to_tensor(self.table), fold[:, None] * self.buckets + runs)
        return tf.linalg.matmul(weights[:, None], rows)[:, 0] + tf.gather(tf.convert_to_tensor(self.border), fold)

    def compute_output_spec(self, ids):
        return keras.KerasTensor((ids.shape[0], self.classes), "float32")

    def runs(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of a text's runs of tokens, [batch, some] int32, each once, ascending; 0 where there is none."""
        own, found = tf.cast(ids, tf.int64), []
        run = own
        for size in range(1, self.longest + 1):
            if size > 1:
                run = (run[:, :-1] * BASE + own[:, size - 1:]) % PRIME
            found.append(tf.where(ids[:, size - 1:] != PAD, run % (self.buckets - 1) + 1, 0))
        rows = tf.sort(tf.cast(tf.concat(found, 1), tf.int32), 1)
        return tf.where(rows != tf.pad(rows[:, :-1], [[0, 0], [1, 0]]), rows, 0)


def buckets_for(texts: int, classes: int) -> int | None:
    """Rows of each classifier that is fitted to so many texts; None where there are too many classes for any."""
    room = NUMBERS // (FOLDS * classes)
    return min(max(LEAST, 1 << (texts * OF_A_TEXT - 1).bit_length()), MOST, room) if room >= LEAST else None


def folds(ids: tf.Tensor) -> tf.Tensor:
    """The fold of each text, [batch] int32, by its tokens alone."""
    places = tf.range(1, tf.shape(ids, tf.int64)[1] + 1, dtype=tf.int64)
    return tf.cast(tf.reduce_sum(tf.cast(ids, tf.int64) * (places * BASE % PRIME), 1) % PRIME % FOLDS, tf.int32)


def fit(layer: WordScores, batches: Iterable[tuple[tf.Tensor, np.ndarray]]) -> None:
    """Fits the classifiers: linear support vector machines on tf-idf features, one for each class.

    Args:
        batches: (token numbers [n, time], labels) of train, each text once; labels are classes [n], or [n, classes] of 0 and 1 where texts
            have several. A text of another class is left out.
    """
    parts = [(_held(layer.runs(ids).numpy(), layer.buckets), folds(ids).numpy(), labels) for ids, labels in batches]
    fold, labels = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    held = sparse.vstack([part[0] for part in parts], format="csr")
    weights = rarity(np.bincount(held.indices, minlength=layer.buckets), len(fold))
    held.data = weights[held.indices].astype(np.float64)
    held = sparse.diags(1.0 / np.sqrt(np.maximum(held.multiply(held).sum(1).A1, 1e-6))) @ held
    truth = labels > 0 if labels.ndim > 1 else labels[:, None] == np.arange(layer.classes)
    learned = truth.any(1) | (labels.ndim > 1)
    table, border = np.zeros((FOLDS, layer.buckets, layer.classes), np.float32), np.zeros((FOLDS, layer.classes), np.float32)
    for number in range(FOLDS):
        others = np.flatnonzero((fold != number) & learned)
        table[number], border[number] = divided(held[others], truth[others])
    layer.rarity.assign(weights)
    layer.table.assign(table.reshape(layer.table.shape))
    layer.border.assign(border)


def _held(runs: np.ndarray, buckets: int) -> sparse.csr_matrix:
    """[texts, buckets]: 1 where a text holds a row."""
    there = runs > 0
    begins = np.concatenate([[0], np.cumsum(there.sum(1))])
    return sparse.csr_matrix((np.ones(begins[-1], np.float32), runs[there], begins), shape=(len(runs), buckets))
