"""A pretrained text encoder that reads passages behind their questions, and a linear layer on the vector of each token. Needs the extra
`pretrained`.

The model takes [batch, time, 2] int32 (nlp.tokens.passages) and gives [batch, time, 2] float32: logits of an answer's first token and of
its last one, -1e9 where none can be. Its layers are those of nlp.models.pretrained: `features` with the `backbone`, and `head`.
"""

from typing import Any

import keras
import tensorflow as tf

from nlp.models import pretrained
from nlp.models.pairs import Column
from nlp.models.parts import PAD, logits
from nlp.settings import AnswerEncoder
from nlp.tokens.passages import BEGINS, MARK, QUESTION, WITHIN
from pipelines.machine.compiling import for_xla

IMPOSSIBLE = -1e9


def build(settings: AnswerEncoder, *, facts: dict[str, Any]) -> keras.Model:
    """From tokens (the preset's plus 1) and what they are to the logits of both ends of an answer."""
    backbone = pretrained.encoder(settings, facts)
    tokens = keras.Input((None, 2), dtype="int32", name="tokens")
    windows = _windows(settings, facts)
    rows = PassageWindows(**windows, name="windows")(tokens) if windows else tokens
    segments = Segments(name="segments")(rows)
    (vectors,) = pretrained.sequences(backbone, Column(0, name="texts")(rows), segments=segments)
    if windows:
        vectors = PassageUnwindowed(**windows, name="unwindowed")([vectors, tokens])
    features = keras.Model(tokens, vectors, name="features")
    inputs = keras.Input((None, features.output_shape[-1]), dtype="float32", name="features")
    head = keras.Model(inputs, logits(inputs, 2, settings.dropout), name="head")
    ends = Ends(bool(facts["unanswerable"]), name="ends")([head(features(tokens)), tokens])
    return keras.Model(tokens, ends, name=settings.name)


