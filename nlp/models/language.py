"""A Transformer that says what comes next in a text, from scratch; what each part is, nlp.settings.LanguageTransformer says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from nlp.settings import LanguageTransformer
from nlp.tokens.base import FIRST
from pipelines.machine.mesh import divided_along
from pipelines.outputs.decoder import joined_heads
from pipelines.outputs.search import Drawn, sample
from pipelines.task.writer import Way

NEVER = -1e9
Cache = list[tf.Tensor]  # of each layer, keys and values: [2, rows, groups, most, size]
Keep = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]  # new keys and values, [rows, groups, n, size] -> all that are seen


def build(settings: LanguageTransformer, *, size: int, writing: Way) -> keras.Model:
    """A new model under the current Keras precision policy, with fresh weights drawn from Keras' global seed.

    Args:
        size: tokens, of which the last one ends a text, and stands before one.
        writing: how it writes.
    """
    shape = Shape(settings.width, settings.depth, settings.heads, settings.groups or settings.heads, settings.hidden, settings.dropout)
    model = LanguageNetwork(shape, size, size - 1, writing)
    model({"tokens": tf.zeros([1, 2], tf.int32)})
    return model


@dataclass(frozen=True)
class Shape:
    """What a network is made of; names as in nlp.settings.LanguageTransformer.

    Attributes:
        wavelength: of the slowest turning columns, in places.
        epsilon: added to the mean of squares.
        tied: the last layer has the vectors' weights.
        padded: the last layer knows nothing of padding, number 0, which is never probable.
    """

    width: int
    depth: int
    heads: int
    groups: int
    hidden: int
    dropout: float
    wavelength: float = 10_000.0
    epsilon: float = 1e-6
    tied: bool = False
    padded: bool = False


class RootNorm(keras.layers.Layer):
    """Vectors divided by the root of the mean of their squares, times a weight for each column."""

    def __init__(self, epsilon: float, **options: Any):
        super().__init__(**options)
        self.epsilon = epsilon

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(x, tf.float32)
        wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), -1, keepdims=True) + self.epsilon)
        return tf.cast(wide * tf.cast(tf.convert_to_tensor(self.scale), tf.float32), x.dtype)


def turned(x: tf.Tensor, at: Any, wavelength: float) -> tf.Tensor:
    """[rows, heads, n, size] with each pair of columns turned by an angle that grows with the place, from `at` on, of all rows or [rows]
    int32: products of two then depend on how far apart they stand."""
    half = x.shape[3] // 2
    rates = wavelength ** (-tf.range(half, dtype=tf.float32) / half)
    places = tf.reshape(at, [-1, 1]) + tf.range(tf.shape(x)[2])[None]
    angles = tf.cast(places, tf.float32)[:, None, :, None] * rates
    cosine, sine = tf.cast(tf.cos(angles), x.dtype), tf.cast(tf.sin(angles), x.dtype)
    first, second = tf.split(x, 2, axis=-1)
    return tf.concat([first * cosine - second * sine, first * sine + second * cosine], -1)


class Block(keras.layers.Layer):
    """A layer: attention to what is before, then a gated dense part, each behind its norm and beside the identity."""

    mesh_layouts = {"mixed": "rows", "inner": "rows"}  # what they give is taken apart, and so must be whole on each device

    def __init__(self, shape: Shape, **options: Any):
        super().__init__(**options)
        layers, width = keras.layers, shape.width
        self.heads, self.groups, self.size, self.wavelength = shape.heads, shape.groups, width // shape.heads, shape.wavelength
        self.norms = [RootNorm(shape.epsilon, name="norm1"), RootNorm(shape.epsilon, name="norm2")]
        self.mixed = layers.Dense((self.heads + 2 * self.groups) * self.size, use_bias=False, name="mixed")
        self.out = layers.Dense(width, use_bias=False, name="out")
        self.inner = layers.Dense(2 * shape.hidden, use_bias=False, name="inner")
        self.inner_out = layers.Dense(width, use_bias=False, name="inner_out")
        self.dropout = layers.Dropout(shape.dropout, name="dropout")

    def call(self, x: tf.Tensor, mask: tf.Tensor, at: Any = 0, keep: Keep | None = None, training: bool = False) -> tf.Tensor:
        """[rows, n, width]. Attention is to what `keep` gives for the keys and values of these n, which stand from `at` on."""
        mixed = self.mixed(self.norms[0](x))
        split = tf.reshape(mixed, [tf.shape(x)[0], -1, self.heads + 2 * self.groups, self.size])
        query, key, value = tf.split(tf.transpose(split, [0, 2, 1, 3]), [self.heads, self.groups, self.groups], axis=1)
        query, key = turned(query, at, self.wavelength), turned(key, at, self.wavelength)
        if keep is not None:
            key, value = keep(key, value)
        query, key, value = divided_along(1, query, key, value)
        x += self.dropout(self.out(self._attention(query, key, value, mask)), training=training)
        gate, inner = tf.split(self.inner(self.norms[1](x)), 2, axis=-1)
        return x + self.dropout(self.inner_out(tf.nn.silu(gate) * inner), training=training)

    def _attention(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Heads of a group stand below one another. `mask` [rows, n, m] is added to the products."""
        rows, count, each = tf.shape(query)[0], tf.shape(query)[2], self.heads // self.groups
        together = tf.reshape(query, [rows, self.groups, -1, self.size])
        products = tf.cast(tf.matmul(together, key, transpose_b=True), tf.float32) * float(self.size) ** -0.5
        wide = tf.reshape(products, [rows, self.groups, each, count, -1]) + tf.cast(mask, tf.float32)[:, None, None]
        shares = tf.reshape(tf.nn.softmax(wide), tf.shape(products))
        found = tf.matmul(tf.cast(shares, value.dtype), value)
        return joined_heads(tf.ensure_shape(tf.reshape(found, tf.shape(query)), [None, self.heads, None, self.size]))


