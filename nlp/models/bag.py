"""The mean of the tokens' vectors and a linear layer (Joulin et al. 2017), a linear classifier on tf-idf features, or naive Bayes ratios
with a trained weight a token."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.models.parts import PAD, MaxPool, MeanPool, assembled, embedding, encoder_inputs, logits
from nlp.settings import Bag
from pipelines.base.errors import ConfigError

FIRST_WEIGHT = 0.02  # initial weight of every token; keeps the sum over a text's tokens moderate
LARGEST = 1 << 27  # numbers in the table of ratios


def build(settings: Bag, *, size: int, classes: int, letters: int | None = None) -> keras.Model:
    """See `nlp.models.build`. Computes in float32 whatever the policy: half precision is no faster and loses sums of small vectors."""
    if settings.naive_bayes:
        return _naive_bayes(settings, size, classes)
    width = classes if settings.linear else settings.width
    vectors, ids = encoder_inputs(width)
    pool = RarityPool(size, letters, name="pool") if settings.rarity else MeanPool(settings.pool, name="pool")
    x = pool([vectors, ids])
    if settings.linear:
        encoder = keras.Model([vectors, ids], Bias(dtype="float32", name="bias")(x), name="encoder")
        return assembled(encoder, embedding(size, width, keras.initializers.Zeros()), settings.drop_tokens, PAD, "bag")
    if settings.pool == "root_max":
        x = keras.layers.Concatenate(dtype="float32", name="joined")([x, MaxPool(dtype="float32", name="max")([vectors, ids])])
    if settings.hidden:
        if settings.dropout:
            x = keras.layers.Dropout(settings.dropout, dtype="float32", name="dropout1")(x)
        hidden = keras.layers.Dense(settings.hidden, activation="relu", dtype="float32", name="hidden")(x)
        x = keras.layers.Concatenate(dtype="float32", name="beside")([x, hidden]) if settings.skip else hidden
    encoder = keras.Model([vectors, ids], logits(x, classes, settings.dropout), name="encoder")
    table = embedding(size, width)
    return assembled(encoder, table, settings.drop_tokens, PAD, "bag")


class RarityPool(keras.layers.Layer):
    """[vectors, ids] -> the sum of a text's vectors, each times its token's weight, divided by the length of those weights, float32.

    With a linear layer behind it this is a linear classifier on tf-idf features (Salton and Buckley 1988). The tokens below `letters` and
    those from it on are divided by the length of their own weights: there are many times as many character n-grams as words in a text, and
    normalised together they would outweigh them.
    """

    def __init__(self, size: int, letters: int | None = None, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.size, self.letters = size, letters

    def build(self, _):
        self.weight = self.add_weight(shape=(self.size,), initializer="ones", trainable=False, name="rarity")

    def call(self, inputs):
        vectors, ids = inputs
        weights = tf.gather(tf.convert_to_tensor(self.weight), ids) * tf.cast(ids != PAD, tf.float32)
        if self.letters is None:
            shares = weights / _length(weights)
        else:
            words = tf.where(ids < self.letters, weights, 0.0)
            characters = weights - words
            shares = words / _length(words) + characters / _length(characters)
        return tf.linalg.matmul(tf.expand_dims(shares, 1), vectors)[:, 0]


def _length(weights: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(tf.reduce_sum(weights * weights, -1, keepdims=True), 1e-6))


def set_rarity(model: keras.Model, counts: np.ndarray, texts: int) -> None:
    """Puts the weights into a model of `rarity`: log((1 + texts) / (1 + count)) + 1, and 0 for tokens that no text of train holds.

    Args:
        counts: [size], texts of train that hold each token.
        texts: of train.
    """
    model.get_layer("encoder").get_layer("pool").weight.assign(rarity(counts, texts))


def rarity(counts: np.ndarray, texts: int) -> np.ndarray:
    """Weights of tokens that so many texts of `texts` hold, float32; 0 for those that none does."""
    return np.where(counts > 0, np.log((1.0 + texts) / (1.0 + counts)) + 1.0, 0.0).astype(np.float32)


class Ratios(keras.layers.Layer):
    """Log-count ratios of naive Bayes for each token and class (Wang and Manning 2012, "Baselines and Bigrams"), never trained.

    [weights, ids] -> [batch, classes]: the sum over a text's tokens of weight x ratio.
    """

    def __init__(self, size: int, classes: int, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.size, self.classes = size, classes

    def build(self, _):
        self.ratios = self.add_weight(shape=(self.size, self.classes), initializer="zeros", trainable=False, name="ratios")

    def call(self, inputs):
        weights, ids = inputs
        weights = weights[..., 0] * tf.cast(ids != PAD, weights.dtype)
        return tf.einsum("bt,btc->bc", weights, tf.gather(tf.convert_to_tensor(self.ratios), ids))


def _naive_bayes(settings: Bag, size: int, classes: int) -> keras.Model:
    if size * classes > LARGEST:
        raise ConfigError(f"model.naive_bayes: {size:,} rows x {classes} classes are too many ratios; set tokens.buckets: "
                          f"{LARGEST // classes:,} or fewer")
    weights, ids = encoder_inputs(1)
    x = Ratios(size, classes, name="ratios")([weights, ids])
    x = Bias(dtype="float32", name="bias")(x)
    encoder = keras.Model([weights, ids], x, name="encoder")
    table = embedding(size, 1, keras.initializers.Constant(FIRST_WEIGHT))
    return assembled(encoder, table, settings.drop_tokens, PAD, "bag")


class Bias(keras.layers.Layer):
    """A number added to each column."""

    def build(self, shape):
        self.bias = self.add_weight(shape=(shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs):
        return inputs + self.bias


def set_ratios(model: keras.Model, counts: np.ndarray) -> None:
    """Puts the ratios into a model of `naive_bayes`.

    log (p / |p|) - log (q / |q|) of each token and class, p the number of the class' texts that hold it and q of the others', both plus 1.

    Args:
        counts: [size, classes], texts of each class that hold each token, of train alone.
    """
    inside = counts.astype(np.float64) + 1.0
    outside = counts.sum(axis=1, keepdims=True) - counts + 1.0
    ratios = np.log(inside / inside.sum(axis=0)) - np.log(outside / outside.sum(axis=0))
    ratios[counts.sum(axis=1) == 0] = 0.0  # tokens that train lacks
    model.get_layer("encoder").get_layer("ratios").ratios.assign(ratios.astype(np.float32))


def count_tokens(batches: Iterator[tuple[Any, Any]], size: int, classes: int) -> np.ndarray:
    """[size, classes] float32: how many texts of each class hold each token; with one class, of all.

    Args:
        batches: (token numbers, {"label"}) of train, each text once.
    """
    counts = np.zeros(size * classes, np.float32)
    for inputs, targets in batches:
        ids = np.sort(inputs.numpy(), axis=1)
        labels = targets["label"].numpy() if classes > 1 else np.zeros(len(ids), np.int64)
        first = np.concatenate([np.ones((len(ids), 1), bool), ids[:, 1:] != ids[:, :-1]], axis=1)
        held = first & (ids != PAD) & (labels < classes)[:, None]
        rows, places = np.nonzero(held)
        cells, times = np.unique(ids[rows, places].astype(np.int64) * classes + labels[rows], return_counts=True)
        counts[cells] += times
    return counts.reshape(size, classes)
