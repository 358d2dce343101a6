"""A pretrained text encoder with a linear layer on the vector of each token. Needs the extra `pretrained`.

The model takes [batch, time, 2] int32, the tokens and how their words are written (nlp.tokens.shapes), and gives logits of the tags
[batch, time, tags] float32. Its layers are those of nlp.models.pretrained: `features` with the `backbone`, and `head`.
"""

from typing import Any

import keras
import tensorflow as tf

from nlp.models import pretrained
from nlp.models.crf import Transitions
from nlp.models.pairs import Column
from nlp.models.parts import PAD, logits
from nlp.settings import TagEncoder
from nlp.tokens.shapes import SHAPES
from pipelines.machine.compiling import for_xla


def build(settings: TagEncoder, *, facts: dict[str, Any], classes: int) -> keras.Model:
    """From tokens (the preset's plus 1) and shapes to logits of `classes` tags; with settings.chain to {"logits", "transitions"}, the
    latter those of nlp.models.crf."""
    backbone = pretrained.encoder(settings, facts)
    tokens = keras.Input((None, 2), dtype="int32", name="tokens")
    ids = Column(0, name="texts")(tokens)
    size = facts.get("window")
    rows = pretrained.Windows(size, name="windows")(ids)[0] if size else ids
    (vectors,) = pretrained.sequences(backbone, rows)
    if size:
        vectors = Unwindowed(size, name="unwindowed")([vectors, ids])
    if settings.shapes:
        shapes = Shapes(name="shapes")(Column(1, name="written")(tokens))
        vectors = keras.layers.Concatenate(dtype="float32", name="both")([vectors, shapes])
    features = keras.Model(tokens, vectors, name="features")
    inputs = keras.Input((None, features.output_shape[-1]), dtype="float32", name="features")
    outputs = logits(inputs, classes, settings.dropout)
    if settings.chain:
        outputs = {"logits": outputs, "transitions": Transitions(classes, name="chain")(inputs)}
    head = keras.Model(inputs, outputs, name="head")
    return keras.Model(tokens, head(features(tokens)), name=settings.name)


class Shapes(keras.layers.Layer):
    """[batch, time] int32 -> the shapes of a token's word and of the tokens before and after it, one after another,
    [batch, time, 3 x SHAPES] float32 of 0 and 1."""

    def call(self, shapes):
        padded = tf.pad(shapes, [[0, 0], [1, 1]])
        return tf.concat([tf.one_hot(ids, SHAPES) for ids in (shapes, padded[:, :-2], padded[:, 2:])], -1)

    def compute_output_spec(self, shapes):
        return keras.KerasTensor((*shapes.shape, 3 * SHAPES), "float32")


class Unwindowed(keras.layers.Layer):
    """[vectors of windows, tokens of texts] -> the vectors where their tokens stand, [batch, time, width]; 0 at the marks. The windows are
    those of nlp.models.pretrained.Windows of the same size."""

    def __init__(self, size: int, **options):
        super().__init__(**options)
        self.size = size

    def call(self, inputs):
        vectors, ids = inputs
        inner = tf.maximum(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), 1) - 2, 0)
        count = tf.maximum(-(-inner // (self.size - 2)), 1)
        each = tf.maximum(-(-inner // count), 1)
        place = tf.range(tf.shape(ids)[1])[None] - 1  # between the marks
        there = (place >= 0) & (place < inner[:, None])
        window = tf.where(there, place // each[:, None], 0)
        begun = tf.range(tf.reduce_max(count)) < count[:, None]  # [batch, windows]
        if for_xla():  # windows without any token stand among the others
            begun = tf.ones_like(begun)
        rank = tf.reshape(tf.cumsum(tf.cast(tf.reshape(begun, [-1]), tf.int32)) - 1, tf.shape(begun))
        row = tf.gather(rank, window, batch_dims=1)
        time = tf.shape(vectors)[1]
        flat = tf.reshape(vectors, [-1, vectors.shape[-1]])
        found = tf.gather(flat, tf.where(there, row * time + place - window * each[:, None] + 1, 0))
        return tf.where(there[..., None], found, tf.zeros([], vectors.dtype))

    def compute_output_spec(self, inputs):
        vectors, ids = inputs
        return keras.KerasTensor((*ids.shape, vectors.shape[-1]), vectors.dtype)
