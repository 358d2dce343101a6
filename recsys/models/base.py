"""What all models that answer with lists of items share: stored histories, the fallback, and the way to the best items."""

from abc import ABC, abstractmethod
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from recsys.data.catalogue import Catalogue
from recsys.data.protocol import TRAIN, VALIDATION
from recsys.models.lists import Score, among_last, products, recommend
from recsys.models.store import HistoryStore

USER = "column of the user: "  # before the name of a column of users, as an input
FEWEST = 1e-30  # events as which an item's popularity counts at least, for the logarithm; of late it may be next to nothing


class ScoringModel(keras.Model, ABC):
    """Learns from `positive` items, and otherwise answers with lists.

    Inputs when judged: user [batch] int32, history [batch, length] int32 (oldest first, 0 in front), seen and held [batch, any] int32.
    When serving: user, history [batch, any] (0 where an item is unknown), allow [batch, any], similar [batch] int32, exclude_seen [batch]
    bool: without a history that of the user comes from the store; and where the model takes columns of users, `described` [batch] bool and
    USER + name of each, which then stand in place of the stored ones. See `models.lists.recommend` for the answer.

    Args:
        users, items: known ones; of these the last `new_users` and `new_items` by their columns alone.
        events: in the history store.
        length: latest items of a history that count.
        k: length of the lists.
        chunk: items scored at a time.
    """

    def __init__(self, *, users: int, items: int, events: int, length: int, k: int, chunk: int, name: str, new_items: int = 0,
                 new_users: int = 0):
        super().__init__(name=name)
        self.new_items, self.new_users = new_items, new_users
        self.items, self.users, self.length, self.k, self.chunk = items, users, length, min(k, items), chunk
        self.store = HistoryStore(users, events, name="histories")
        self.popularity = self.add_weight(shape=(items + 1,), initializer="zeros", trainable=False, name="popularity", autocast=False)

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def fill(self, catalogue: Catalogue) -> None:
        """Puts in what comes from the data: histories up to the test split, and how popular items are in train, or of late."""
        self.store.fill(catalogue.histories((TRAIN, VALIDATION)))
        self.answer_strangers(catalogue.counts if catalogue.fallback is None else catalogue.fallback[0])

    def answer_strangers(self, popular: np.ndarray) -> None:
        """Those of whom nothing is known get what is most popular: [1 + items], 0 or more."""
        self.popularity.assign(np.log(np.maximum(popular, FEWEST) / max(1.0, popular.sum())).astype(np.float32))

    @abstractmethod
    def learn(self, inputs: dict[str, tf.Tensor], training: bool) -> Any:
        """What the loss needs, from inputs with `positive`."""

    @abstractmethod
    def score(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[Score, tf.Tensor]:
        """(the scores of items, whether anything is known of the user [batch] bool).

        Args:
            inputs: of the model; where they have `similar` and it is > 0, scores are of how like that item the others are.
            history: [batch, length] of the users, or as the request has it.
        """

    def freeze(self) -> None:
        """Keeps what follows from the weights, which are final."""

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> Any:
        if "positive" in inputs:
            return self.learn(inputs, training)
        options: dict[str, Any] = {}
        if "allow" in inputs:
            history, seen = self._served(inputs)
            options = {"allow": inputs["allow"], "similar": inputs["similar"]}
        else:
            history, seen = inputs["history"], inputs["seen"]
            options = {"held": inputs["held"]} if "held" in inputs else {}
        score, known = self.score(inputs, history)
        popularity = tf.convert_to_tensor(self.popularity)
        answer = recommend(score, known=known, popularity=popularity, seen=seen, k=self.k, chunk=self.chunk, **options)
        if "held" in inputs and self.new_items:
            answer["new"] = among_last(score, self.new_items, known=known, popularity=popularity, seen=seen, k=self.k, chunk=self.chunk)
        answer["fallback"] = ~known if "similar" not in options else ~known & (options["similar"] <= 0)
        return answer

    def _served(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """(history [batch, length], seen [batch, any]) of a request."""
        given = inputs["history"]
        stored = ~tf.reduce_any(given > 0, -1)
        users = tf.where(stored, inputs["user"], 0)
        # known items to the end, in their order: an unknown one leaves no gap
        order = tf.argsort(tf.cast(given > 0, tf.int32), axis=-1, stable=True)
        given = tf.gather(given, order, batch_dims=1)
        last = tf.pad(given, [[0, 0], [self.length, 0]])[:, -self.length :]
        history = tf.where(stored[:, None], self.store(users, length=self.length), last)
        seen = tf.concat([given, self.store.all_items(users)], 1)
        return history, tf.where(inputs["exclude_seen"][:, None], seen, 0)


class ListModel(ScoringModel):
    """A list model whose scores are products of a user's vector and each item's."""

    frozen: tuple[tf.Variable, tf.Variable] | None = None

    @abstractmethod
    def queries(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(vectors [batch, width], whether anything is known of the user [batch] bool)."""

    @abstractmethod
    def catalogue(self) -> tuple[tf.Tensor, tf.Tensor]:
        """(vectors [1 + items, width], biases [1 + items]) of all items, float32."""

    def freeze(self) -> None:
        """Keeps the catalogue: a request then does not make it anew."""
        vectors, bias = self.catalogue()
        self.frozen = tf.Variable(vectors, trainable=False), tf.Variable(bias, trainable=False)

    def score(self, inputs: dict[str, tf.Tensor], history: tf.Tensor) -> tuple[Score, tf.Tensor]:
        vectors, known = self.queries(inputs, history)
        items, bias = map(tf.convert_to_tensor, self.frozen or self.catalogue())
        return products(tf.cast(vectors, tf.float32), items, bias, inputs.get("similar")), known
