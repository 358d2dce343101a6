"""The model of `recsys.tasks.closed_form`: a product of the sum of the history's vectors and each candidate's. No step trains it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from recsys.models.base import ListModel
from recsys.settings import Ease

SLICE = 64  # items of the histories looked up at a time, for bounded memory


class EaseModel(ListModel):
    """See `ListModel`; histories are [batch, any], in any order. It answers with what `put` sets."""

    def __init__(self, settings: Ease, *, users: int, items: int, features: Sequence[Any] = (), **options: Any):
        super().__init__(length=1, name=settings.name, users=users, items=items, **options)
        rank = min(settings.rank, users, items)
        plain: dict[str, Any] = {"shape": (items + 1, rank), "initializer": "zeros", "trainable": False, "autocast": False}
        self.history_vectors = self.add_weight(name="history_vectors", **plain)
        self.item_vectors = self.add_weight(name="item_vectors", **plain)
        self.chosen = self.add_weight(name="chosen", **{**plain, "shape": (2,)})  # l2 and damping

    @property
    def rank(self) -> int:
        return int(self.item_vectors.shape[1])

    def put(self, history_vectors: np.ndarray, item_vectors: np.ndarray, *, chosen: tuple[float, float]) -> None:
        """Sets the vectors of `closed_form.Spectrum.sides`, and the l2 and damping that they were computed with."""
        self.history_vectors.assign(history_vectors)
        self.item_vectors.assign(item_vectors)
        self.chosen.assign(chosen)

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> Any:
        raise TypeError("EASE is fitted in closed form; no step trains it")

    def queries(self, users: tf.Tensor, history: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        items = tf.sort(history, -1)
        again = tf.pad(items[:, 1:] == items[:, :-1], [[0, 0], [1, 0]])  # an item counts once
        items = tf.pad(tf.where(again, 0, items), [[0, 0], [0, -tf.shape(items)[1] % SLICE]])
        vectors = tf.convert_to_tensor(self.history_vectors)  # row 0 is 0

        def more(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            part = tf.slice(items, [0, start], [-1, SLICE])
            return start + SLICE, total + tf.reduce_sum(tf.gather(vectors, part), 1)

        total = tf.zeros([tf.shape(items)[0], self.rank])
        _, total = tf.while_loop(lambda start, _: start < tf.shape(items)[1], more, (tf.constant(0), total), parallel_iterations=1,
                                 shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, self.rank])))
        return total, tf.reduce_any(history > 0, -1)

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.item_vectors), tf.zeros([self.items + 1])

    def _served(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        given = inputs["history"]
        users = tf.where(tf.reduce_any(given > 0, -1), 0, inputs["user"])
        history = tf.concat([given, self.store.all_items(users)], 1)
        return history, tf.where(inputs["exclude_seen"][:, None], history, 0)
