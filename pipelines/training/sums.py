"""What a micro-batch gives, its sum over those of a step, and what goes from step to step besides the variables."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class Sums(NamedTuple):
    """What a micro-batch gives, and the sum over several."""

    gradients: list[tf.Tensor]  # of each weight that trains now
    statistics: dict[int, tf.Tensor]  # number among the model's non-trainable variables -> value; those that the batch changes
    totals: tf.Tensor  # [2 + scores] float32: sum of loss, of weights, of each score
    lookups: list[tuple[tf.Tensor, tf.Tensor]]  # of each embedding table (ids [n] int64, gradients [n, width])


class Carry(NamedTuple):
    """Everything in it is saved with a checkpoint."""

    totals: tf.Tensor  # [2 + scores] float64: sum of loss, of weights, of each score, since the epoch began
    loss: tf.Tensor  # float32: mean loss of the last step
    gradient_norm: tf.Tensor  # float32: global norm of the last step's gradient, before clipping
    finite: tf.Tensor  # bool: False stops the loop
    waited: tf.Tensor  # float64, s: time spent waiting for input


def accumulated(micro_batch: Callable[[int | tf.Tensor], Sums], turns: int) -> Sums:
    """The sum of micro-batches 0 .. turns - 1, one after another; in graph."""
    sums = micro_batch(0)
    if turns > 1 and not sums.lookups:
        _, sums = tf.while_loop(
            lambda turn, _: turn < turns, lambda turn, sums: (turn + 1, tf.nest.map_structure(tf.add, sums, micro_batch(turn))),
            (tf.constant(1), sums), parallel_iterations=1)
        return sums
    for turn in range(1, turns):  # a loop cannot carry lookups, whose number differs from turn to turn
        more = micro_batch(turn)
        lookups = [(tf.concat([ids, others], 0), tf.concat([rows, further], 0))
                   for (ids, rows), (others, further) in zip(sums.lookups, more.lookups)]
        sums = tf.nest.map_structure(tf.add, sums._replace(lookups=[]), more._replace(lookups=[]))._replace(lookups=lookups)
    return sums
