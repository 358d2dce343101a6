"""Negatives drawn by frequency, in graph, from a seed: the same on any number of replicas."""

import numpy as np
import tensorflow as tf


class Sampler:
    """Draws items with probability in proportion to (train events + 1) to a power.

    Args:
        counts: [1 + items] train events; item 0 is never drawn.
        power: 1 as frequent as in train, 0 all alike.
    """

    def __init__(self, counts: np.ndarray, power: float):
        odds = np.power(counts.astype(np.float64) + 1.0, power)
        odds[0] = 0.0
        self.shares = odds / odds.sum()
        self._cumulated = np.cumsum(self.shares)[:-1].astype(np.float32)
        with np.errstate(divide="ignore"):
            self._logs = np.maximum(np.log(self.shares), -50.0).astype(np.float32)

    def draw(self, count: int, seed: tf.Tensor) -> tf.Tensor:
        """[count] int32, with repetition; `seed` int32 [2]."""
        places = tf.random.stateless_uniform([count], seed)
        return tf.clip_by_value(tf.searchsorted(tf.constant(self._cumulated), places, side="right"), 1, len(self.shares) - 1)

    def log_share(self, items: tf.Tensor) -> tf.Tensor:
        """log of the probability of each item, of any shape."""
        return tf.gather(tf.constant(self._logs), items)
