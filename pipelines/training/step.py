"""The training step, from top to bottom: forward and backward, reduce, check, apply.

Forward and backward are a pure function of (weights, state, micro-batch, draws), compiled or not, once per micro-batch. What it gives is
summed over replicas in one reduction; every replica checks the same sums and applies the same update to its own copies. K steps run in
one call. Randomness belongs to the step and to the example's place in the global batch: the same batches give the same weights on any
number of replicas. Batch statistics belong to the micro-batch.
"""

from typing import Any

import keras
import tensorflow as tf

from pipelines.config.schema import Train
from pipelines.data.draws import Draws, by_example
from pipelines.data.input import Feed
from pipelines.data.order import Plan
from pipelines.machine import compiling
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training import loss_scale, model_state, waiting
from pipelines.training.accumulation import Sums, accumulated
from pipelines.training.carry import Carry
from pipelines.training.embedding_tables import brought_together, recorded
from pipelines.training.micro_batches import MicroBatches
from pipelines.training.private_gradients import PrivateGradients
from pipelines.training.replica import Replica
from pipelines.training.totals import summed_scores
from pipelines.training.update import Update


class Step:
    """Runs training steps; holds nothing that changes but compiled functions. `model` is built under `machine.strategy.scope()`."""

    def __init__(self, *, task: Task, model: keras.Model, update: Update, machine: Machine, plan: Plan, feed: Feed, train: Train,
                 score_names: list[str], private: PrivateGradients | None = None):
        self.task, self.model, self.update, self.machine, self.plan, self.feed = task, model, update, machine, plan, feed
        self.batches = MicroBatches(task, model, update.tables.tables, plan, feed, machine, train.seed)
        self.train, self.score_names, self.norms, self.private = train, score_names, model_state.norms(model), private
        self.retrace()

    def retrace(self) -> None:
        """Compiles anew, after layers were frozen or unfrozen."""
        gradients = self.private.by_example(self._forward_and_backward) if self.private else self._forward_and_backward
        parts = self.train.xla != "off" and not self.train.deterministic and self.private is None
        self._gradients = compiling.function(gradients, xla=self.machine.xla, parts=parts)
        self._run = tf.function(self._run_steps, autograph=False)
        self.update.retrace()

    def fresh(self) -> Carry:
        """The carry at step 0."""
        return Carry.fresh(len(self.score_names), self.machine.precision)

    def __call__(self, iterator: Any, start: int, count: int, carry: Carry) -> tuple[int, Carry]:
        """Runs up to `count` steps from step `start`; fewer where a loss is not finite. Returns (next step, carry)."""
        step, carry = self._run(iterator, tf.constant(start, tf.int64), tf.constant(count, tf.int64), carry)
        return int(step), carry

    def _run_steps(self, iterator: Any, start: tf.Tensor, count: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
        strategy, divided = self.machine.strategy, self.update.divided

        def one(step: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
            examples, seconds = waiting.fetched(self.feed, iterator, strategy, deterministic=self.train.deterministic)
            rows = divided and divided.fetched(strategy.run(self.batches.asked, args=(step, examples)))
            sums = strategy.run(self._reduced, args=(step, examples, carry.loss_scale, rows))
            sums = sums._replace(lookups=brought_together(sums.lookups, self.machine))
            after = strategy.run(self._checked_and_applied, args=(step, sums, carry._replace(waited=carry.waited + seconds)))
            carry = Carry(*(strategy.experimental_local_results(value)[0] for value in after))
            return step + tf.cast(carry.finite, tf.int64), carry  # a step that failed is not counted: its number names its batch

        return tf.while_loop(lambda step, carry: (step < start + count) & carry.finite, one, (start, carry), parallel_iterations=1)

    def _reduced(self, step: tf.Tensor, fetched: Any, scale: tf.Tensor, rows: list | None) -> Sums:
        """This replica's micro-batches, forward and backward; summed over replicas, but for its lookups of tables."""
        plan, replica = self.plan, Replica(self.machine)
        batches = self.batches.of(replica, step, fetched)
        weights, state = replica.values(self.model.trainable_variables), replica.values(self.model.non_trainable_variables)

        def sums_of(turn: int | tf.Tensor) -> Sums:
            given = rows and {number: each[replica.place] for number, each in rows[turn].items()}
            return self._gradients(weights, state, *batches(turn), scale, given)

        sums = accumulated(sums_of, plan.accumulation)
        if plan.replicas == 1:
            return sums
        return replica.context.all_reduce(tf.distribute.ReduceOp.SUM, sums._replace(lookups=[]))._replace(lookups=sums.lookups)

    def _forward_and_backward(self, weights: list, state: list, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws,
                              scale: tf.Tensor, rows: dict[int, tf.Tensor] | None) -> Sums:
        """The pure function of one micro-batch. `mask` is [micro] float32, 1 or 0; the loss is multiplied by `scale`; `rows` are given of
        divided tables."""
        variables = self.model.non_trainable_variables
        before = model_state.seeded(variables, state, draws.seed)
        with (tf.GradientTape() as tape, recorded(self.update.tables.lookups(tape, rows)) as lookups,
              model_state.of_this_batch_alone(self.norms), by_example(draws)):
            tape.watch(weights)
            outputs, after, penalties = self.model.stateless_call(weights, before, inputs, training=True, return_losses=True)
            losses = tf.cast(self.task.loss(outputs, targets, training=True), tf.float32) * mask
            weighted = self.task.example_weights(targets)
            total = tf.reduce_sum(losses if weighted is None else losses * weighted)
            if penalties:  # on weights; they count once a step: each micro-batch brings its share, by examples
                total += tf.add_n([tf.cast(penalty, tf.float32) for penalty in penalties]) * tf.reduce_sum(mask)
            objective = total * (scale / (1 if self.private else self.plan.batch))
        gradients = tape.gradient(objective, [*weights, *lookups.vectors], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        statistics = {number: tf.convert_to_tensor(new) for number, (variable, old, new) in enumerate(zip(variables, before, after))
                      if new is not old and model_state.is_statistic(variable)}
        totals = summed_scores(total, mask, self.task.scores(outputs, targets), self.score_names)
        return Sums(gradients[:len(weights)], statistics, totals, lookups.gradients(self.update.tables.tables, gradients[len(weights):]))

    def _checked_and_applied(self, step: tf.Tensor, sums: Sums, carry: Carry) -> Carry:
        """Updates this replica's copies where loss and gradients are finite; the same in every replica."""
        totals, count, replica = sums.totals, tf.maximum(sums.totals[1], 1.0), Replica(self.machine)
        rescale = self.plan.batch / count / carry.loss_scale  # a micro-batch divided by the full batch; an epoch's last one counts fewer
        if self.private:  # noise, once, in the sum over the whole batch
            sums, rescale = self.private.noised(sums, step), tf.constant(1.0 / self.private.expected)
        norm = tf.linalg.global_norm([*sums.gradients, *(gradient for _, gradient in sums.lookups)]) * rescale
        loss = totals[0] / count
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        tf.cond(finite, lambda: self.update(replica, step, sums, rescale, norm, self.plan.replicas * self.plan.accumulation), lambda: None)
        scale, good = carry.loss_scale, carry.good_steps
        if self.machine.precision == "float16":  # an overflow passes the step over; the loss is not scaled, so no scale helps it
            scale, good = loss_scale.after(scale, good, finite)
            totals = tf.where(finite, totals, tf.zeros_like(totals))
            finite = finite | (tf.math.is_finite(loss) & (scale >= 1.0))
        return Carry(carry.totals + tf.cast(totals, tf.float64), loss, norm, scale, good, finite, carry.waited)
