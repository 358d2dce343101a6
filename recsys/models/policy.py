"""A policy over actions, how they were chosen in the log, and their rewards: products of a vector of the context and one of each action."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from recsys.models.store import FeatureStore, FeatureVectors, all_rows, by_number, feature_spec, small


class PolicyModel(keras.Model):
    """{"scores", "logged", "rewards"} [batch, actions] float32: by how much more the policy takes an action than the log, the logarithm of
    its probability in the log but for a constant, and rewards (0 or 1: their logits).

    Inputs: each feature of the context by name. The context is described once, by numbers, categories and lists; a linear layer for each
    of the three makes of it a vector that meets those of the actions.

    Args:
        settings: the model section.
        actions: known ones.
        features: facts of the feature columns, of events (contexts) and of items (actions).
        rates, habits: [actions], each action's reward before anything is known of the context (a number, or the logit of 0 or 1), and
            the logarithm of its propensity.
        scale: the unit of rewards.
        follows: scores are the rewards, in units of `scale`.
    """

    def __init__(self, settings: Any, *, actions: int, features: Sequence[Mapping[str, Any]], rates: Sequence[float],
                 habits: Sequence[float], scale: float, follows: bool):
        super().__init__(name=settings.name)
        self.settings, self.actions, self.scale, self.follows = settings, actions, scale, follows
        width = settings.width
        self.context = FeatureVectors([one for one in features if one["of"] == "event"], width, name="context")
        of_actions = [one for one in features if one["of"] == "item"]
        self.store = FeatureStore(feature_spec(of_actions, "item", actions), name="action_features") if of_actions else None
        self.described = FeatureVectors(of_actions, width, name="described") if of_actions else None
        self.bring = keras.layers.Dense(width, use_bias=False, kernel_initializer=small(), name="bring") if of_actions else None
        self.hidden = [keras.layers.Dense(units, "relu", name=f"hidden_{number}") for number, units in enumerate(settings.hidden)]
        self.dropout = keras.layers.Dropout(settings.dropout)
        self.heads, self.vectors, self.biases = {}, {}, {}
        starts = {"logged": np.asarray(habits, np.float64), "rewards": np.asarray(rates, np.float64) / scale}
        for name, start in (starts if follows else {"scores": np.zeros(actions), **starts}).items():
            self.heads[name] = keras.layers.Dense(width, kernel_initializer=small(), name=f"{name}_head")
            self.vectors[name] = by_number(actions, width, f"{name}_actions", sparse=False)
            self.vectors[name].build(None)
            self.biases[name] = self.add_weight(shape=(actions,), initializer=keras.initializers.Constant(start.astype(np.float32)),
                                                name=f"{name}_bias", autocast=False)

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        vectors, numbers = self.context(inputs)
        known = tf.concat([tf.cast(part, self.compute_dtype) for part in (*vectors, *numbers)], -1)
        for layer in self.hidden:
            known = layer(self.dropout(known, training=training))
        known = self.dropout(known, training=training)
        rewards = self._products("rewards", known) * self.scale
        scores = tf.stop_gradient(rewards) / self.scale if self.follows else self._products("scores", known)
        return {"scores": scores, "logged": self._products("logged", known), "rewards": rewards}

    def _products(self, name: str, known: tf.Tensor) -> tf.Tensor:
        actions = all_rows(self.vectors[name])
        if self.store is not None and self.described is not None and self.bring is not None:
            vectors, numbers = self.described(self.store(tf.range(1, self.actions + 1)))
            actions += tf.cast(self.bring(tf.concat([tf.cast(part, self.compute_dtype) for part in (*vectors, *numbers)], -1)), tf.float32)
        contexts = tf.cast(self.heads[name](known), tf.float32)
        return tf.matmul(contexts, actions, transpose_b=True) + tf.cast(self.biases[name], tf.float32)


def chances(outputs: Mapping[str, Any], *, sharpness: float, explore: float, there: Any = None) -> tf.Tensor:
    """The probability of each action, [batch, actions] float32: that in the log, times the exponential of scores x `sharpness`; a share
    `explore` is drawn evenly.

    Args:
        outputs: of `PolicyModel`.
        there: [batch, actions] bool, which actions may be chosen; None: all. Where none may, all probabilities are 0.
    """
    scores = tf.convert_to_tensor(outputs["logged"]) + sharpness * tf.convert_to_tensor(outputs["scores"])
    there = tf.ones_like(scores, tf.bool) if there is None else there
    open_ = tf.cast(there, tf.float32)
    masked = tf.where(there, scores, scores.dtype.min)
    powers = tf.exp(masked - tf.reduce_max(masked, -1, keepdims=True)) * open_
    learned = tf.math.divide_no_nan(powers, tf.reduce_sum(powers, -1, keepdims=True))
    evenly = tf.math.divide_no_nan(open_, tf.reduce_sum(open_, -1, keepdims=True))
    return (1 - explore) * learned + explore * evenly
