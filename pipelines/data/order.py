"""Order as a pure function: (seed, epoch, step) -> the examples of the global batch.

A whole-data shuffle without a buffer, the same whatever the number of replicas and however often a run was
interrupted, and reached at any step at once. It uses the cipher of tf.random.experimental.index_shuffle.
"""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pipelines.data.device_constants import Held


@dataclass(frozen=True)
class Poisson:
    """Batches that are drawn: every example is in one with the same probability, whatever others are (Poisson sampling).

    Attributes:
        expected: examples of a batch on average.
        key: two int64, secret: privacy rests on nobody knowing who was drawn.
    """

    expected: int
    key: tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """How the global batch is divided: batch = replicas x accumulation x micro examples.

    Micro-batch m = replica x accumulation + turn holds rows [m * micro, (m + 1) * micro) of the global batch,
    so the same micro-batches come however many replicas share them.
    """

    examples: int
    batch: int
    replicas: int = 1
    accumulation: int = 1
    poisson: Poisson | None = None  # then `batch` is the room for a batch, and an epoch the steps that draw `examples` on average

    @property
    def micro(self) -> int:
        return self.batch // (self.replicas * self.accumulation)

    @property
    def local(self) -> int:
        """Examples of one replica in a step."""
        return self.batch // self.replicas

    @property
    def usual(self) -> int:
        """Examples of a step, on average."""
        return self.poisson.expected if self.poisson else self.batch

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.usual)


class ByLength:
    """The lengths of all examples, int [examples], for the order. No graph holds them: they are read from their file where they lie in one,
    else from one copy beside the CPU, where the order is computed."""

    def __init__(self, lengths: np.ndarray):
        self._lengths = lengths

    @functools.cached_property
    def _held(self) -> Held:
        return Held(np.asarray(self._lengths, np.int32))

    @functools.cached_property
    def longest_first(self) -> np.ndarray:
        """Example numbers in the order of evaluation, int64: the longest first, so that too little memory shows at once."""
        return np.argsort(-np.asarray(self._lengths, np.int64), kind="stable")

    @functools.cached_property
    def _longest_first(self) -> Held:
        return Held(self.longest_first)

    def of(self, numbers: tf.Tensor) -> tf.Tensor:
        """The lengths of examples, int32; in graph."""
        with tf.device("CPU:0"):
            if not isinstance(self._lengths, np.memmap):
                return self._held.at(numbers)
            read = tf.numpy_function(lambda some: np.asarray(self._lengths[some], np.int32), [numbers], tf.int32, stateful=False)
            return tf.ensure_shape(read, numbers.shape)

    def ranked(self, places: tf.Tensor) -> tf.Tensor:
        """The examples at some places of `longest_first`, int64; in graph."""
        with tf.device("CPU:0"):
            return self._longest_first.at(places)


def batch_numbers(plan: Plan, seed: int, step: tf.Tensor, *, shuffle: bool = True, lengths: ByLength | None = None,
                  ) -> tuple[tf.Tensor, tf.Tensor]:
    """The global batch of a step.

    The last batch of an epoch is filled with the epoch's first examples at weight 0: batch statistics
    stay those of real examples, and every example counts exactly once an epoch.

    Args:
        plan: the division of the data.
        seed: seed of the order.
        step: int64 scalar, counted over the whole run.
        shuffle: False gives the stored order, as evaluation takes it; with `lengths`, the longest first.
        lengths: batches are then made of examples of similar length, so that little of them is padding.

    Returns:
        (numbers [batch] int64, weights [batch] float32, 1 or 0).
    """
    step = tf.cast(step, tf.int64)
    if plan.poisson is not None and shuffle:
        return _drawn(plan, plan.poisson, step)
    if lengths is not None and shuffle:
        return _similar(plan, seed, step, lengths)
    epoch, step = step // plan.steps_per_epoch, step % plan.steps_per_epoch
    positions = step * plan.batch + tf.range(plan.batch, dtype=tf.int64)
    weights = tf.cast(positions < plan.examples, tf.float32)
    numbers = positions % plan.examples
    if shuffle and plan.examples > 1:
        numbers = permuted(numbers, plan.examples, fold(seed, epoch, ORDER))
    if lengths is not None:
        numbers = lengths.ranked(numbers)
    return numbers, weights


TAIL = 1e-20  # probability with which a drawn batch has more examples than there is room for


def room(examples: int, expected: int) -> int:
    """The size that a drawn batch stays within, but for a probability of TAIL."""
    from scipy.stats import binom

    sizes = np.arange(expected, min(examples, expected + int(12 * expected**0.5) + 120) + 1)  # 9.3 standard deviations are 1e-20
    return int(sizes[np.argmax(binom.sf(sizes, examples, expected / examples) <= TAIL)])