class LanguageNetwork(keras.Model):
    """Inputs: "tokens" [batch, n + 1] int32; it gives the logits of all but the first, each behind those before it, [batch, n, tokens]
    float32. With "prompt" [batch, n] int32, padded with 0, it gives what it writes behind: "tokens" [batch, most] int32, padded with 0,
    and "confidence" [batch] float32, the mean probability of the written tokens."""

    def __init__(self, shape: Shape, size: int, end: int, writing: Way):
        super().__init__(name="language")
        self.shape, self.end, self.size, self.how, self.padded = shape, end, size, writing, shape.padded
        self.vectors = keras.layers.Embedding(size, shape.width, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02),
                                              name="vectors")
        self.dropout = keras.layers.Dropout(shape.dropout, name="dropout_vectors")
        self.blocks = [Block(shape, name=f"block{number}") for number in range(1, shape.depth + 1)]
        self.norm = RootNorm(shape.epsilon, name="last_norm")
        self.last = None if shape.tied else keras.layers.Dense(size, use_bias=False, name="logits")

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> Any:
        if "tokens" not in inputs:
            return self.write(inputs["prompt"])
        tokens = inputs["tokens"][:, :-1]
        places = tf.range(tf.shape(tokens)[1])
        later = tf.where(places[None] > places[:, None], NEVER, 0.0)[None]
        x = self.dropout(self.vectors(tokens), training=training)
        for block in self.blocks:
            x = block(x, later, training=training)
        return self.logits(x)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        x = self.norm(x)
        if self.last is not None:
            logits = tf.cast(self.last(x), tf.float32)
        else:
            table = tf.cast(tf.convert_to_tensor(self.vectors.embeddings), x.dtype)
            flat = tf.matmul(tf.reshape(x, [-1, x.shape[2]]), table, transpose_b=True)
            logits = tf.cast(tf.reshape(flat, [tf.shape(x)[0], -1, self.size]), tf.float32)
        return tf.pad(logits[..., 1:], [[0, 0], [0, 0], [1, 0]], constant_values=NEVER) if self.padded else logits

    def write(self, prompt: tf.Tensor) -> dict[str, tf.Tensor]:
        counts = tf.reduce_sum(tf.cast(prompt > 0, tf.int32), 1, keepdims=True)
        longest, rows = tf.shape(prompt)[1], tf.shape(prompt)[0]
        missing = longest - counts  # prompts end together; what is before them is not seen
        places = tf.range(longest)[None] - missing
        moved = tf.where(places >= 0, tf.gather(prompt, tf.maximum(places, 0), batch_dims=1), self.end)
        most = longest + self.how.most

        def following(ids: tf.Tensor, at: Any, own: Cache) -> tuple[tf.Tensor, Cache]:
            columns, asking = tf.range(most), at + tf.range(tf.shape(ids)[1])
            seen = (columns[None, None] <= asking[None, :, None]) & (columns[None, None] >= missing[:, :, None])
            mask, x, kept = tf.where(seen, 0.0, NEVER), self.vectors(ids), []

            def keep(cache: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                behind = at + tf.shape(key)[2]
                whole = tf.concat([cache[:, :, :, :at], tf.stack([key, value]), cache[:, :, :, behind:]], 3)
                kept.append(tf.ensure_shape(whole, cache.shape))
                return kept[-1][0], kept[-1][1]

            for block, cache in zip(self.blocks, own):
                x = block(x, mask, at=at, keep=partial(keep, cache))
            return self.logits(x[:, -1:])[:, 0], kept

        block = self.blocks[0]
        empty = [tf.zeros([2, rows, block.groups, most, block.size], self.compute_dtype) for _ in self.blocks]
        never = tf.range(self.size) < FIRST
        how = Drawn(self.how.temperature, self.how.top_k, self.how.top_p, self.how.repetition, self.how.seed)
        texts, shares = sample(following, moved, empty, lambda logits: tf.where(never, -float("inf"), logits), how, most=self.how.most,
                               end=self.end, fewest=self.how.fewest, form=self.how.form)
        count = tf.reduce_sum(tf.cast(texts > 0, tf.float32), 1)
        return {"tokens": texts, "confidence": shares / tf.maximum(count, 1.0)}
