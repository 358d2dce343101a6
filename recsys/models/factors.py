"""The answers of `recsys.closed_form.factors` in graph. No step trains them."""

from typing import Any

import keras
import tensorflow as tf

from recsys.closed_form.factors import FittedFactors
from recsys.settings import Factors


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
