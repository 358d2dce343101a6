"""A Transformer's decoder, a token at a time: the keys and values of what it has written, and of what it reads, are kept.

Each layer attends to what is written, then to what is read, then has a dense part, with a norm before each. Here stand the products
alone, on weights as plain tensors: in a loop, a variable is read anew in each round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

Cache = list[tf.Tensor]  # of each layer, keys and values: [2, rows, heads, most, size]
Norm = tuple[tf.Tensor, tf.Tensor, float]  # gamma and beta [width], epsilon
Dense = tuple[tf.Tensor, tf.Tensor]  # kernel [width in, width out] and bias


@dataclass(frozen=True)
class Layer:
    """The weights of a layer. `own` gives query, key and value side by side, of what is written; `cross` those of what is read."""

    own_norm: Norm
    own: Dense
    own_out: Dense
    cross_norm: Norm
    cross: Dense
    cross_key: Dense
    cross_value: Dense
    cross_out: Dense
    inner_norm: Norm
    inner: Dense
    inner_out: Dense


class Decoder:
    """A decoder before what it reads.

    Args:
        table: vectors of the tokens, [vocabulary, width], by which logits are computed, too.
        places: what is added to the vector at each place, [most, width].
        layers, last_norm: its weights.
        heads: of its attention.
        read: vectors of what it reads, [batch, steps, width].
        there: which steps are there, [batch, steps] bool; None: all.
        scale: what vectors of tokens are multiplied by.
        activation: between the two dense layers.
    """

    def __init__(self, table: tf.Tensor, places: tf.Tensor, layers: Sequence[Layer], last_norm: Norm, *, heads: int, read: tf.Tensor,
                 there: tf.Tensor | None = None, scale: float = 1.0, activation: Callable[[tf.Tensor], tf.Tensor] = tf.nn.relu):
        self.table, self.places, self.layers, self.last_norm = table, places, layers, last_norm
        self.heads, self.dtype, self.width = heads, read.dtype, int(read.shape[2])
        self.scale, self.activation = scale, activation
        self.read = [tuple(self._split(dense(read, *part)) for part in (layer.cross_key, layer.cross_value)) for layer in layers]
        self.missing = None if there is None else tf.where(there, 0.0, -1e9)[:, None, None]

    @property
    def most(self) -> Any:
        """Tokens, prompt included."""
        return self.places.shape[0] or tf.shape(self.places)[0]

    def empty(self, rows: tf.Tensor) -> Cache:
        """Before the first token."""
        return [tf.zeros([2, rows, self.heads, self.most, self.width // self.heads], self.dtype) for _ in self.layers]

    def __call__(self, ids: tf.Tensor, at: Any, own: Cache) -> tuple[tf.Tensor, Cache]:
        """Logits [rows, vocabulary] float32 of the token behind the last of ids [rows, n], which stand from `at` on; the cache with them.

        Rows are those of what is read, each as often as it is followed.
        """
        count = tf.shape(ids)[1]
        x = tf.gather(self.table, ids) * self.scale + self.places[at:at + count]
        later = tf.range(self.most)[None] > at + tf.range(count)[:, None]
        mask = tf.where(later, -1e9, 0.0)[None, None]
        kept = []
        for layer, cache, (keys, values) in zip(self.layers, own, self.read):
            mixed = dense(normed(x, *layer.own_norm), *layer.own)
            query, *new = [self._split(part) for part in tf.split(mixed, 3, axis=-1)]
            cache = tf.ensure_shape(tf.concat([cache[:, :, :, :at], tf.stack(new), cache[:, :, :, at + count:]], 3), cache.shape)
            kept.append(cache)
            x += dense(self._joined(attention(query, cache[0], cache[1], mask)), *layer.own_out)
            query = self._split(dense(normed(x, *layer.cross_norm), *layer.cross))
            x += dense(self._joined(self._of_read(query, keys, values)), *layer.cross_out)
            x += dense(self.activation(dense(normed(x, *layer.inner_norm), *layer.inner)), *layer.inner_out)
        last = normed(x[:, -1], *self.last_norm)
        return tf.cast(tf.matmul(last, self.table, transpose_b=True), tf.float32), kept

    def _of_read(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Rows that follow one text ask what it reads together: [rows, heads, n, size]."""
        batch, count, size = tf.shape(keys)[0], tf.shape(query)[2], query.shape[3]
        each = tf.transpose(tf.reshape(query, [batch, -1, self.heads, count, size]), [0, 2, 1, 3, 4])
        asked = attention(tf.reshape(each, [batch, self.heads, -1, size]), keys, values, self.missing)
        back = tf.transpose(tf.reshape(asked, [batch, self.heads, -1, count, size]), [0, 2, 1, 3, 4])
        return tf.reshape(back, tf.shape(query))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        return by_head(x, self.heads)

    def _joined(self, x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(joined_heads(x), [None, None, self.width])


def by_head(x: tf.Tensor, heads: int) -> tf.Tensor:
    """[rows, n, width] by head, [rows, heads, n, size]."""
    return tf.transpose(tf.reshape(x, [tf.shape(x)[0], -1, heads, x.shape[2] // heads]), [0, 2, 1, 3])


def joined_heads(x: tf.Tensor) -> tf.Tensor:
    """The other way."""
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [tf.shape(x)[0], -1, x.shape[1] * x.shape[3]])


def dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel) + bias
    return tf.reshape(flat, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))


def normed(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [-1], keepdims=True)
    return tf.cast(tf.nn.batch_normalization(tf.cast(x, tf.float32), mean, variance, beta, gamma, epsilon), x.dtype)


def attention(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """[rows, heads, n, size]; `mask` is added to the products."""
    products = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32) * float(query.shape[3]) ** -0.5
    shares = tf.nn.softmax(products if mask is None else products + tf.cast(mask, tf.float32))
    return tf.matmul(tf.cast(shares, values.dtype), values)
