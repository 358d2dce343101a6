"""Tables larger than a device: each replica holds a part of the rows, and N replicas hold N times as many.

Row i of a table is held by replica i % N. Before the forward pass the rows that a step looks up are fetched from those who hold them;
after it every replica changes its own. So a step computes what it does with whole tables, number for number. What reads a table as a
whole - judging, checkpoints, the saved model - reads the one in main memory, which is brought up to date when one of them is due.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from pipelines.config.train_settings import Train, accumulation_of
from pipelines.data.draws import by_example, seeded
from pipelines.machine.devices import Machine
from pipelines.training import embedding_tables
from pipelines.training.chain import Replica
from pipelines.training.embedding_tables import Asked, Fetched, Table, TableOptimizer, recorded, write

GATHERED = 1 << 16  # rows of a part that are brought to main memory at once


class DividedTables(TableOptimizer):
    """The parts of the tables and of what their optimizer keeps, one of each for every replica; the tables lie in main memory."""

    def __init__(self, tables: list[Table], train: Train, machine: Machine, rate: Callable[[Replica, tf.Tensor], tf.Tensor]):
        super().__init__(tables, train, machine, rate)
        self.stale = False
        self._wholes = [*(table.variable for table in tables), *self.saved]
        self.parts = {id(whole): self._part(whole) for whole in self._wholes}

    def _part(self, whole: keras.Variable) -> tf.Variable:
        shape = (-(-whole.shape[0] // self.machine.replicas), *whole.shape[1:])
        return tf.Variable(tf.zeros(shape), trainable=False, name=f"{whole.name}_part",
                           synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.NONE)

    def part(self, replica: Replica) -> Callable[[keras.Variable], tf.Variable]:
        """Finds a replica's part of a variable."""
        return lambda whole: replica.own(self.parts[id(whole)])

    def write_rows(self, replica: Replica, number: int, ids: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> None:
        held = tf.equal(ids % self.machine.replicas, replica.number)
        places = tf.boolean_mask(ids, held) // self.machine.replicas
        self.update_rows(number, places, tf.boolean_mask(gradient, held), rate, step, self.part(replica))

    def fetched(self, model: keras.Model, micro_batches: Callable, step: tf.Tensor, examples: Any) -> Fetched:
        def asked(step: tf.Tensor, examples: Any) -> list[dict[int, tf.Tensor]]:
            """Of each micro-batch of a replica: number of a table -> the ids that its forward pass looks up."""
            replica, found = Replica(self.machine), []
            weights, state = replica.values(model.trainable_variables), replica.values(model.non_trainable_variables)
            batches = micro_batches(replica, step, examples)
            for turn in range(accumulation_of(self.train, self.machine.replicas)):
                inputs, *_, draws = batches(turn)
                with recorded(Asked()) as one, by_example(draws):
                    model.stateless_call(weights, seeded(model.non_trainable_variables, state, draws.seed), inputs, training=True)
                found.append({number: tf.concat(one.ids[table], 0) for number, table in enumerate(self.tables) if table in one.ids})
            return found

        every = self.machine.strategy.run(asked, args=(step, examples))
        return [{number: self._rows(self.tables[number], ids) for number, ids in turn.items()} for turn in every]

    def _rows(self, table: Table, ids: Any) -> list[tf.Tensor]:
        strategy, replicas, own = self.machine.strategy, self.machine.replicas, self.machine.own
        local = strategy.experimental_local_results(ids)
        chunk = embedding_tables.CHUNK
        longest = tf.reduce_max(strategy.gather(strategy.run(lambda some: tf.size(some)[None], args=(ids,)), 0))
        turns = -(-longest // chunk)

        def some(turn: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
            part = ids[turn * chunk:(turn + 1) * chunk]
            return tf.ensure_shape(tf.pad(part, [[0, chunk - tf.size(part)]]), [chunk])

        def held(asked: tf.Tensor) -> tf.Tensor:
            replica = Replica(self.machine)
            rows = tf.gather(self.part(replica)(table.variable), asked // replicas)
            return tf.where(tf.equal(asked % replicas, replica.number)[:, None], rows, tf.zeros_like(rows))

        def fetch(turn: tf.Tensor, found: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            asked = strategy.gather(strategy.run(some, args=(turn, ids)), 0)  # [replicas x chunk]
            rows = strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(held, args=(asked,)), axis=None)
            return turn + 1, found.write(turn, rows)

        _, found = tf.while_loop(
            lambda turn, _: turn < turns, fetch,
            (tf.constant(0), tf.TensorArray(tf.float32, turns, element_shape=[replicas * chunk, table.width])), parallel_iterations=1)
        rows = tf.transpose(tf.reshape(found.stack(), [turns, replicas, chunk, table.width]), [1, 0, 2, 3])
        rows = tf.reshape(rows, [replicas, turns * chunk, table.width])
        return [tf.ensure_shape(rows[number][:tf.size(asked)], [asked.shape[0], table.width]) for number, asked in zip(own, local)]

    def spread(self) -> None:
        """The parts become those of the tables in main memory."""
        for whole in self._wholes:
            self._spread(whole)
        self.stale = False

    def _spread(self, whole: keras.Variable) -> None:
        part, replicas = self.parts[id(whole)], self.machine.replicas

        @tf.function(autograph=False)
        def assign() -> None:
            replica = Replica(self.machine)
            mine, rest = replica.own(part), [[0, 0]] * (len(whole.shape) - 1)
            rows = whole.value[replica.number::replicas]
            mine.assign(tf.ensure_shape(tf.pad(rows, [[0, mine.shape[0] - tf.shape(rows)[0]], *rest]), mine.shape))

        self.machine.strategy.run(assign)

    def gather(self) -> None:
        """The tables in main memory become what the parts are; every host calls it at the same step."""
        for whole in self._wholes if self.stale else ():
            self._gather(whole)
        self.stale = False

    def _gather(self, whole: keras.Variable) -> None:
        strategy, replicas, part = self.machine.strategy, self.machine.replicas, self.parts[id(whole)]
        count = part.shape[0]
        size = min(GATHERED, count)

        @tf.function(autograph=False)
        def bring(first: tf.Tensor) -> None:
            some = strategy.run(lambda: tf.ensure_shape(Replica(self.machine).own(part)[first:first + size], [size, *whole.shape[1:]]))
            rows = tf.reshape(strategy.gather(some, 0), [replicas, size, *whole.shape[1:]])
            rows = tf.reshape(tf.experimental.numpy.swapaxes(rows, 0, 1), [size * replicas, *whole.shape[1:]])
            ids = tf.cast(first, tf.int64) * replicas + tf.range(size * replicas, dtype=tf.int64)
            there = ids < whole.shape[0]  # the last rows of the parts fill them up
            with tf.device("CPU:0"):
                write(whole.value, tf.boolean_mask(ids, there), tf.boolean_mask(rows, there))

        for first in range(0, count, size):
            bring(tf.constant(min(first, count - size)))
