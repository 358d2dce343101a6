"""Next item from the history: self-attention (SASRec) or a recurrent network (GRU), with items' vectors shared by input and output."""

from typing import Any

import keras
import tensorflow as tf

from recsys.models.base import ListModel
from recsys.models.store import all_rows, by_number, small


class SequentialModel(ListModel):
    """Vectors of histories [batch, length, width]; see `ScoringModel`.

    When learning, from history and positive [batch, length] and, for the sampled softmax, negatives [samples]: hidden
    [batch, length, width], and positive, negative vectors and biases, or those of all items.

    Args:
        settings: the model section.
        sampled: the loss looks at some items only, so that a large catalogue may be held in a table.
    """

    deviation = 0.05  # of the items' vectors at first

    def __init__(self, settings: Any, *, sampled: bool, **options: Any):
        super().__init__(length=settings.length, name=settings.name, **options)
        self.settings, width = settings, settings.width
        self.vectors = by_number(self.items + 1, width, "item_vectors", initializer=small(self.deviation), sparse=sampled)
        self.bias = by_number(self.items + 1, 1, "item_bias", initializer="zeros", sparse=sampled)
        self.dropout = keras.layers.Dropout(settings.dropout)
        self.network_layers()
        self.norm = keras.layers.LayerNormalization(epsilon=1e-6, name="norm")
        if settings.taste:
            self.taste_norm = keras.layers.LayerNormalization(epsilon=1e-6, name="taste_norm")
            self.taste = keras.layers.Dense(width, use_bias=False, name="taste")

    def network_layers(self) -> None:
        """Makes the layers that `network` needs."""
        raise NotImplementedError

    def network(self, x: tf.Tensor, there: tf.Tensor, training: bool) -> tf.Tensor:
        """[batch, length, width] of the items' vectors, of which `there` [batch, length] bool are of items."""
        raise NotImplementedError

    def hidden(self, history: tf.Tensor, training: bool = False) -> tf.Tensor:
        """[batch, length, width]: after each item of the history, what comes next looks like."""
        there = history > 0
        vectors = tf.cast(self.vectors(history), self.compute_dtype)
        x = vectors = vectors * tf.cast(there, vectors.dtype)[..., None]
        x = self.norm(self.network(x, there, training))
        if self.settings.taste:
            # a sum is as good as a mean before the norm; float32, since it runs over the whole history
            until = tf.cumsum(tf.cast(self.dropout(vectors, training=training), tf.float32), 1)
            x += self.taste(self.taste_norm(until))
        return x

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        hidden = self.dropout(self.hidden(inputs["history"], training), training=training)
        if "negatives" not in inputs:
            items, bias = self.catalogue()
            return {"hidden": hidden, "items": tf.cast(items, hidden.dtype), "bias": bias}
        named = {}
        for name in ("positive", "negatives"):
            named[f"{name}_vectors"] = tf.cast(self.vectors(inputs[name]), hidden.dtype)
            named[f"{name}_bias"] = tf.cast(self.bias(inputs[name])[..., 0], tf.float32)
        return {"hidden": hidden, **named}

    def queries(self, users: tf.Tensor, history: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        return self.hidden(history, training)[:, -1], tf.reduce_any(history > 0, -1)

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        return all_rows(self.vectors), all_rows(self.bias)[:, 0]


class SasrecModel(SequentialModel):
    """Self-attention, in which an item sees those before it."""

    deviation = 0.02

    def network_layers(self) -> None:
        settings = self.settings
        self.positions = self.add_weight(shape=(settings.length, settings.width), initializer=small(0.02), name="positions")
        self.blocks = [Block(settings.width, settings.heads, settings.dropout, name=f"block_{number}") for number in range(settings.depth)]

    def network(self, x: tf.Tensor, there: tf.Tensor, training: bool) -> tf.Tensor:
        x = x * float(self.settings.width) ** 0.5 + tf.cast(self.positions, x.dtype)
        length = self.settings.length
        causal = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        # every place may look at itself, so that no row of the attention is empty
        mask = causal & (there[:, None, :] | tf.eye(length, dtype=tf.bool))
        x = self.dropout(x, training=training)
        for block in self.blocks:
            x = block(x, mask, training=training)
        return x


class GruModel(SequentialModel):
    """Recurrent layers."""

    def network_layers(self) -> None:
        width, depth = self.settings.width, self.settings.depth
        self.blocks = [keras.layers.GRU(width, return_sequences=True, name=f"gru_{number}") for number in range(depth)]

    def network(self, x: tf.Tensor, there: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.dropout(x, training=training)
        for block in self.blocks:
            x = block(x, training=training)
        return x


class Block(keras.layers.Layer):
    """Attention and a small dense network, each added to what it was given, normalised first."""

    def __init__(self, width: int, heads: int, dropout: float, **options: Any):
        super().__init__(**options)
        self.attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=dropout, name="attention")
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-6, name=f"norm_{number}") for number in range(2)]
        self.wide, self.narrow = keras.layers.Dense(2 * width, "gelu", name="wide"), keras.layers.Dense(width, name="narrow")
        self.dropout = keras.layers.Dropout(dropout)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, attention_mask=mask, training=training), training=training)
        y = self.dropout(self.wide(self.norms[1](x)), training=training)
        return x + self.dropout(self.narrow(y), training=training)
