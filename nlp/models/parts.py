"""Parts that the text models share: the embedding, tokens left out in training, and pooling that padding does not touch."""

import keras
import tensorflow as tf

from nlp.tokens.base import PAD, UNKNOWN
from pipelines.training.embedding_tables import Table

LOW = -1e4  # below any activation, and finite in half precision


class DropTokens(keras.layers.Layer):
    """In training leaves out each token with probability `share`: it becomes number `becomes` (Iyyer et al. 2015, "Deep Unordered
    Composition Rivals Syntactic Methods for Text Classification"). One token of each text always stays."""

    def __init__(self, share: float, becomes: int, **options):
        super().__init__(**options)
        self.share, self.becomes = share, becomes
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """[batch, time] int32 -> the same shape."""
        if not training or not self.share:
            return ids
        drawn = keras.random.uniform(tf.shape(ids), seed=self.seed_generator)
        # the token drawn highest among the real ones stays
        drawn = tf.where(ids != PAD, drawn, -1.0)
        left = (drawn < self.share) & (drawn < tf.reduce_max(drawn, -1, keepdims=True)) & (ids != PAD)
        return tf.where(left, self.becomes, ids)

    def compute_output_spec(self, ids, training: bool = False):
        return keras.KerasTensor(ids.shape, ids.dtype)


class Masked(keras.layers.Layer):
    """[vectors, ids] -> the vectors, 0 where there is padding."""

    keeps_channels = True

    def call(self, inputs):
        vectors, ids = inputs
        return vectors * tf.expand_dims(tf.cast(ids != PAD, vectors.dtype), -1)


class Mask(keras.layers.Layer):
    """[batch, time] int32 -> bool, True for tokens: [batch, time], or [batch, 1, time] as attention takes it (keys)."""

    def __init__(self, keys: bool = False, **options):
        super().__init__(**options)
        self.keys = keys

    def call(self, ids):
        return tf.expand_dims(ids != PAD, 1) if self.keys else ids != PAD

    def compute_output_spec(self, ids):
        return keras.KerasTensor((ids.shape[0], 1, ids.shape[1]) if self.keys else ids.shape, "bool")


class MeanPool(keras.layers.Layer):
    """[vectors, ids] -> the sum of a text's vectors divided by their number (mean), its root (root, root_max) or 1 (sum), float32."""

    def __init__(self, pool: str = "mean", **options):
        super().__init__(**{"dtype": "float32", **options})
        self.pool, self.supports_masking = pool, True  # it knows padding by the numbers

    def call(self, inputs):
        vectors, ids = inputs
        mask = tf.cast(ids != PAD, vectors.dtype)
        # a product of matrices, so that no masked copy of the vectors is made
        total = tf.linalg.matmul(tf.expand_dims(mask, 1), vectors)[:, 0]
        if self.pool == "sum":
            return total
        count = tf.maximum(tf.reduce_sum(mask, -1, keepdims=True), 1.0)
        return total / (count if self.pool == "mean" else tf.sqrt(count))


class MaxPool(keras.layers.Layer):
    """[vectors, ids] -> the largest value of each column among a text's tokens."""

    keeps_channels = True

    def __init__(self, **options):
        super().__init__(**options)
        self.supports_masking = True

    def call(self, inputs):
        vectors, ids = inputs
        return tf.reduce_max(tf.where(tf.expand_dims(ids != PAD, -1), vectors, tf.cast(LOW, vectors.dtype)), 1)


def embedding(size: int, width: int, initializer: keras.initializers.Initializer | None = None) -> Table:
    """The layer `embedding`: numbers [batch, time] -> vectors [batch, time, width] float32; a step costs what its batch looks up."""
    return Table(size, width, initializer, name="embedding")


def assembled(encoder: keras.Model, table: keras.layers.Layer, drop: float, becomes: int, name: str) -> keras.Model:
    """The model from token numbers to logits."""
    ids = keras.Input((None,), dtype="int32", name="tokens")
    used = DropTokens(drop, becomes, name="drop_tokens")(ids) if drop else ids
    return keras.Model(ids, encoder([table(used), used]), name=name)


def encoder_inputs(width: int) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """The encoder's inputs: vectors [batch, time, width] float32 and numbers [batch, time]."""
    return keras.Input((None, width), dtype="float32", name="vectors"), keras.Input((None,), dtype="int32", name="ids")


def logits(features: keras.KerasTensor, classes: int, dropout: float) -> keras.KerasTensor:
    """Dropout and the last dense layer, float32."""
    if dropout:
        features = keras.layers.Dropout(dropout, name="dropout")(features)
    return keras.layers.Dense(classes, dtype="float32", name="classes")(features)


__all__ = ["PAD", "UNKNOWN", "DropTokens", "Mask", "Masked", "MaxPool", "MeanPool", "assembled", "embedding", "encoder_inputs", "logits"]
