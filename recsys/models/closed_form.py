"""The list models that `recsys.closed_form` fits: their answers in graph. No step trains them."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from recsys.closed_form.ease import FittedEase
from recsys.closed_form.factors import FittedFactors
from recsys.closed_form.item_knn import FittedKnn
from recsys.models.base import ListModel, ScoringModel
from recsys.models.lists import Score
from recsys.settings import Ease, Factors, ItemKnn


class FactorsModel(keras.Model):
    """[batch] float32: ratings, from `user` and `item` [batch] int32 (0: unknown). It answers with what `put` sets."""

    def __init__(self, settings: Factors, *, users: int, items: int, **options: Any):
        super().__init__(name=settings.name)
        plain: dict[str, Any] = {"initializer": "zeros", "trainable": False, "autocast": False}
        self.mean = self.add_weight(name="mean", shape=(), **plain)
        self.biases = [self.add_weight(name=f"{of}_bias", shape=(count + 1,), **plain) for of, count in (("user", users), ("item", items))]
        self.factors = [self.add_weight(name=f"{of}_factors", shape=(count + 1, settings.rank), **plain)
                        for of, count in (("user", users), ("item", items))]

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def put(self, fitted: FittedFactors) -> None:
        """Sets what it answers with."""
        self.mean.assign(fitted.biases.mean)
        for weights, values in ((self.biases, (fitted.biases.user, fitted.biases.item)), (self.factors, (fitted.user, fitted.item))):
            for weight, value in zip(weights, values):
                weight.assign(value)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        user, item = (tf.gather(tf.convert_to_tensor(weight), inputs[of]) for of, weight in zip(("user", "item"), self.factors))
        biases = [tf.gather(tf.convert_to_tensor(weight), inputs[of]) for of, weight in zip(("user", "item"), self.biases)]
        return tf.convert_to_tensor(self.mean) + tf.add_n(biases) + tf.reduce_sum(user * item, -1)


SLICE = 64  # items of the histories looked up at a time, for bounded memory


class FittedModel(ScoringModel):
    """See `ScoringModel`; histories are [batch, any], oldest first. It answers with what `put` sets."""

    fixed: ClassVar[dict[str, Any]] = {"initializer": "zeros", "trainable": False, "autocast": False}

    def __init__(self, settings: Any, *, features: Sequence[Any] = (), **options: Any):
        super().__init__(length=1, name=settings.name, **options)
        self.decay = self.add_weight(name="decay", shape=(), **self.fixed)

    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> Any:
        raise TypeError(f"{self.name} is fitted in closed form; no step trains it")

    def _summed(self, history: tf.Tensor, start: tf.Tensor, add: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """`start` [batch, any] after `add(total, items [batch, SLICE], weights)` of all slices of the histories.

        An item counts once, where it came last, with the number of events since to minus the power `decay`.
        """
        ago = tf.cumsum(tf.cast(history > 0, tf.float32), 1, reverse=True)
        order = tf.argsort(history, -1, stable=True)
        items, ago = tf.gather(history, order, batch_dims=1), tf.gather(ago, order, batch_dims=1)
        again = tf.pad(items[:, 1:] == items[:, :-1], [[0, 0], [0, 1]])
        items = tf.where(again, 0, items)
        weights = tf.where(items > 0, tf.pow(tf.maximum(ago, 1.0), -tf.convert_to_tensor(self.decay)), 0.0)
        room = [[0, 0], [0, -tf.shape(items)[1] % SLICE]]
        items, weights = tf.pad(items, room), tf.pad(weights, room)

        def more(first: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            part = [0, first], [-1, SLICE]
            return first + SLICE, add(total, tf.slice(items, *part), tf.slice(weights, *part))

        _, total = tf.while_loop(lambda first, _: first < tf.shape(items)[1], more, (tf.constant(0), start), parallel_iterations=1,
                                 shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, start.shape[1]])))
        return total

    def _served(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        given = inputs["history"]
        users = tf.where(tf.reduce_any(given > 0, -1), 0, inputs["user"])
        history = tf.concat([given, self.store.all_items(users)], 1)  # one of the two is there
        return history, tf.where(inputs["exclude_seen"][:, None], history, 0)


class EaseModel(FittedModel, ListModel):
    """A product of the weighed sum of the history's vectors and each candidate's."""

    def __init__(self, settings: Ease, *, users: int, items: int, **options: Any):
        super().__init__(settings, users=users, items=items, **options)
        rank = min(settings.rank, users + 1, items + 1)
        self.history_vectors = self.add_weight(name="history_vectors", shape=(items + 1, rank), **self.fixed)
        self.item_vectors = self.add_weight(name="item_vectors", shape=(items + 1, rank), **self.fixed)

    def put(self, fitted: FittedEase) -> None:
        """Sets what it answers with."""
        self.history_vectors.assign(fitted.history)
        self.item_vectors.assign(fitted.candidates)
        self.decay.assign(fitted.settings.decay)

    def queries(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        vectors = tf.convert_to_tensor(self.history_vectors)  # row 0 is 0
        start = tf.zeros([tf.shape(history)[0], int(vectors.shape[1])])

        def add(total: tf.Tensor, items: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            return total + tf.einsum("bs,bsw->bw", weights, tf.gather(vectors, items))

        return self._summed(history, start, add), tf.reduce_any(history > 0, -1)

    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.item_vectors), tf.zeros([self.items + 1])


class ItemKnnModel(FittedModel):
    """The weighed sum of the similarities of the nearest items of each in the history. Scores of all items are in memory at once."""

    def __init__(self, settings: ItemKnn, *, items: int, **options: Any):
        super().__init__(settings, items=items, **options)
        shape = (items + 1, min(settings.neighbours, items))
        self.nearest = self.add_weight(name="nearest", shape=shape, dtype="int32", **self.fixed)
        self.similarities = self.add_weight(name="similarities", shape=shape, **self.fixed)

    def put(self, fitted: FittedKnn) -> None:
        """Sets what it answers with."""
        items, similarities = fitted.lists(int(self.nearest.shape[1]))
        self.nearest.assign(items)
        self.similarities.assign(similarities)
        self.decay.assign(fitted.settings.decay)

    def score(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[Score, tf.Tensor]:
        similar, known = inputs.get("similar"), tf.reduce_any(history > 0, -1)
        if similar is not None:  # an item's own nearest, as if it were the history
            history = tf.where((similar > 0)[:, None], tf.pad(similar[:, None], [[0, 0], [0, tf.shape(history)[1]]])[:, :-1], history)
        nearest, similarities = tf.convert_to_tensor(self.nearest), tf.convert_to_tensor(self.similarities)

        def add(total: tf.Tensor, items: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            rows = tf.repeat(tf.range(tf.shape(items)[0]), tf.shape(items)[1] * int(nearest.shape[1]))
            cells = tf.stack([rows, tf.reshape(tf.gather(nearest, items), [-1])], 1)
            return tf.tensor_scatter_nd_add(total, cells, tf.reshape(tf.gather(similarities, items) * weights[..., None], [-1]))

        scores = self._summed(history, tf.zeros([tf.shape(history)[0], self.items + 1]), add)
        beside = known if similar is None else known & (similar <= 0)  # what is popular of late is in no item's likeness
        scores = add(scores, tf.zeros([tf.shape(history)[0], 1], tf.int32), tf.cast(beside, tf.float32)[:, None])
        return lambda part: scores[:, part], known
