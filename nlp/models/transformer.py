"""A small transformer encoder (Vaswani et al. 2017) with the norm before each part (Xiong et al. 2020), pooled to the mean."""

import keras
import numpy as np
import tensorflow as tf

from nlp.models.parts import UNKNOWN, Mask, MeanPool, assembled, embedding, encoder_inputs, logits
from nlp.settings import Transformer


class Places(keras.layers.Layer):
    """Adds a learned vector for each place, which starts as sine waves of 0.02 height, to [batch, time, width].

    Texts have at most `limit` tokens, but batches are padded to a multiple of the task's length_unit: positions beyond are padding,
    and get nothing added.
    """

    def __init__(self, limit: int, **options):
        super().__init__(**options)
        self.limit = limit

    def build(self, shape):
        self.table = self.add_weight(shape=(self.limit, shape[-1]), initializer=lambda shape, dtype: 0.02 * _waves(*shape), name="places")

    def call(self, vectors):
        table = tf.cast(tf.convert_to_tensor(self.table), vectors.dtype)
        time = tf.shape(vectors)[1]
        return vectors + tf.pad(table[:time], [[0, tf.maximum(time - self.limit, 0)], [0, 0]])


def build(settings: Transformer, *, size: int, classes: int, limit: int) -> keras.Model:
    """See `nlp.models.build`."""
    layers = keras.layers
    vectors, ids = encoder_inputs(settings.width)
    mask = Mask(keys=True, name="mask")(ids)
    x = Places(limit, name="places")(vectors)
    if settings.dropout:
        x = layers.Dropout(settings.dropout, name="dropout_vectors")(x)
    for number in range(1, settings.depth + 1):
        x = _block(x, mask, settings, number)
    x = layers.LayerNormalization(epsilon=1e-6, name="last_norm")(x)
    x = MeanPool(name="mean")([x, ids])
    encoder = keras.Model([vectors, ids], logits(x, classes, settings.dropout), name="encoder")
    table = embedding(size, settings.width, keras.initializers.RandomNormal(stddev=0.02))
    return assembled(encoder, table, settings.drop_tokens, UNKNOWN, "transformer")


def _block(x: keras.KerasTensor, mask: keras.KerasTensor, settings: Transformer, number: int) -> keras.KerasTensor:
    """Attention, then a dense layer, each after its norm and beside the identity."""
    layers, name = keras.layers, f"block{number}"
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    attention = layers.MultiHeadAttention(settings.of_block("heads", number), settings.size_of_head, dropout=settings.dropout,
                                          name=f"{name}_attention")
    x = layers.Add(name=f"{name}_add1")([x, attention(y, y, attention_mask=mask)])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(settings.of_block("hidden", number), activation="gelu", name=f"{name}_dense1")(y)
    y = layers.Dense(settings.width, name=f"{name}_dense2")(y)
    if settings.dropout:
        y = layers.Dropout(settings.dropout, name=f"{name}_dropout")(y)
    return layers.Add(name=f"{name}_add2")([x, y])


def _waves(limit: int, width: int) -> np.ndarray:
    """Sine and cosine of each place at falling frequencies, [limit, width] float32."""
    half = (width + 1) // 2
    angles = np.arange(limit)[:, None] / 10_000 ** (np.arange(half) / half)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width].astype(np.float32)
