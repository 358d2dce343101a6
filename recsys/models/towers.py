"""Two towers: a vector for each user, from id, history and features, and one for each item; their dot product is the score."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from recsys.data.catalogue import Catalogue
from recsys.models.base import USER, ListModel
from recsys.models.store import EntityVectors, FeatureStore, feature_spec
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
        self.facts = {of: [one for one in features if one["of"] == of] for of in ("user", "item")}
        self.stores = {of: FeatureStore(feature_spec(features, of, count), name=f"{of}_columns")
                       for of, count in (("user", users), ("item", items)) if self.facts[of]}

        def vectors(name: str, of: str, columns: bool = True, **more: Any) -> EntityVectors:
            count, new = (users, self.new_users) if of == "user" else (items, self.new_items)
            rate = settings.id_dropout if new or of == "user" else 0.0  # a request may describe a new user
            return EntityVectors(count + 1, width, new=new, store=self.stores.get(of) if columns else None, facts=self.facts[of],
                                 deviation=0.1, id_dropout=rate, name=name, **more)

        self.user = vectors("user", "user", own=settings.user_id) if settings.user_id or self.facts["user"] else None
        self.item = vectors("item", "item", bias=settings.popularity)
        # what the items of a history are like says little beside which they are, and costs as much again
        self.history = vectors("history", "item", columns=bool(self.new_items)) if settings.history else None
        sizes = [*settings.hidden, width] if settings.hidden else []
        self.towers = {
            of: [
                keras.layers.Dense(units, "relu" if number < len(settings.hidden) else None, name=f"{of}_tower_{number}")
                for number, units in enumerate(sizes)
            ]
            for of in ("user", "item")
        }
        self.dropout, self.stranger = keras.layers.Dropout(settings.dropout), keras.layers.Dropout(0.5)
        self.described = bool(self.facts["user"])  # something is known of users besides id and history
        if self.described:  # how much columns alone say: all vectors have length 1, those of next to no taste, too
            self.faith = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.5), name="faith", autocast=False)

    def fill(self, catalogue: Catalogue) -> None:
        super().fill(catalogue)
        for of, arrays in (("user", catalogue.user_features), ("item", catalogue.item_features)):
            if of in self.stores:
                self.stores[of].fill(arrays)

    def _tower(self, of: str, vectors: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.dropout(vectors, training=training)
        for layer in self.towers[of]:
            x = layer(x)
        x = tf.cast(x, tf.float32)
        return tf.math.l2_normalize(x, -1, epsilon=1e-6) if self.settings.normalise else x

    def user_tower(self, users: tf.Tensor, history: tf.Tensor, training: bool = False,
                   columns: dict[str, tf.Tensor] | None = None) -> tf.Tensor:
        """[batch, width] float32, divided by the temperature where vectors are normalised."""
        there = tf.cast(history > 0, tf.float32)[..., None]
        known = tf.cast(users > 0, tf.float32)
        if self.user is not None and self.described:
            known = self.user.kept(users, training=training)
            if training:  # of half of those whose id does not count nothing but the columns is known
                there *= tf.maximum(known, tf.cast(self.stranger(tf.ones_like(known), training=True) > 0, tf.float32))[:, None, None]
        x = tf.zeros([tf.shape(users)[0], self.settings.width])
        if self.user is not None:
            vectors = tf.cast(self.user(users, training=training, columns=columns, kept=known)[0], tf.float32)
            x += vectors if self.described else vectors * known[:, None]
        if self.history is not None:
            vectors = tf.cast(self.history(history, training=training)[0], tf.float32) * there
            x += tf.reduce_sum(vectors, 1) / tf.maximum(tf.reduce_sum(there, 1), 1.0)
        vectors = self._tower("user", x, training)
        if self.described:
            strange = (known <= 0) & (tf.reduce_sum(there, [1, 2]) <= 0)
            vectors *= tf.where(strange, tf.convert_to_tensor(self.faith), 1.0)[:, None]
        return vectors / self.settings.temperature if self.settings.normalise else vectors

    def item_tower(self, items: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """([any, width], biases [any]) float32 of items [any]."""
        vectors, bias = self.item(items, training=training)
        vectors = self._tower("item", tf.cast(vectors, tf.float32), training)
        return vectors, tf.zeros(tf.shape(items)) if bias is None else bias

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        users = inputs["user"]
        if self.history is not None:
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

    def queries(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        users, columns = inputs["user"], None
        known = users > 0 if self.user is not None else tf.zeros_like(users, tf.bool)
        if self.settings.history:
            known |= tf.reduce_any(history > 0, -1)
        if "described" in inputs:
            known |= inputs["described"]
            columns = self.stores["user"](users)
            for name, stored in columns.items():
                if USER + name in inputs:
                    where = tf.reshape(inputs["described"], [-1, *[1] * (stored.shape.rank - 1)])
                    columns[name] = tf.where(where, inputs[USER + name], stored)
        return self.user_tower(users, history, columns=columns), known

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        vectors, bias = self.item_tower(tf.range(self.items + 1))
        return tf.ensure_shape(vectors, [self.items + 1, self.settings.width]), tf.ensure_shape(bias, [self.items + 1])
