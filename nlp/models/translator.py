"""A Transformer that reads a text and writes another one (Vaswani et al. 2017, arXiv:1706.03762), with the norm before each part."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from nlp.settings import Translator
from nlp.tokens.base import FIRST, PAD
from pipelines.machine.mesh import divided_along
from pipelines.outputs.decoder import Decoder, Dense, Layer, attention, by_head, joined_heads
from pipelines.outputs.search import beam

EPSILON = 1e-6
MORE = 10  # tokens that may be written beside those for each that is read


def build(settings: Translator, *, size: int, most: int, writing: Any) -> keras.Model:
    """A new model under the current Keras precision policy, with fresh weights drawn from Keras' global seed.

    Args:
        size: tokens, of which the last one ends a text, and begins one.
        most: tokens of a text that are written.
        writing: the section `writing`.
    """
    model = TranslatorModel(settings, size, most, writing)
    model({"tokens": tf.zeros([1, 1], tf.int32), "written": tf.zeros([1, 1], tf.int32)})
    return model


class Attention(keras.layers.Layer):
    """[rows, n, width]: each of `x` takes from all of `other`, or, without it, of itself. `mask` is added to the products."""

    mesh_layouts = {"parts": "rows"}  # what they give is taken apart, and so must be whole on each device

    def __init__(self, width: int, heads: int, *, own: bool, **options: Any):
        super().__init__(**options)
        self.heads, self.own = heads, own
        layers = keras.layers
        self.parts = [layers.Dense(3 * width, name="own")] if own else [
            layers.Dense(width, name=name) for name in ("query", "key", "value")]
        self.out = layers.Dense(width, name="out")

    def call(self, x: tf.Tensor, mask: tf.Tensor | None = None, other: tf.Tensor | None = None) -> tf.Tensor:
        split = tf.split(self.parts[0](x), 3, axis=-1) if other is None else [
            part(each) for part, each in zip(self.parts, (x, other, other))]
        query, keys, values = divided_along(1, *(by_head(part, self.heads) for part in split))
        return self.out(joined_heads(attention(query, keys, values, mask)))


class Block(keras.layers.Layer):
    """A layer that reads, or, where `writes`, one that attends to what is read, too."""

    def __init__(self, settings: Translator, *, writes: bool, **options: Any):
        super().__init__(**options)
        layers, width = keras.layers, settings.width
        self.attention = Attention(width, settings.heads, own=True, name="attention")
        self.cross = Attention(width, settings.heads, own=False, name="cross") if writes else None
        self.inner = layers.Dense(settings.hidden, activation="relu", name="inner")
        self.inner_out = layers.Dense(width, name="inner_out")
        self.norms = [layers.LayerNormalization(epsilon=EPSILON, name=f"norm{number}") for number in range(3 if writes else 2)]
        self.dropout = layers.Dropout(settings.dropout, name="dropout")

    def call(self, x: tf.Tensor, mask: tf.Tensor, read: tf.Tensor | None = None, there: tf.Tensor | None = None,
             training: bool = False) -> tf.Tensor:
        x += self.dropout(self.attention(self.norms[0](x), mask), training=training)
        if self.cross is not None:
            x += self.dropout(self.cross(self.norms[1](x), there, other=read), training=training)
        return x + self.dropout(self.inner_out(self.inner(self.norms[-1](x))), training=training)

    def weights_of(self, dtype: Any) -> Layer:
        def tensors(layer: keras.layers.Dense) -> Dense:
            return tf.cast(tf.convert_to_tensor(layer.kernel), dtype), tf.cast(tf.convert_to_tensor(layer.bias), dtype)

        assert self.cross is not None
        own, cross, inner = (norm_of(norm) for norm in self.norms)
        query, key, value = map(tensors, self.cross.parts)
        return Layer(own, tensors(self.attention.parts[0]), tensors(self.attention.out), cross, query, key, value, tensors(self.cross.out),
                     inner, tensors(self.inner), tensors(self.inner_out))


def norm_of(layer: keras.layers.LayerNormalization) -> tuple[tf.Tensor, tf.Tensor, float]:
    return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta), EPSILON


class Table(keras.layers.Layer):
    """The vectors of all tokens: of numbers [rows, n] int32 those at their places, [rows, n, width]; `logits` the other way."""

    def __init__(self, size: int, width: int, **options: Any):
        super().__init__(**options)
        self.size, self.width, self.scale = size, width, float(width) ** 0.5

    def build(self, shape: Any) -> None:
        self.vectors = self.add_weight(shape=(self.size, self.width), initializer=keras.initializers.RandomNormal(stddev=1 / self.scale),
                                       name="vectors")

    def tensor(self) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(self.vectors), self.compute_dtype)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.tensor(), ids) * tf.cast(self.scale, self.compute_dtype) + waves(tf.shape(ids)[1], self.width,
                                                                                                self.compute_dtype)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        flat = tf.matmul(tf.reshape(x, [-1, self.width]), self.tensor(), transpose_b=True)
        return tf.cast(tf.reshape(flat, [tf.shape(x)[0], -1, self.size]), tf.float32)


def waves(places: tf.Tensor, width: int, dtype: Any) -> tf.Tensor:
    """Sine waves of different lengths, [places, width], by which places are told apart (Vaswani et al. 2017, section 3.5)."""
    rates = tf.exp(tf.range(width // 2, dtype=tf.float32) * (-9.21034 / (width // 2)))  # 10,000 ** -share
    angles = tf.range(places)[:, None]
    angles = tf.cast(angles, tf.float32) * rates[None]
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], 1), dtype)


class TranslatorModel(keras.Model):
    """Inputs: "tokens" [batch, time] int32, what is read, 0 where there is padding. With "written" [batch, n] int32 it gives the logits of
    the first token and of the one behind each, [batch, n + 1, tokens] float32; without, what it writes itself: "tokens" [batch, most]
    int32, padded with 0, and "confidence" [batch] float32, the mean probability of the written tokens."""

    def __init__(self, settings: Translator, size: int, most: int, writing: Any):
        super().__init__(name="translator")
        self.end, self.heads, self.most, self.how = size - 1, settings.heads, most, writing
        self.table = Table(size, settings.width, name="table")
        self.dropout = keras.layers.Dropout(settings.dropout, name="dropout_vectors")
        self.readers = [Block(settings, writes=False, name=f"read{number}") for number in range(1, settings.depth + 1)]
        self.writers = [Block(settings, writes=True, name=f"write{number}") for number in range(1, settings.writing_depth + 1)]
        self.norms = [keras.layers.LayerNormalization(epsilon=EPSILON, name=name) for name in ("read_norm", "write_norm")]

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> Any:
        tokens = inputs["tokens"]
        missing = tf.where(tokens == PAD, -1e9, 0.0)[:, None, None]
        read = self.dropout(self.table(tokens), training=training)
        for block in self.readers:
            read = block(read, missing, training=training)
        read = self.norms[0](read)
        if "written" not in inputs:
            return self.write(tokens, read)
        before = tf.pad(inputs["written"], [[0, 0], [1, 0]], constant_values=self.end)
        places = tf.range(tf.shape(before)[1])
        later = tf.where(places[None] > places[:, None], -1e9, 0.0)[None, None]
        x = self.dropout(self.table(before), training=training)
        for block in self.writers:
            x = block(x, later, read, missing, training=training)
        return self.table.logits(self.norms[1](x))

    def decoder(self, tokens: tf.Tensor, read: tf.Tensor, most: Any) -> Decoder:
        """What writes at most so many tokens of what is read."""
        blocks = [block.weights_of(read.dtype) for block in self.writers]
        return Decoder(self.table.tensor(), waves(most, read.shape[2], read.dtype), blocks, norm_of(self.norms[1]), heads=self.heads,
                       read=read, there=tokens != PAD, scale=self.table.scale)

    def write(self, tokens: tf.Tensor, read: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = tf.shape(tokens)[0]
        length = tf.cast(tf.reduce_sum(tf.cast(tokens != PAD, tf.int32), 1), tf.float32)
        own = tf.minimum(tf.cast(self.how.ratio * length, tf.int32) + MORE, self.most)  # an answer does not depend on others in its batch
        most, rows = tf.reduce_max(own), tf.repeat(own, self.how.beam)
        ends = tf.range(self.end + 1) == self.end

        def allowed(logits: tf.Tensor, _: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            never = (tf.range(self.end + 1) < FIRST) | (ends & (number < self.how.fewest))
            return tf.where(tf.where((number >= rows)[:, None], ~ends, never), -float("inf"), logits)

        decoder = self.decoder(tokens, read, most + 2)  # with what begins and ends it
        texts, shares = beam(decoder, tf.fill([batch, 1], self.end), decoder.empty(batch), allowed, width=self.how.beam, most=most + 1,
                             end=self.end, length_penalty=self.how.length_penalty)
        texts = tf.maximum(texts - 1, 0)[:, :most]
        return {"tokens": texts, "confidence": shares / tf.maximum(tf.reduce_sum(tf.cast(texts > 0, tf.float32), 1), 1.0)}
