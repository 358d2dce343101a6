"""Next item from the history: self-attention (SASRec, HSTU) or a recurrent network (GRU)."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from pipelines.outputs.decoder import attention, by_head, joined_heads
from recsys.data.catalogue import Catalogue
from recsys.models.base import ListModel
from recsys.models.store import EntityVectors, FeatureStore, feature_spec, small

EPSILON = 1e-6
NEVER = -1e9


class SequentialModel(ListModel):
    """Vectors of histories [batch, length, width]; see `ScoringModel`.

    When learning, from history and positive [batch, length], of windows that share a row also segment and back [batch, length] (see
    `WindowSource`), and, for the sampled softmax, negatives [samples]: hidden [batch, length, width], and positive, negative vectors and
    biases, or those of all items.

    Args:
        settings: the model section.
        sampled: the loss looks at some items only, so that a large catalogue may be held in a table.
        features: facts of the feature columns; those of items are used.
    """

    deviation = 0.05  # of the items' vectors at first

    def __init__(self, settings: Any, *, sampled: bool, features: Sequence[Mapping[str, Any]] = (), **options: Any):
        super().__init__(length=settings.length, name=settings.name, **options)
        self.settings, width = settings, settings.width
        facts = [one for one in features if one["of"] == "item"]
        self.columns = FeatureStore(feature_spec(facts, "item", self.items), name="item_columns") if facts else None

        alone = settings.id_dropout if self.new_items else 0.0

        def vectors(name: str, *, bias: bool) -> EntityVectors:
            return EntityVectors(self.items + 1, width, new=self.new_items, store=self.columns, facts=facts, bias=bias,
                                 id_dropout=alone, deviation=self.deviation, column_deviation=self.deviation, sparse=sampled, name=name)

        self.vectors = vectors("item", bias=settings.tied)
        self.answers = self.vectors if settings.tied else vectors("answer", bias=True)
        self.dropout = keras.layers.Dropout(settings.dropout)
        self.network_layers()
        self.norm = keras.layers.LayerNormalization(epsilon=EPSILON, name="norm")
        if settings.taste:
            self.taste_norm = keras.layers.LayerNormalization(epsilon=EPSILON, name="taste_norm")
            self.taste = keras.layers.Dense(width, use_bias=False, name="taste")

    def fill(self, catalogue: Catalogue) -> None:
        super().fill(catalogue)
        if self.columns is not None:
            self.columns.fill(catalogue.item_features)

    def freeze(self) -> None:
        if self.columns is not None:
            super().freeze()

    def network_layers(self) -> None:
        """Makes the layers that `network` needs."""
        raise NotImplementedError

    def network(self, x: tf.Tensor, segment: tf.Tensor, back: tf.Tensor | None, training: bool) -> tf.Tensor:
        """[batch, length, width] of the items' vectors, of which those of one `segment` [batch, length] int32 belong together; 0: no item.

        Args:
            back: [batch, length] int32, how many items of its window stand behind each, the one that comes next included; None: the row is
                one window, which ends with it.
        """
        raise NotImplementedError

    def hidden(self, history: tf.Tensor, segment: tf.Tensor | None = None, back: tf.Tensor | None = None,
               training: bool = False) -> tf.Tensor:
        """[batch, length, width]: after each item of the history, what comes next looks like."""
        there = history > 0
        vectors = tf.cast(self.vectors(history, training=training)[0], self.compute_dtype)
        x = vectors = vectors * tf.cast(there, vectors.dtype)[..., None]
        x = self.norm(self.network(x, tf.cast(there, tf.int32) if segment is None else segment, back, training))
        if self.settings.taste:
            # a sum is as good as a mean before the norm; float32, since it runs over the whole history
            vectors = tf.cast(self.dropout(vectors, training=training), tf.float32)
            until = tf.cumsum(vectors, 1) if segment is None else tf.matmul(tf.cast(before(segment), tf.float32), vectors)
            x += self.taste(self.taste_norm(until))
        return x

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        hidden = self.hidden(inputs["history"], inputs.get("segment"), inputs.get("back"), training)
        hidden = self.dropout(hidden, training=training)
        if "negatives" not in inputs:
            items, bias = self.answers.all(training)
            assert bias is not None
            if self.new_items:  # that nobody had them yet says nothing of them
                bias = tf.concat([bias[:-self.new_items], tf.fill([self.new_items], NEVER)], 0)
            return {"hidden": hidden, "items": tf.cast(items, hidden.dtype), "bias": bias}
        named = {}
        for name in ("positive", "negatives"):
            vectors, named[f"{name}_bias"] = self.answers(inputs[name], training=training)
            named[f"{name}_vectors"] = tf.cast(vectors, hidden.dtype)
        return {"hidden": hidden, **named}

    def queries(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.hidden(history)[:, -1], tf.reduce_any(history > 0, -1)

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self.answers.all()


class SasrecModel(SequentialModel):
    """Self-attention, in which an item sees those before it."""

    deviation = 0.02

    def network_layers(self) -> None:
        settings = self.settings
        self.positions = self.add_weight(shape=(settings.length, settings.width), initializer=small(0.02), name="positions")
        self.blocks = [self.block(number) for number in range(settings.depth)]

    def block(self, number: int) -> keras.layers.Layer:
        settings = self.settings
        return Block(settings.width, settings.heads, settings.dropout, name=f"block_{number}")

    def network(self, x: tf.Tensor, segment: tf.Tensor, back: tf.Tensor | None, training: bool) -> tf.Tensor:
        positions = tf.cast(self.positions, x.dtype)
        x = x * float(self.settings.width) ** 0.5 + (positions if back is None else tf.gather(
            positions, tf.minimum(self.settings.length - back, self.settings.length - 1)))
        seen = before(segment)
        x = self.dropout(x, training=training)
        for block in self.blocks:
            x = block(x, seen, training=training)
        return x


class HstuModel(SasrecModel):
    """Attention that adds up what it finds, in place of averaging it: how often counts, too."""

    def block(self, number: int) -> keras.layers.Layer:
        settings = self.settings
        return AddingBlock(settings.width, settings.heads, settings.dropout, settings.length, name=f"block_{number}")


class GruModel(SequentialModel):
    """Recurrent layers."""

    def network_layers(self) -> None:
        width, depth = self.settings.width, self.settings.depth
        self.blocks = [keras.layers.GRU(width, return_sequences=True, name=f"gru_{number}") for number in range(depth)]

    def network(self, x: tf.Tensor, segment: tf.Tensor, back: tf.Tensor | None, training: bool) -> tf.Tensor:
        x = self.dropout(x, training=training)
        for block in self.blocks:
            x = block(x, training=training)
        return x


class Block(keras.layers.Layer):
    """Attention and a small dense network, each added to what it was given, normalised first. A new one hands on what it is given."""

    def __init__(self, width: int, heads: int, dropout: float, **options: Any):
        super().__init__(**options)
        self.heads = heads
        self.mixed, self.out = keras.layers.Dense(3 * width, name="mixed"), nothing_yet(width, "out")
        self.norms = [keras.layers.LayerNormalization(epsilon=EPSILON, name=f"norm_{number}") for number in range(2)]
        self.wide, self.narrow = keras.layers.Dense(2 * width, "gelu", name="wide"), nothing_yet(width, "narrow")
        self.dropout = keras.layers.Dropout(dropout)

    def call(self, x: tf.Tensor, seen: tf.Tensor, training: bool = False) -> tf.Tensor:
        """`seen` [batch, length, length] bool: what each sees."""
        query, key, value = (by_head(part, self.heads) for part in tf.split(self.mixed(self.norms[0](x)), 3, axis=-1))
        found = joined_heads(attention(query, key, value, tf.where(seen, 0.0, NEVER)[:, None]))
        x = x + self.dropout(self.out(tf.ensure_shape(found, x.shape)), training=training)
        y = self.dropout(self.wide(self.norms[1](x)), training=training)
        return x + self.dropout(self.narrow(y), training=training)


class AddingBlock(keras.layers.Layer):
    """Norm(sum of silu(query . key + bias by distance) value) * gate, added to what it was given (Zhai et al. 2024, arXiv:2402.17152,
    equations 1 to 3, without times). A new one hands on what it is given."""

    def __init__(self, width: int, heads: int, dropout: float, length: int, **options: Any):
        super().__init__(**options)
        self.heads, self.length = heads, length
        self.mixed, self.out = keras.layers.Dense(4 * width, "silu", name="mixed"), nothing_yet(width, "out")
        self.norms = [keras.layers.LayerNormalization(epsilon=EPSILON, name=f"norm_{number}") for number in range(2)]
        self.distances = self.add_weight(shape=(length, heads), initializer=small(0.02), name="distances")
        self.dropout = keras.layers.Dropout(dropout)

    def call(self, x: tf.Tensor, seen: tf.Tensor, training: bool = False) -> tf.Tensor:
        """`seen` [batch, length, length] bool: what each sees."""
        *parts, gate = tf.split(self.mixed(self.norms[0](x)), 4, axis=-1)
        query, key, value = (by_head(part, self.heads) for part in parts)
        places = tf.range(self.length)
        bias = tf.gather(tf.cast(self.distances, x.dtype), tf.maximum(places[:, None] - places, 0))  # [length, length, heads]
        weights = tf.nn.silu(tf.matmul(query, key, transpose_b=True) + tf.transpose(bias, [2, 0, 1]))
        weights *= tf.cast(seen, x.dtype)[:, None] / self.length
        found = tf.ensure_shape(joined_heads(tf.matmul(weights, value)), x.shape)
        return x + self.dropout(self.out(self.norms[1](found) * gate), training=training)


def before(segment: tf.Tensor) -> tf.Tensor:
    """[batch, length, length] bool: which places each sees: itself, and those before it of its segment [batch, length]."""
    places = tf.range(segment.shape[1])
    return (places[:, None] >= places) & (segment[:, :, None] == segment[:, None, :])


def nothing_yet(width: int, name: str) -> keras.layers.Dense:
    """What ends a branch: until it has learned, the branch adds nothing, and the network knows the latest item as it is."""
    return keras.layers.Dense(width, kernel_initializer="zeros", name=name)
