"""Ratings and clicks: DCN-v2 or DLRM over ids, features, and attention to the user's earlier ratings.

The sum of what is known without them (mean, user's and item's bias) and what the network adds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import keras_rs
import tensorflow as tf

from recsys.data.known import ALL, AROUND, BEFORE
from recsys.models.store import FeatureStore, FeatureVectors, HistoryStore, KeptIds, by_number, feature_spec, small

HISTORY_VALUES = {"residual": "float32", "time": "int64"}
LAG = 3.0  # scale of the logarithm of a rating's age, s, in the plain mean of recent ratings


class RankingModel(keras.Model):
    """[batch] float32: a rating, or the logit of a click.

    Inputs: `user`, `item` [batch] int32 (0: unknown) where the data have them; each feature of the events by name; with a history
    `at` [batch] int64 (the place in the store that the example's history ends before, or BEFORE, ALL or AROUND) and `time` [batch]
    int64, s.

    Args:
        settings: the model section.
        users, items: known ones; 0 where the data have no such ids. The last `new_users` and `new_items` by their columns alone.
        events: ratings in the history store; 0 for none.
        features: facts of the feature columns.
        mean: the answer before anything is known of an example: the mean rating, or the logit of the share of clicks.
        scale: the unit in which the model adds to it, such as the standard deviation of ratings; whatever their scale, it learns the same.
        timeless: times are an order alone, which says nothing of how old a rating is.
    """

    def __init__(
        self,
        settings: Any,
        *,
        users: int,
        items: int,
        events: int,
        features: Sequence[Mapping[str, Any]],
        mean: float,
        scale: float = 1.0,
        timeless: bool = False,
        new_users: int = 0,
        new_items: int = 0,
    ):
        super().__init__(name=settings.name)
        self.timeless, self.scale = timeless, scale
        width = settings.width
        self.settings, self.users, self.items = settings, users, items
        self.mean = self.add_weight(shape=(), initializer=keras.initializers.Constant(mean), trainable=False, name="mean", autocast=False)
        self.user_vectors: Any = None
        self.user_bias: Any = None
        self.item_vectors: Any = None
        self.item_bias: Any = None
        if users:
            self.user_vectors, self.user_bias = _ids(users - new_users, width, "user")
        if items:
            self.item_vectors, self.item_bias = _ids(items - new_items, width, "item")
        self.known = {"user": users - new_users, "item": items - new_items}
        self.kept = {of: KeptIds(count + 1, new, settings.id_dropout if new else 0.0, name=f"kept_{of}s")
                     for of, count, new in (("user", users, new_users), ("item", items, new_items))}
        self.stores = {
            of: FeatureStore(spec, name=f"{of}_features")
            for of, count in (("user", users), ("item", items))
            if (spec := feature_spec(features, of, count))
        }
        self.features = FeatureVectors(features, width, name="features")
        self.item_facts = [one for one in features if one["of"] == "item" and one["kind"] != "number"]
        self.history: Any = None
        if settings.history:
            self.history = HistoryStore(users, events, HISTORY_VALUES, name="history")
            self.query, self.key, self.value = (by_number(self.known["item"] + 1, width, name) for name in ("query", "key", "value"))
            self.query_features, self.key_features = (
                FeatureVectors(self.item_facts, width, name=f"{name}_features") for name in ("query", "key")
            )
            self.age = self.add_weight(shape=(), initializer=keras.initializers.Constant(-0.1), name="age", autocast=False)
        self.dropout = keras.layers.Dropout(settings.dropout)
        self.interaction_layers()
        self.deep = [keras.layers.Dense(units, "relu", name=f"deep_{number}") for number, units in enumerate(settings.hidden)]
        self.last = keras.layers.Dense(1, kernel_initializer=small(0.01), dtype="float32", name="last")

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        vectors, numbers, total = [], [], tf.constant(0.0)
        values, kept = dict(inputs), {}
        for of, table, bias in (("user", self.user_vectors, self.user_bias), ("item", self.item_vectors, self.item_bias)):
            if table is None:
                continue
            kept[of] = self.kept[of](inputs[of], training=training)
            some = tf.minimum(inputs[of], self.known[of])  # what stands for a new one does not count
            vectors.append(tf.cast(table(some), self.compute_dtype) * tf.cast(kept[of], self.compute_dtype)[:, None])
            total += tf.cast(bias(some), tf.float32)[:, 0] * kept[of]
            if of in self.stores:
                values |= self.stores[of](inputs[of])
        more, numbers = self.features(values)
        vectors += more
        if self.history is not None:
            attended, sums = self._history(inputs, tf.cast(kept["item"], self.compute_dtype)[:, None])
            vectors.append(attended)
            numbers += sums
        vectors = [self.dropout(vector, training=training) for vector in vectors]
        plain = tf.concat([tf.cast(number, self.compute_dtype) for number in numbers], -1) if numbers else None
        network = self.last(self.interactions(vectors, plain, training))[:, 0]
        return tf.cast(self.mean, tf.float32) + self.scale * (total + network)

    def interaction_layers(self) -> None:
        """Makes the layers that `interactions` needs beside `deep`."""
        raise NotImplementedError

    def interactions(self, vectors: list[tf.Tensor], numbers: tf.Tensor | None, training: bool) -> tf.Tensor:
        """What vectors [batch, width] each and numbers [batch, any], None where there are none, say together: [batch, any]."""
        raise NotImplementedError

    def _history(self, inputs: dict[str, tf.Tensor], kept: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Attention of the item to the user's earlier ratings, each as what it was above or below its biases.

        Returns the weighted sum of value vectors [batch, width], and as numbers [batch, 1]: the weighted sum of the residuals,
        their mean by age, their plain mean, and how many there are (logarithm).
        """
        store = self.history
        start, stop = store.bounds(inputs["user"])
        at, times = inputs["at"], tf.convert_to_tensor(store.values["time"])
        newest = tf.gather(times, tf.maximum(stop - 1, 0))
        now = tf.where(at == ALL, newest + 1, inputs["time"])
        before = store.before(start, stop, inputs["time"], "time")
        known = tf.where((at == ALL) | (at == AROUND), stop, tf.where(at == BEFORE, before, tf.minimum(at, stop)))
        count = tf.math.log1p(tf.cast(known - start, tf.float32))[:, None] / 5.0
        # as many before as after, and more of one side where the other has too few
        length = self.settings.history
        around = tf.minimum(tf.maximum(before + length // 2, start + length), stop)
        places, there = store.places(start, tf.where(at == AROUND, around, known), length)
        items = tf.where(there, tf.gather(tf.convert_to_tensor(store.items), places), 0)
        residual = tf.where(there, tf.gather(tf.convert_to_tensor(store.values["residual"]), places), 0.0)
        lag = tf.abs(now[:, None] - tf.gather(times, places))
        age = tf.math.log1p(tf.cast(tf.zeros_like(lag) if self.timeless else lag, tf.float32))
        query = tf.cast(self.query(tf.minimum(inputs["item"], self.known["item"])), self.compute_dtype) * kept
        query += self._features_of(self.query_features, inputs["item"])
        keys = tf.cast(self.key(items), self.compute_dtype) + self._features_of(self.key_features, items)
        scores = tf.cast(tf.einsum("bw,blw->bl", query, keys), tf.float32) + tf.cast(self.age, tf.float32) * age
        scores = tf.where(there, scores, -1e9)
        # a place that holds nothing takes what no rating deserves
        weights = tf.nn.softmax(tf.concat([scores, tf.zeros_like(scores[:, :1])], -1))[:, :-1] * residual
        attended = tf.einsum("bl,blw->bw", tf.cast(weights, keys.dtype), tf.cast(self.value(items), keys.dtype))
        recent = tf.where(there, tf.exp(-age / LAG), 0.0)
        lately = tf.reduce_sum(recent * residual, -1, keepdims=True) / (tf.reduce_sum(recent, -1, keepdims=True) + 1.0)
        seen = tf.reduce_sum(tf.cast(there, tf.float32), -1, keepdims=True)
        usually = tf.reduce_sum(residual, -1, keepdims=True) / (seen + 2.0)
        return attended, [tf.reduce_sum(weights, -1, keepdims=True), lately, usually, count]

    def _features_of(self, layer: FeatureVectors, items: tf.Tensor) -> Any:
        vectors, _ = layer(self.stores["item"](items)) if layer.facts else ([], [])
        return tf.add_n(vectors) if vectors else 0.0


class DcnModel(RankingModel):
    """Cross layers beside a deep network."""

    def interaction_layers(self) -> None:
        rank, count = self.settings.rank, self.settings.cross
        self.cross = [keras_rs.layers.FeatureCross(projection_dim=rank, name=f"cross_{number}") for number in range(count)]

    def interactions(self, vectors: list[tf.Tensor], numbers: tf.Tensor | None, training: bool) -> tf.Tensor:
        x0 = tf.concat([*vectors, *([numbers] if numbers is not None else [])], -1)
        crossed = x0
        for layer in self.cross:
            crossed = layer(x0, crossed)
        deep = x0
        for layer in self.deep:
            deep = self.dropout(layer(deep), training=training)
        return tf.concat([crossed, deep], -1)


class DlrmModel(RankingModel):
    """Dot products of all pairs of vectors, under a deep network."""

    def interaction_layers(self) -> None:
        units = [*self.settings.bottom, self.settings.width]
        self.bottom = [keras.layers.Dense(count, "relu", name=f"bottom_{number}") for number, count in enumerate(units)]
        self.dots = keras_rs.layers.DotInteraction(name="dots")

    def interactions(self, vectors: list[tf.Tensor], numbers: tf.Tensor | None, training: bool) -> tf.Tensor:
        dense = numbers if numbers is not None else tf.ones_like(vectors[0][:, :1])
        for layer in self.bottom:
            dense = layer(dense)
        x = tf.concat([dense, self.dots([dense, *vectors])], -1)
        for layer in self.deep:
            x = self.dropout(layer(x), training=training)
        return x


def _ids(count: int, width: int, name: str) -> tuple[Any, Any]:
    return by_number(count + 1, width, f"{name}_vectors"), by_number(count + 1, 1, f"{name}_bias", initializer="zeros")