def _drawn(plan: Plan, poisson: Poisson, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`batch_numbers` by Poisson sampling: a size from the binomial distribution, and so many of a permutation of all examples."""
    from scipy.stats import binom

    most = room(plan.examples, poisson.expected)
    below = tf.constant(binom.cdf(np.arange(most), plan.examples, poisson.expected / plan.examples))
    key = tf.random.experimental.stateless_fold_in(tf.constant(poisson.key, tf.int64), step)
    drawn = tf.random.stateless_uniform([1], tf.random.experimental.stateless_fold_in(key, 0), dtype=tf.float64)
    size = tf.searchsorted(below, drawn, side="right", out_type=tf.int64)[0]
    positions = tf.range(plan.batch, dtype=tf.int64)
    numbers = positions % plan.examples
    if plan.examples > 1:
        numbers = permuted(numbers, plan.examples, tf.random.experimental.stateless_fold_in(key, 1))
    return numbers, tf.cast(positions < size, tf.float32)


WINDOW, WINDOW_EXAMPLES = 32, 65_536  # batches, and examples, at most, among which lengths are sorted


def _similar(plan: Plan, seed: int, step: tf.Tensor, lengths: ByLength) -> tuple[tf.Tensor, tf.Tensor]:
    """`batch_numbers` with batches of similar lengths.

    The shuffled epoch is cut into windows of some batches; within a window examples are sorted by length, cut into batches, and the
    batches come in random order. The filling of the epoch's last window sorts behind all real examples.
    """
    window = max(1, min(WINDOW, WINDOW_EXAMPLES // plan.batch, plan.steps_per_epoch))
    epoch, step = step // plan.steps_per_epoch, step % plan.steps_per_epoch
    number, place = step // window, step % window
    positions = number * window * plan.batch + tf.range(window * plan.batch, dtype=tf.int64)
    real = positions < plan.examples
    numbers = positions % plan.examples
    if plan.examples > 1:
        numbers = permuted(numbers, plan.examples, fold(seed, epoch, ORDER))
    by_length = tf.argsort(tf.where(real, lengths.of(numbers), tf.int32.max), stable=True)
    here = tf.minimum(tf.constant(window, tf.int64), plan.steps_per_epoch - number * window)
    key = tf.random.experimental.stateless_fold_in(fold(seed, epoch, WINDOWS), tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform([window], key)
    turn = tf.argsort(tf.where(tf.range(window, dtype=tf.int64) < here, drawn, 2.0), stable=True)[tf.cast(place, tf.int32)]
    rows = tf.sort(tf.slice(by_length, [turn * plan.batch], [plan.batch]))  # in drawn order: no device gets just the long ones
    return tf.gather(numbers, rows), tf.cast(tf.gather(real, rows), tf.float32)


ROUNDS = 8  # of the cipher, as TensorFlow's source recommends
UNFIT = {4**k for k in range(8, 32)}  # largest values for which the operation counts a bit too few, and repeats one number


def permuted(numbers: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
    """Where a random permutation of 0 .. count - 1 takes `numbers`.

    The operation itself, with a key of three drawn words: tf.random.experimental.index_shuffle holds one of them constant and takes
    four rounds, which leaves places far from uniform (chi-squared 5 to 10 times its degrees of freedom).

    Args:
        numbers: [n] int64 in 0 .. count - 1.
        seed: int32 [2]; each makes one permutation.
    """
    key = tf.random.stateless_uniform([3], seed, minval=None, maxval=None, dtype=tf.int32)

    def cipher(values: tf.Tensor, largest: int) -> tf.Tensor:
        return tf.raw_ops.RandomIndexShuffle(index=values, seed=key, max_index=tf.constant(largest, tf.int64), rounds=ROUNDS)

    if count - 1 not in UNFIT:
        return cipher(numbers, count - 1)
    placed = cipher(numbers, count)  # one value more; a number that lands on it moves on to that value's place
    return tf.where(placed == count, cipher(tf.constant([count], tf.int64), count), placed)


# purposes of a folded seed, so that order, augmentation and dropout never share one
ORDER, EXAMPLE, DROPOUT, WINDOWS = 1, 2, 3, 4


def fold(seed: int, moment: tf.Tensor, purpose: int) -> tf.Tensor:
    """int32 [2]: a seed for one moment (an epoch or a step) and one purpose."""
    base = tf.constant([seed & 0x7FFFFFFF, purpose], tf.int32)
    return tf.random.experimental.stateless_fold_in(base, tf.cast(moment, tf.int32))


def example_keys(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """int32 [batch, 2]: a key for each example in this epoch, whatever its batch."""
    epoch_key = fold(seed, epoch, EXAMPLE)
    return tf.stack([tf.bitwise.bitwise_xor(tf.cast(numbers, tf.int32), epoch_key[0]), tf.fill(tf.shape(numbers), epoch_key[1])], axis=1)


def step_seed(seed: int, step: tf.Tensor) -> tf.Tensor:
    """int32 [2]: the seed of what is drawn in a step (dropout, negatives), the same however its batch is divided."""
    return fold(seed, step, DROPOUT)