def _windows(settings: AnswerEncoder, facts: dict[str, Any]) -> dict[str, int]:
    """The arguments of PassageWindows; empty where the encoder sees all at once."""
    size = facts.get("window")
    if size is None:
        return {}
    overlap = settings.overlap or max(min(size // 3, (size - settings.question - 4) // 2), 1)
    return {"size": size, "overlap": overlap, "question": settings.question}


class Segments(keras.layers.Layer):
    """[batch, time, 2] int32 -> 1 where the passage stands with the mark behind it, [batch, time] int32."""

    def call(self, tokens):
        return tf.cast(tokens[:, :, 1] != QUESTION, tf.int32)

    def compute_output_spec(self, tokens):
        return keras.KerasTensor(tokens.shape[:2], "int32")


class Ends(keras.layers.Layer):
    """[logits, tokens] -> logits [batch, time, 2] float32, IMPOSSIBLE where no answer begins or ends: one begins with a word of the passage
    and ends with one. With `nothing` the first token, which is no word, stands for no answer."""

    def __init__(self, nothing: bool, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.nothing = nothing

    def call(self, inputs):
        logits, tokens = inputs
        kinds = tokens[:, :, 1]
        after = tf.pad(kinds, [[0, 0], [0, 1]])[:, 1:]
        last = ((kinds == BEGINS) | (kinds == WITHIN)) & (after != WITHIN)
        possible = tf.stack([kinds == BEGINS, last], 2)
        if self.nothing:
            possible |= (tf.range(tf.shape(kinds)[1]) == 0)[None, :, None]
        return tf.where(possible, tf.cast(logits, tf.float32), IMPOSSIBLE)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs[1].shape[:2], 2), "float32")


class _Windowing(keras.layers.Layer):
    """How passages are cut into windows of `size` tokens, each with the question before it.

    The window k of a passage begins k steps into it, and the last one at its end, so that all are full; neighbours have `overlap` tokens
    or more in common.
    """

    def __init__(self, size: int, overlap: int, question: int, **options):
        super().__init__(**options)
        self.size, self.overlap, self.question = size, overlap, question

    def geometry(self, tokens):
        """Of texts [batch, time, 2]: tokens before the passage, of the passage, behind it, and those of a window's passage, [batch, 1]
        int32 each; the first token of each window in the passage, and whether there is such a window, [batch, windows]."""
        kinds = tokens[:, :, 1]
        length, passage, behind = (tf.reduce_sum(tf.cast(which, tf.int32), 1, keepdims=True) for which in (
            tokens[:, :, 0] != PAD, (kinds == WITHIN) | (kinds == BEGINS), kinds == MARK))
        front = length - passage - behind
        room = self.size - front - behind
        step = tf.maximum(room - self.overlap, 1)
        beyond = tf.maximum(passage - room, 0)
        count = 1 + -(-beyond // step)
        # by the shape alone, which XLA knows: a question with its marks is never longer
        least = max(self.size - self.question - 4 - self.overlap, 1)
        most = 1 + -(-tf.maximum(tf.shape(tokens)[1] - self.size, 0) // least)
        window = tf.range(most)[None]
        return front, passage, behind, room, tf.minimum(window * step, beyond), window < count


class PassageWindows(_Windowing):
    """[batch, time, 2] int32 -> the windows of all, [windows, time of one, 2].

    Where a whole model is compiled by XLA, which wants to know their number, and in training up to a multiple of `MULTIPLE`, so that few
    shapes are compiled, empty windows stand among or behind them.
    """

    MULTIPLE = 4

    def call(self, tokens, training=False):
        front, passage, behind, room, starts, there = self.geometry(tokens)
        place = tf.range(tf.minimum(tf.shape(tokens)[1], self.size))[None, None]
        front, passage, behind, room = (value[:, :, None] for value in (front, passage, behind, room))
        taken = tf.minimum(room, passage)
        source = tf.where(place < front, place, tf.where(place < front + taken, place + starts[:, :, None], place + passage - taken))
        inside = (place < front + taken + behind) & there[:, :, None]
        rows = tf.gather(tokens, tf.where(inside, source, 0), batch_dims=1) * tf.cast(inside, tf.int32)[..., None]
        rows = tf.reshape(rows, [-1, tf.shape(rows)[2], 2])
        if for_xla():
            return rows
        rows = tf.gather(rows, tf.where(tf.reshape(there, [-1]))[:, 0])
        return tf.pad(rows, [[0, -tf.shape(rows)[0] % self.MULTIPLE], [0, 0], [0, 0]]) if training else rows

    def compute_output_spec(self, tokens, training=False):
        return keras.KerasTensor((None, None, 2), "int32")


class PassageUnwindowed(_Windowing):
    """[vectors of windows, tokens of texts] -> the vectors where their tokens stand, [batch, time, width]: of the windows that have a token
    the one counts in which it stands farthest from both ends; of what is no part of the passage, the first window; 0 behind it."""

    def call(self, inputs):
        vectors, tokens = inputs
        front, passage, _, room, starts, there = self.geometry(tokens)
        own = tf.range(tf.shape(tokens)[1])[None] - front  # place in the passage
        within = own[:, None] - starts[:, :, None]
        margin = tf.minimum(within, room[:, :, None] - 1 - within)
        window = tf.argmax(tf.where(there[:, :, None], margin, -1), 1, tf.int32)  # [batch, time]
        inside = (own >= 0) & (own < passage)
        window = tf.where(inside, window, 0)
        place = tf.where(inside, own - tf.gather(starts, window, batch_dims=1) + front, own + front)
        known = own < passage
        begun = tf.ones_like(there) if for_xla() else there
        rank = tf.reshape(tf.cumsum(tf.cast(tf.reshape(begun, [-1]), tf.int32)) - 1, tf.shape(begun))
        row = tf.gather(rank, window, batch_dims=1)
        flat = tf.reshape(vectors, [-1, vectors.shape[-1]])
        found = tf.gather(flat, tf.where(known, row * tf.shape(vectors)[1] + place, 0))
        return tf.where(known[..., None], found, tf.zeros([], vectors.dtype))

    def compute_output_spec(self, inputs):
        vectors, tokens = inputs
        return keras.KerasTensor((*tokens.shape[:2], vectors.shape[-1]), vectors.dtype)
