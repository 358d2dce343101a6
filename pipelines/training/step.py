"""The training step, from top to bottom: forward and backward, reduce, check, apply.

Forward and backward are a pure function of (weights, state, micro-batch, draws), compiled or not, once per micro-batch. What it gives is
summed over replicas in one reduction; every replica checks the same sums and applies the same chain of links to its own copies. K steps
run in one call. Randomness belongs to the step and to the example's place in the global batch: the same batches give the same weights on
any number of replicas. Batch statistics belong to the micro-batch.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import tensorflow as tf

from pipelines.config.train_settings import Train
from pipelines.data import order
from pipelines.data.draws import Draws, by_example, seeded
from pipelines.data.input import Feed
from pipelines.machine import compiling
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training.chain import Chain, Replica, Sums
from pipelines.training.embedding_tables import TableOptimizer, recorded
from pipelines.training.moving_statistics import is_statistic, norms, of_this_batch_alone
from pipelines.training.totals import ScoreSums, losses


class Carry(NamedTuple):
    """What goes from step to step besides the variables; all of it is saved with a checkpoint."""

    totals: tf.Tensor  # [2 + columns] float64: of the epoch so far, as ScoreSums has them
    loss: tf.Tensor  # float32: mean loss of the last step
    gradient_norm: tf.Tensor  # float32: global norm of the last step's gradient, before clipping
    finite: tf.Tensor  # bool: False stops the loop
    waited: tf.Tensor  # float64, s: time spent waiting for input


class Step:
    """Runs training steps; holds nothing that changes but compiled functions. The chain's model is built under `machine.strategy`."""

    def __init__(self, *, task: Task, chain: Chain, tables: TableOptimizer, machine: Machine, feed: Feed, train: Train,
                 scores: ScoreSums):
        self.task, self.chain, self.tables, self.machine, self.feed, self.train = task, chain, tables, machine, feed, train
        self.model, self.plan, self.scores = chain.model, feed.plan, scores
        self.norms = norms(chain.model)
        self.retrace()

    def retrace(self) -> None:
        """Compiles anew, after layers were frozen or unfrozen."""
        gradients = reduce(lambda function, link: link.by_micro_batch(function), self.chain.links, self._forward_and_backward)
        parts = self.train.xla != "off" and not self.train.deterministic and gradients == self._forward_and_backward
        self._gradients = compiling.Once(compiling.function(gradients, xla=self.machine.xla, parts=parts))
        self._prepare = compiling.Once(tf.function(
            lambda examples, keys, seed, epoch: self.task.prepare(examples, keys=keys, seed=seed, epoch=epoch), autograph=False))
        self._run = tf.function(self._run_steps, autograph=False)
        self.chain.retrace()

    def fresh(self) -> Carry:
        """The carry at step 0."""
        zero = tf.constant(0.0)
        return Carry(tf.zeros([self.scores.size()], tf.float64), zero, zero, tf.constant(True), tf.constant(0.0, tf.float64))

    def __call__(self, iterator: Any, start: int, count: int, carry: Carry) -> tuple[int, Carry]:
        """Runs up to `count` steps from step `start`; fewer where a loss is not finite. Returns (next step, carry)."""
        step, carry = self._run(iterator, tf.constant(start, tf.int64), tf.constant(count, tf.int64), carry)
        return int(step), carry

    def _run_steps(self, iterator: Any, start: tf.Tensor, count: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
        strategy = self.machine.strategy

        def one(step: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
            examples, seconds = self.feed.fetched(iterator, deterministic=self.train.deterministic)
            rows = self.tables.fetched(self.model, self.micro_batches, step, examples)
            sums = strategy.run(self._summed, args=(step, examples, rows))
            sums = sums._replace(lookups=self.tables.brought_together(sums.lookups))
            after = strategy.run(self._checked_and_applied, args=(step, sums, carry._replace(waited=carry.waited + seconds)))
            carry = Carry(*(strategy.experimental_local_results(value)[0] for value in after))
            return step + tf.cast(carry.finite, tf.int64), carry  # a step that failed is not counted: its number names its batch

        return tf.while_loop(lambda step, carry: (step < start + count) & carry.finite, one, (start, carry), parallel_iterations=1)

    def micro_batches(self, replica: Replica, step: tf.Tensor, fetched: Any) -> Callable[[int | tf.Tensor], tuple]:
        """A replica's micro-batches, by their number in the step: (inputs, targets, mask [micro] float32, draws); in graph."""
        plan, epoch = self.plan, step // self.plan.steps_per_epoch
        numbers, mask, examples = self.feed.batch(step, replica.number, fetched)

        def micro_batch(turn: int | tf.Tensor) -> tuple:
            def part(value: tf.Tensor) -> tf.Tensor:
                whole = plan.accumulation == 1
                return value if whole else tf.ensure_shape(value[turn * plan.micro:(turn + 1) * plan.micro], [plan.micro, *value.shape[1:]])
            first = (replica.number * plan.accumulation + turn) * plan.micro
            draws = Draws(order.step_seed(self.train.seed, step), first + tf.range(plan.micro))
            some = tf.nest.map_structure(part, examples)
            if plan.accumulation > 1:  # as where a replica has this micro-batch alone
                some = self.feed.padded(some)
            keys = order.example_keys(self.train.seed, epoch, part(numbers))
            return *self._prepare(some, keys, draws.seed, epoch), part(mask), draws

        return micro_batch

    def _summed(self, step: tf.Tensor, fetched: Any, rows: list | None) -> Sums:
        """This replica's micro-batches, forward and backward; summed over replicas, but for its lookups of tables."""
        replica = Replica(self.machine)
        batches = self.micro_batches(replica, step, fetched)
        weights, state = replica.values(self.model.trainable_variables), replica.values(self.model.non_trainable_variables)
        scale = reduce(lambda scale, link: link.scale(replica, scale), self.chain.links, tf.constant(1.0) / self.plan.batch)

        def sums_of(turn: int | tf.Tensor) -> Sums:
            given = rows and {number: each[replica.place] for number, each in rows[turn].items()}
            return self._gradients(weights, state, *batches(turn), scale, given)

        sums = accumulated(sums_of, self.plan.accumulation)
        if self.plan.replicas == 1:
            return sums
        return replica.context.all_reduce(tf.distribute.ReduceOp.SUM, sums._replace(lookups=[]))._replace(lookups=sums.lookups)

    def _forward_and_backward(self, weights: list, state: list, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws,
                              scale: tf.Tensor, rows: dict[int, tf.Tensor] | None) -> Sums:
        """The pure function of one micro-batch. `mask` is [micro] float32, 1 or 0; the loss is multiplied by `scale`; `rows` are given of
        tables that no replica holds whole."""
        variables = self.model.non_trainable_variables
        before = seeded(variables, state, draws.seed)
        with (tf.GradientTape() as tape, recorded(self.tables.lookups(tape, rows)) as lookups,
              of_this_batch_alone(self.norms), by_example(draws)):
            tape.watch(weights)
            outputs, after, penalties = self.model.stateless_call(weights, before, inputs, training=True, return_losses=True)
            each, counts = losses(self.task.output, outputs, targets, training=True, mask=mask)
            weighted = self.task.output.example_weights(targets)
            total = tf.reduce_sum(each * mask if weighted is None else each * mask * weighted)
            count = tf.reduce_sum(mask if counts is None else counts * mask)
            if penalties:  # on weights; they count once a step: each micro-batch brings its share of what is counted
                total += tf.add_n([tf.cast(penalty, tf.float32) for penalty in penalties]) * count
            objective = total * scale
        gradients = tape.gradient(objective, [*weights, *lookups.vectors], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        statistics = {number: tf.convert_to_tensor(new) for number, (variable, old, new) in enumerate(zip(variables, before, after))
                      if new is not old and is_statistic(variable)}
        totals = self.scores.totals(total, count, self.task.output.scores(outputs, targets), mask)
        return Sums(gradients[:len(weights)], statistics, totals, lookups.gradients(self.tables.tables, gradients[len(weights):]))

    def _checked_and_applied(self, step: tf.Tensor, sums: Sums, carry: Carry) -> Carry:
        """Updates this replica's copies where loss and gradients are finite; the same in every replica."""
        replica, micro_batches = Replica(self.machine), self.plan.replicas * self.plan.accumulation
        sums, rescale, norm, loss, finite = self.checked(replica, step, sums)
        tf.cond(finite, lambda: self.chain.write(replica, step, sums, rescale, norm, micro_batches), lambda: None)
        settled = [on for link in self.chain.links if (on := link.settle(replica, loss, finite)) is not None]
        totals = tf.where(finite, sums.totals, tf.zeros_like(sums.totals))  # a step that is passed over does not count
        return Carry(carry.totals + tf.cast(totals, tf.float64), loss, norm, reduce(tf.logical_or, settled, finite), carry.waited)

    def checked(self, replica: Replica, step: tf.Tensor, sums: Sums) -> tuple[Sums, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """(sums of the whole batch, the factor from their gradients to those of the mean loss, the global norm of these, the mean loss,
        whether both are finite); in graph."""
        count = tf.maximum(sums.totals[1], 1.0)
        rescale = self.plan.batch / count  # a micro-batch divided by the full batch; the last one counts fewer, losses of pixels more
        for link in self.chain.links:
            sums, rescale = link.summed(replica, step, sums, rescale)
        norm = tf.linalg.global_norm([*sums.gradients, *(gradient for _, gradient in sums.lookups)]) * rescale
        loss = sums.totals[0] / count
        return sums, rescale, norm, loss, tf.math.is_finite(norm) & tf.math.is_finite(loss)


def accumulated(micro_batch: Callable[[int | tf.Tensor], Sums], turns: int) -> Sums:
    """The sum of micro-batches 0 .. turns - 1, one after another; in graph."""
    first = micro_batch(0)
    if turns == 1 or first.lookups:  # a loop cannot carry lookups, whose number differs from turn to turn
        return reduce(_added, map(micro_batch, range(1, turns)), first)
    return tf.while_loop(lambda turn, _: turn < turns, lambda turn, sums: (turn + 1, _added(sums, micro_batch(turn))),
                         (tf.constant(1), first), parallel_iterations=1)[1]


def _added(one: Sums, other: Sums) -> Sums:
    lookups = [tuple(tf.concat(both, 0) for both in zip(*pair)) for pair in zip(one.lookups, other.lookups)]
    return tf.nest.map_structure(tf.add, one._replace(lookups=[]), other._replace(lookups=[]))._replace(lookups=lookups)
