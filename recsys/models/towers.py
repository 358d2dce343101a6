"""Two towers: a vector for each user, from id, history and features, and one for each item; their dot product is the score."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from recsys.data.catalogue import Catalogue
from recsys.models.base import ListModel
from recsys.models.store import FeatureStore, FeatureVectors, by_number, feature_spec, small
from recsys.settings import Towers


class TowersModel(ListModel):
    """See `ScoringModel`. When learning, from user and at [batch], positive [items of the batch] and negatives [samples] or none: users
    [batch, width], positive [items, width], positive_bias [items], and the negatives' vectors and biases.

    Args:
        settings: the model section.
        features: facts of the feature columns; those of users and items are used.
    """

    def __init__(self, settings: Towers, *, features: Sequence[Mapping[str, Any]], users: int, items: int, **options: Any):
        super().__init__(length=max(1, settings.history), name=settings.name, users=users, items=items, **options)
        self.settings, width = settings, settings.width
        self.user_vectors = by_number(users + 1, width, "user_vectors", initializer=small(0.1)) if settings.user_id else None
        self.item_vectors = by_number(items + 1, width, "item_vectors", initializer=small(0.1))
        self.history_vectors = by_number(items + 1, width, "history_vectors", initializer=small(0.1)) if settings.history else None
        self.bias = by_number(items + 1, 1, "item_bias", initializer="zeros") if settings.popularity else None
        self.facts = {of: [one for one in features if one["of"] == of] for of in ("user", "item")}
        self.stores = {
            of: FeatureStore(feature_spec(features, of, count), name=f"{of}_columns")
            for of, count in (("user", users), ("item", items))
            if self.facts[of]
        }
        self.columns = {of: FeatureVectors(self.facts[of], width, name=f"{of}_features") for of in self.stores}
        self.numbers = {
            of: keras.layers.Dense(width, use_bias=False, name=f"{of}_numbers")
            for of in self.stores
            if any(one["kind"] == "number" for one in self.facts[of])
        }
        sizes = [*settings.hidden, width] if settings.hidden else []
        self.towers = {
            of: [
                keras.layers.Dense(units, "relu" if number < len(settings.hidden) else None, name=f"{of}_tower_{number}")
                for number, units in enumerate(sizes)
            ]
            for of in ("user", "item")
        }
        self.dropout = keras.layers.Dropout(settings.dropout)

    def fill(self, catalogue: Catalogue) -> None:
        super().fill(catalogue)
        for of, arrays in (("user", catalogue.user_features), ("item", catalogue.item_features)):
            if of in self.stores:
                self.stores[of].fill(arrays)

    def _tower(self, of: str, numbers: tf.Tensor, parts: list[tf.Tensor], training: bool) -> tf.Tensor:
        if of in self.stores:
            vectors, plain = self.columns[of](self.stores[of](numbers))
            parts = parts + [tf.cast(vector, tf.float32) for vector in vectors]
            if plain:
                parts = [*parts, tf.cast(self.numbers[of](tf.concat(plain, -1)), tf.float32)]
        x = self.dropout(tf.add_n(parts), training=training)
        for layer in self.towers[of]:
            x = layer(x)
        x = tf.cast(x, tf.float32)
        return tf.math.l2_normalize(x, -1, epsilon=1e-6) if self.settings.normalise else x

    def user_tower(self, users: tf.Tensor, history: tf.Tensor, training: bool = False) -> tf.Tensor:
        """[batch, width] float32, divided by the temperature where vectors are normalised."""
        parts = []
        if self.user_vectors is not None:
            parts.append(tf.cast(self.user_vectors(users), tf.float32) * tf.cast(users > 0, tf.float32)[:, None])
        if self.history_vectors is not None:
            there = tf.cast(history > 0, tf.float32)[..., None]
            vectors = tf.cast(self.history_vectors(history), tf.float32) * there
            parts.append(tf.reduce_sum(vectors, 1) / tf.maximum(tf.reduce_sum(there, 1), 1.0))
        parts = parts or [tf.zeros([tf.shape(users)[0], self.settings.width])]
        vectors = self._tower("user", users, parts, training)
        return vectors / self.settings.temperature if self.settings.normalise else vectors

    def item_tower(self, items: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """([any, width], biases [any]) float32 of items [any]."""
        vectors = self._tower("item", items, [tf.cast(self.item_vectors(items), tf.float32)], training)
        bias = tf.cast(self.bias(items)[..., 0], tf.float32) if self.bias is not None else tf.zeros(tf.shape(items))
        return vectors, bias

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        users = inputs["user"]
        if self.history_vectors is not None:
            start, _ = self.store.bounds(users)
            places, there = self.store.places(start, inputs["at"], self.length)
            history = tf.where(there, tf.gather(tf.convert_to_tensor(self.store.items), places), 0)
        else:
            history = tf.zeros([tf.shape(users)[0], 1], tf.int32)
        positive, bias = self.item_tower(inputs["positive"], training)
        outputs = {"users": self.user_tower(users, history, training), "positive": positive, "positive_bias": bias}
        if "negatives" in inputs:
            outputs["negatives"], outputs["negatives_bias"] = self.item_tower(inputs["negatives"], training)
        return outputs

    def queries(self, users: tf.Tensor, history: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        known = users > 0 if self.settings.user_id or self.facts["user"] else tf.zeros_like(users, tf.bool)
        if self.settings.history:
            known |= tf.reduce_any(history > 0, -1)
        return self.user_tower(users, history), known

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        vectors, bias = self.item_tower(tf.range(self.items + 1))
        return tf.ensure_shape(vectors, [self.items + 1, self.settings.width]), tf.ensure_shape(bias, [self.items + 1])
