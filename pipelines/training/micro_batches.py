"""What each replica learns from in a step: its examples, by micro-batch, prepared for the model."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from pipelines.data import order
from pipelines.data.draws import Draws, by_example
from pipelines.data.input import Feed
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training import model_state
from pipelines.training.embedding_tables import Asked, Table, recorded
from pipelines.training.replica import Replica


class MicroBatches:
    """Cuts what a feed gives into micro-batches; randomness belongs to the examples, not to how they are divided."""

    def __init__(self, task: Task, model: keras.Model, tables: list[Table], plan: order.Plan, feed: Feed, machine: Machine, seed: int):
        self.task, self.model, self.tables, self.plan, self.feed, self.machine, self.seed = task, model, tables, plan, feed, machine, seed

    def of(self, replica: Replica, step: tf.Tensor, fetched: Any) -> Callable[[int | tf.Tensor], tuple]:
        """The micro-batches of a replica by their number in its step: (inputs, targets, mask [micro] float32, draws); in graph."""
        plan, epoch = self.plan, step // self.plan.steps_per_epoch
        numbers, mask, examples = self.feed.batch(step, replica.number, fetched)

        def micro_batch(turn: int | tf.Tensor) -> tuple:
            def part(value: tf.Tensor) -> tf.Tensor:
                whole = plan.accumulation == 1
                return value if whole else tf.ensure_shape(value[turn * plan.micro:(turn + 1) * plan.micro], [plan.micro, *value.shape[1:]])
            first = (replica.number * plan.accumulation + turn) * plan.micro
            draws = Draws(order.step_seed(self.seed, step), first + tf.range(plan.micro))
            keys = order.example_keys(self.seed, epoch, part(numbers))
            some = tf.nest.map_structure(part, examples)
            if plan.accumulation > 1:  # as where a replica has this micro-batch alone
                some = self.feed.padded(some)
            inputs, targets = self.task.prepare(some, keys=keys, seed=draws.seed, epoch=epoch)
            return inputs, targets, part(mask), draws

        return micro_batch

    def asked(self, step: tf.Tensor, fetched: Any) -> list[dict[int, tf.Tensor]]:
        """Of each micro-batch of the replica that is being traced: number of a table -> the ids that its forward pass looks up."""
        model, replica = self.model, Replica(self.machine)
        weights, state = replica.values(model.trainable_variables), replica.values(model.non_trainable_variables)
        batches, found = self.of(replica, step, fetched), []
        for turn in range(self.plan.accumulation):
            inputs, *_, draws = batches(turn)
            with recorded(Asked()) as asked, by_example(draws):
                model.stateless_call(weights, model_state.seeded(model.non_trainable_variables, state, draws.seed), inputs, training=True)
            found.append({number: tf.concat(asked.ids[table], 0) for number, table in enumerate(self.tables) if table in asked.ids})
        return found
