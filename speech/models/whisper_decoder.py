"""Whisper's decoder, a token at a time: the keys and values of what it has written and of the sound are kept.

The layers are KerasHub's; here stand their products alone, on weights as plain tensors. In a loop, a variable is read anew in each round,
and KerasHub's attention transposes all 1,500 steps of sound for each token.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Cache = list[tf.Tensor]  # of each layer, keys and values: [2, rows, heads, most, size]


class Decoder:
    """The decoder of a WhisperBackbone before a sound.

    Args:
        embedding, layers, last_norm: of the backbone's decoder.
        heads: of its attention.
        most: tokens, prompt included.
        sound: vectors of the encoder, [batch, steps, width].
        heard: which steps are there, [batch, steps] bool; None: all.
    """

    def __init__(self, embedding: Any, layers: Sequence[Any], last_norm: Any, *, heads: int, most: int, sound: tf.Tensor,
                 heard: tf.Tensor | None = None):
        self.heads, self.most, self.dtype, self.width = heads, most, sound.dtype, int(sound.shape[2])
        self.table = self._tensor(embedding.token_embedding.embeddings)
        self.places = self._tensor(embedding.position_embedding.position_embeddings)
        self.last_norm = self._norm(last_norm)
        self.layers = [self._weights(layer) for layer in layers]
        self.sound_keys = [(self._split(_dense(sound, *self._dense(layer._cross_attention_layer._key_dense))),
                            self._split(_dense(sound, *self._dense(layer._cross_attention_layer._value_dense)))) for layer in layers]
        self.unheard = None if heard is None else tf.where(heard, 0.0, -1e9)[:, None, None]

    def empty(self, rows: tf.Tensor) -> Cache:
        """Before the first token."""
        return [tf.zeros([2, rows, self.heads, self.most, self.width // self.heads], self.dtype) for _ in self.layers]

    def __call__(self, ids: tf.Tensor, at: Any, own: Cache) -> tuple[tf.Tensor, Cache]:
        """Logits [rows, vocabulary] float32 of the token behind the last of ids [rows, n], which stand from `at` on; the cache with them.

        Rows are those of the sound, each as often as it is followed.
        """
        count = tf.shape(ids)[1]
        x = tf.gather(self.table, ids) + self.places[at:at + count]
        later = tf.range(self.most)[None] > at + tf.range(count)[:, None]
        mask = tf.where(later, -1e9, 0.0)[None, None]
        kept = []
        for weights, cache, (keys, values) in zip(self.layers, own, self.sound_keys):
            mixed = _dense(_normed(x, *weights["self norm"]), *weights["self"])
            query, *new = [self._split(part) for part in tf.split(mixed, 3, axis=-1)]
            behind = self.most - at - count
            cache = tf.ensure_shape(cache + tf.pad(tf.stack(new), [[0, 0], [0, 0], [0, 0], [at, behind], [0, 0]]), cache.shape)
            kept.append(cache)
            x += _dense(self._joined(_attention(query, cache[0], cache[1], mask)), *weights["self out"])
            query = self._split(_dense(_normed(x, *weights["cross norm"]), *weights["cross"]))
            x += _dense(self._joined(self._of_sound(query, keys, values)), *weights["cross out"])
            inner = tf.nn.gelu(_dense(_normed(x, *weights["inner norm"]), *weights["inner"]), approximate=False)
            x += _dense(inner, *weights["inner out"])
        last = _normed(x[:, -1], *self.last_norm)
        return tf.cast(tf.matmul(last, self.table, transpose_b=True), tf.float32), kept

    def _of_sound(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Rows that follow one sound ask it together: [rows, heads, n, size]."""
        batch, count, size = tf.shape(keys)[0], tf.shape(query)[2], query.shape[3]
        each = tf.transpose(tf.reshape(query, [batch, -1, self.heads, count, size]), [0, 2, 1, 3, 4])
        asked = _attention(tf.reshape(each, [batch, self.heads, -1, size]), keys, values, self.unheard)
        back = tf.transpose(tf.reshape(asked, [batch, self.heads, -1, count, size]), [0, 2, 1, 3, 4])
        return tf.reshape(back, tf.shape(query))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        """[rows, n, width] by head, [rows, heads, n, size]."""
        return tf.transpose(tf.reshape(x, [tf.shape(x)[0], -1, self.heads, self.width // self.heads]), [0, 2, 1, 3])

    def _joined(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [tf.shape(x)[0], -1, self.width])

    def _weights(self, layer: Any) -> dict[str, tuple]:
        own, cross = layer._self_attention_layer, layer._cross_attention_layer
        parts = [self._dense(dense) for dense in (own._query_dense, own._key_dense, own._value_dense)]
        return {
            "self norm": self._norm(layer._self_attention_layer_norm), "self": tuple(tf.concat(part, -1) for part in zip(*parts)),
            "self out": self._dense(own._output_dense),
            "cross norm": self._norm(layer._cross_attention_layer_norm), "cross": self._dense(cross._query_dense),
            "cross out": self._dense(cross._output_dense),
            "inner norm": self._norm(layer._feedforward_layer_norm), "inner": self._dense(layer._feedforward_intermediate_dense),
            "inner out": self._dense(layer._feedforward_output_dense)}

    def _tensor(self, variable: Any) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(variable), self.dtype)

    def _norm(self, layer: Any) -> tuple[tf.Tensor, tf.Tensor, float]:
        return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta), layer.epsilon

    def _dense(self, layer: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Kernel [width in, width out] and bias, zeros where the layer has none."""
        width = self.width if layer.kernel.shape[0] == self.width else -1  # heads may be an axis of their own on either side
        kernel = tf.reshape(self._tensor(layer.kernel), [width, self.width if width == -1 else -1])
        bias = getattr(layer, "bias", None)
        return kernel, tf.zeros([kernel.shape[1]], self.dtype) if bias is None else tf.reshape(self._tensor(bias), [-1])


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel) + bias
    return tf.reshape(flat, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))


def _normed(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [-1], keepdims=True)
    return tf.cast(tf.nn.batch_normalization(tf.cast(x, tf.float32), mean, variance, beta, gamma, epsilon), x.dtype)


def _attention(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """[rows, heads, n, size]; `mask` is added to the products."""
    products = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32) * float(query.shape[3]) ** -0.5
    shares = tf.nn.softmax(products if mask is None else products + mask)
    return tf.matmul(tf.cast(shares, values.dtype), values)
