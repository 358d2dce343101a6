"""Negatives drawn by frequency, in graph, from a seed: the same on any number of replicas."""

import numpy as np
import tensorflow as tf

from pipelines.data.device_constants import Held

# Places of a draw. Float32 has some 2^23 in 0 .. 1, too few for each of ten million items to have one; and a power of two divides the
# words of the generator, so that all places are equally probable.
PLACES = 2**62


class Sampler:
    """Draws items with probability in proportion to (train events + 1) to a power.

    Args:
        counts: [1 + items] train events; item 0 is never drawn.
        power: 1 as frequent as in train, 0 all alike.
        new: so many of the last items are not in train, and as good as never drawn.
    """

    def __init__(self, counts: np.ndarray, power: float, new: int = 0):
        odds = np.power(counts.astype(np.float64) + 1.0, power)
        odds[0] = 0.0
        odds[len(odds) - new :] = 0.0
        self.shares = odds / odds.sum()
        self._stops = Held(stops(self.shares))
        with np.errstate(divide="ignore"):
            self._logs = Held(np.maximum(np.log(self.shares), -50.0).astype(np.float32))

    def draw(self, count: int, seed: tf.Tensor) -> tf.Tensor:
        """[count] int32, with repetition; `seed` int32 [2]."""
        places = tf.random.stateless_uniform([count], seed, minval=0, maxval=PLACES, dtype=tf.int64)
        return tf.searchsorted(self._stops.tensor(), places, side="right") + 1

    def log_share(self, items: tf.Tensor) -> tf.Tensor:
        """log of the probability of each item, of any shape."""
        return tf.gather(self._logs.tensor(), items)


def stops(shares: np.ndarray) -> np.ndarray:
    """Where the places of each item but the last end, [items - 1] int64; those of item 1 begin at 0, those of the last end at PLACES.

    Args:
        shares: [1 + items] float64, the probability of each; item 0 has no place, every other has one at least.
    """
    ends = np.cumsum(shares[1:])
    ends /= ends[-1]
    # one place for each whatever its share, so that what rounding takes from a small one is never all of it
    return (ends * float(PLACES - len(ends))).astype(np.int64)[:-1] + np.arange(1, len(ends), dtype=np.int64)
