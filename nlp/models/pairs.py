"""A pretrained text encoder for pairs of texts, as a cross-encoder or a bi-encoder. Needs the extra `pretrained`.

Models take [batch, time, 2] int32, the tokens of nlp.tokens.pairs: of a bi-encoder the two texts beside one another, of a cross-encoder
both after one another and where the second stands. Their layers are those of nlp.models.pretrained: `features` with the `backbone`, and
`head`.
"""

from typing import Any

import keras
import tensorflow as tf

from nlp.models import pretrained
from nlp.settings import BiEncoder, CrossEncoder


def build(settings: CrossEncoder | BiEncoder, *, facts: dict[str, Any], classes: int) -> keras.Model:
    """From tokens (the preset's plus 1) to logits or numbers [batch, classes] float32; with 0 classes, of a bi-encoder, to the vectors of
    both texts, of length 1, [batch, 2, width] float32: of as many texts as there are columns."""
    backbone = pretrained.encoder(settings, facts)
    tokens = keras.Input((None, None if classes == 0 else 2), dtype="int32", name="tokens")
    if isinstance(settings, CrossEncoder):
        rows, segments = Column(0, name="texts")(tokens), Column(1, name="segments")(tokens)
        (sequence,) = pretrained.sequences(backbone, rows, segments=segments)
        compared = pretrained.pooled(sequence, rows, facts["pool"])
    else:
        rows = OneByOne(name="texts")(tokens)
        (sequence,) = pretrained.sequences(backbone, rows)
        if classes == 0:
            every = BesideOneAnother(name="both")([pretrained.pooled(sequence, rows, facts["pool"]), tokens])
            features = keras.Model(tokens, every, name="features")
            inputs = keras.Input((None, features.output_shape[-1]), dtype="float32", name="features")
            head = keras.Model(inputs, UnitVectors(name="vectors")(inputs), name="head")
            return keras.Model(tokens, head(features(tokens)), name=settings.name)
        cosine = compares_by_cosine(settings, facts)
        compared = Compared(cosine, name="compared")(pretrained.pooled(sequence, rows, facts["pool"]))
    features = keras.Model(tokens, compared, name="features")
    dropout = settings.dropout if features.output_shape[-1] > 1 else 0.0  # one number dropped would leave nothing
    return keras.Model(tokens, pretrained.head(features, classes, dropout)(features(tokens)), name=settings.name)


def compares_by_cosine(settings: BiEncoder, facts: dict[str, Any]) -> bool:
    """Whether the last layer sees the cosine alone."""
    return settings.compare == "cosine" or (settings.compare is None and "classes" not in facts)


class Column(keras.layers.Layer):
    """[batch, time, 2] int32 -> one of both columns, [batch, time]."""

    def __init__(self, number: int, **options):
        super().__init__(**options)
        self.number = number

    def call(self, tokens):
        return tokens[:, :, self.number]

    def compute_output_spec(self, tokens):
        return keras.KerasTensor(tokens.shape[:2], "int32")


class OneByOne(keras.layers.Layer):
    """[batch, time, texts] int32 -> the texts of all, the second of a pair after its first: [texts x batch, time]."""

    def call(self, tokens):
        # by their places: a transposition of whole numbers makes TensorFlow complain of processors without AVX-512
        batch, time, texts = tf.unstack(tf.shape(tokens))
        places = time * texts * tf.range(batch)[:, None, None] + tf.range(texts)[:, None] + texts * tf.range(time)
        return tf.gather(tf.reshape(tokens, [-1]), tf.reshape(places, [-1, time]))

    def compute_output_spec(self, tokens):
        return keras.KerasTensor((None, tokens.shape[1]), "int32")


class Compared(keras.layers.Layer):
    """Vectors of root mean square 1, [2 x batch, width], as `OneByOne` has their texts -> the cosine of each pair [batch, 1], or u, v,
    |u - v| and u * v beside one another [batch, 4 x width] float32."""

    def __init__(self, cosine: bool, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.cosine = cosine

    def call(self, vectors):
        first, second = tf.unstack(tf.reshape(vectors, [-1, 2, vectors.shape[-1]]), axis=1)
        if self.cosine:
            return tf.reduce_mean(first * second, -1, keepdims=True)
        return tf.concat([first, second, tf.abs(first - second), first * second], -1)

    def compute_output_spec(self, vectors):
        return keras.KerasTensor((None, 1 if self.cosine else 4 * vectors.shape[-1]), "float32")


class BesideOneAnother(keras.layers.Layer):
    """[vectors [texts x batch, width], as `OneByOne` has their texts, tokens [batch, time, texts]] -> [batch, texts, width] float32."""

    def __init__(self, **options):
        super().__init__(**{"dtype": "float32", **options})

    def call(self, inputs):
        vectors, tokens = inputs
        return tf.reshape(vectors, [tf.shape(tokens)[0], tf.shape(tokens)[2], vectors.shape[-1]])

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, None, inputs[0].shape[-1]), "float32")


class UnitVectors(keras.layers.Layer):
    """Vectors [batch, texts, width] -> the same, each of length 1, float32."""

    def __init__(self, **options):
        super().__init__(**{"dtype": "float32", **options})

    def call(self, vectors):
        return tf.math.l2_normalize(vectors, -1)

    def compute_output_spec(self, vectors):
        return keras.KerasTensor(vectors.shape, "float32")
