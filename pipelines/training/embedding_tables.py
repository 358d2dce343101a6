"""Big embedding tables: rows in, gradients out, so that a step costs what its batch looks up, whatever the size of the table.

A `Table` is no weight of the pure step. Its rows are gathered inside the model, the gradient of what was gathered comes out of
the step, and an optimizer of its own, kept by row, changes just the rows that were looked up. Over replicas the lookups of all
are brought together before the update, so that the copies stay equal, or each replica changes the rows that it holds
(`divided_tables`).
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from pipelines.config.train_settings import Train
from pipelines.machine.devices import Machine
from pipelines.training.chain import Link, Replica, Sums
from pipelines.training.links import clip

_ACTIVE = threading.local()  # the Lookups of the trace under way in this thread (a replica has one of its own)
_PLACE = threading.local()  # whether tables are now created in main memory


class _Held:
    """Keeps a variable out of Keras' sight: what a layer tracks would become a weight of the step."""

    def __init__(self, variable: keras.Variable):
        self.variable = variable


@keras.saving.register_keras_serializable("quartet")
class Table(keras.layers.Layer):
    """Looks up rows of a table that may be large: ids [...] int -> vectors [..., width] float32.

    Args:
        rows: number of rows; ids are 0 .. rows - 1.
        width: length of a row.
        initializer: a Keras initializer; the default is uniform within 1 / width.
    """

    def __init__(self, rows: int, width: int, initializer: Any = None, **options: Any):
        super().__init__(**{**options, "dtype": "float32"})
        self.rows, self.width = rows, width
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomUniform(-1.0 / width, 1.0 / width))
        self._held = _Held(_variable(self.initializer, (rows, width), f"{self.name}_rows"))
        self.built = True

    @property
    def variable(self) -> keras.Variable:
        """[rows, width] float32."""
        return self._held.variable

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        lookups = getattr(_ACTIVE, "lookups", None)
        if lookups is None:
            return tf.gather(self.variable.value, ids)
        vectors = lookups.rows(self, ids)
        if self.trainable:
            lookups.add(self, ids, vectors)
        return vectors

    def compute_output_spec(self, ids: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*ids.shape, self.width), "float32")

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "rows": self.rows, "width": self.width, "initializer": initializer}

    def save_own_variables(self, store: Any) -> None:
        store["rows"] = np.asarray(self.variable.value)

    def load_own_variables(self, store: Any) -> None:
        if store["rows"].shape != (self.rows, self.width):
            raise ValueError(f"table {self.name}: the file holds {store['rows'].shape}, the model {(self.rows, self.width)}")
        self.variable.assign(store["rows"])


def tables_of(model: keras.Model) -> list[Table]:
    """The tables of a model, each once, in the order of its layers."""
    tables = [layer for layer in model._flatten_layers() if isinstance(layer, Table)]
    return list(dict.fromkeys(tables))


def all_variables(model: keras.Model) -> list[keras.Variable]:
    """All that makes a model what it is: weights, statistics, seeds, and the rows of its tables."""
    return [*model.variables, *(table.variable for table in tables_of(model))]


@contextmanager
def in_main_memory(wanted: bool) -> Iterator[None]:
    """Within, tables and what their optimizer keeps are created once, beside the CPU, and not on each device of a strategy."""
    _PLACE.main = wanted
    try:
        yield
    finally:
        _PLACE.main = False


def _variable(initializer: Any, shape: tuple[int, ...], name: str) -> keras.Variable:
    def alone(_: Any, **options: Any) -> ResourceVariable:
        return ResourceVariable(options["initial_value"], trainable=False, dtype=options["dtype"], name=options["name"])

    with contextlib.ExitStack() as place:
        if getattr(_PLACE, "main", False):
            place.enter_context(tf.device("CPU:0"))
            place.enter_context(tf.variable_creator_scope(alone))
        return keras.Variable(initializer, shape=shape, dtype="float32", trainable=False, name=name)


class Lookups:
    """What a forward pass gathered, under its gradient tape.

    Args:
        given: of each table all rows that the pass looks up, [n, width], in the order of its lookups; None: they are read from the tables.
    """

    def __init__(self, tape: tf.GradientTape, given: dict[Table, tf.Tensor] | None = None):
        self.tape, self.given = tape, given
        self.taken: dict[Table, int | tf.Tensor] = {}
        self.results: list[tuple[Table, tf.Tensor, tf.Tensor]] = []

    def rows(self, table: Table, ids: tf.Tensor) -> tf.Tensor:
        """The vectors of `ids`, [..., width]."""
        if self.given is None:
            return tf.gather(table.variable.value, ids)
        first = self.taken.get(table, 0)
        self.taken[table] = first + tf.size(ids)
        return tf.reshape(self.given[table][first:self.taken[table]], tf.concat([tf.shape(ids), [table.width]], 0))

    @property
    def vectors(self) -> list[tf.Tensor]:
        """What each lookup gave, by which the loss is differentiated."""
        return [vectors for _, _, vectors in self.results]

    def add(self, table: Table, ids: tf.Tensor, vectors: tf.Tensor) -> None:
        self.tape.watch(vectors)
        self.results.append((table, ids, vectors))

    def gradients(self, tables: list[Table], gradients: list) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """For each table (ids [n] int64, gradients [n, width]) of all its lookups; `gradients` in the order of `results`."""
        summed = []
        for table in tables:
            parts = [(tf.reshape(tf.cast(ids, tf.int64), [-1]), tf.reshape(gradient, [-1, table.width]))
                     for (one, ids, _), gradient in zip(self.results, gradients) if one is table]
            parts = parts or [(tf.zeros([0], tf.int64), tf.zeros([0, table.width]))]
            summed.append((tf.concat([ids for ids, _ in parts], 0), tf.concat([rows for _, rows in parts], 0)))
        return summed


class Asked(Lookups):
    """The ids alone: every lookup gives zeros, so that of a forward pass no more is computed than the ids depend on."""

    def __init__(self) -> None:
        self.ids: dict[Table, list[tf.Tensor]] = {}

    def rows(self, table: Table, ids: tf.Tensor) -> tf.Tensor:
        self.ids.setdefault(table, []).append(tf.reshape(tf.cast(ids, tf.int64), [-1]))
        return tf.zeros(tf.concat([tf.shape(ids), [table.width]], 0))

    def add(self, table: Table, ids: tf.Tensor, vectors: tf.Tensor) -> None:
        pass


Found = TypeVar("Found", bound=Lookups)


@contextmanager
def recorded(lookups: Found) -> Iterator[Found]:
    """Hands every lookup of a table within to `lookups`."""
    _ACTIVE.lookups = lookups
    try:
        yield lookups
    finally:
        _ACTIVE.lookups = None


def summed(parts: list[tuple[tf.Tensor, tf.Tensor]]) -> tuple[tf.Tensor, tf.Tensor]:
    """(ids, gradients) of several micro-batches and replicas as (each id once [n], the sum of its gradients [n, width]); in graph."""
    ids = tf.concat([ids for ids, _ in parts], 0)
    gradients = tf.concat([gradient for _, gradient in parts], 0)
    rows, places = tf.unique(ids)
    return rows, tf.math.unsorted_segment_sum(gradients, places, tf.size(rows))


CHUNK = 4096  # rows that a replica sends at once to the other hosts


def _of_all_hosts(lookup: tuple[Any, Any], machine: Machine) -> tuple[tf.Tensor, tf.Tensor]:
    """(ids [n], gradients [n, width]) of a table, of all replicas one after another: as many chunks as the longest has, the last filled."""
    strategy = machine.strategy

    def filled(ids: tf.Tensor, gradients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ids, gradients = summed([(ids, gradients)])  # each row travels once
        missing = -tf.size(ids) % CHUNK
        return tf.pad(ids, [[0, missing]]), tf.pad(gradients, [[0, missing], [0, 0]]), tf.size(ids)[None]

    ids, gradients, counts = strategy.run(filled, args=lookup)
    every = strategy.gather(counts, 0)  # [replicas]
    width = strategy.experimental_local_results(gradients)[0].shape[-1]

    def chunk(turn: tf.Tensor, ids: tf.Tensor, gradients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = turn * CHUNK
        ids, gradients = ids[first:first + CHUNK], gradients[first:first + CHUNK]
        left = CHUNK - tf.size(ids)  # a replica with fewer rows sends zeros
        return tf.ensure_shape(tf.pad(ids, [[0, left]]), [CHUNK]), tf.ensure_shape(tf.pad(gradients, [[0, left], [0, 0]]), [CHUNK, width])

    turns = tf.maximum(1, -(-tf.reduce_max(every) // CHUNK))

    def send(turn: tf.Tensor, all_ids: tf.TensorArray, all_gradients: tf.TensorArray) -> tuple:
        some = strategy.run(chunk, args=(turn, ids, gradients))
        return turn + 1, all_ids.write(turn, strategy.gather(some[0], 0)), all_gradients.write(turn, strategy.gather(some[1], 0))

    _, all_ids, all_gradients = tf.while_loop(
        lambda turn, *_: turn < turns, send,
        (tf.constant(0), tf.TensorArray(tf.int64, turns, element_shape=[machine.replicas * CHUNK]),
         tf.TensorArray(tf.float32, turns, element_shape=[machine.replicas * CHUNK, width])), parallel_iterations=1)

    def in_order(sent: tf.TensorArray, shape: list[int]) -> tf.Tensor:
        by_turn = tf.reshape(sent.stack(), [turns, machine.replicas, CHUNK, *shape])
        by_replica = tf.reshape(tf.transpose(by_turn, [1, 0, 2, *range(3, 3 + len(shape))]), [machine.replicas, turns * CHUNK, *shape])
        return tf.boolean_mask(by_replica, tf.sequence_mask(every, turns * CHUNK))

    return in_order(all_ids, []), in_order(all_gradients, [width])


Fetched = list[dict[int, list[tf.Tensor]]]  # of each micro-batch: number of a table -> rows [n, width] for each of this host's replicas


class TableOptimizer(Link):
    """Updates the rows that were looked up.

    `adagrad` is Duchi et al. 2011; `rowwise_adagrad` keeps one number a row, the mean over its squares (Mudigere et al. 2021,
    arXiv:2104.05158); `adam` is Kingma and Ba 2015, its moments decaying only when their row is looked up ("lazy").

    Args:
        tables: what to update; call it inside the strategy's scope.
        train: `train.tables`, and `train.clip`, which is applied to tables as to weights.
        rate: (replica, step) -> the learning rate of weights; in graph.
    """

    name = "optimizer"
    EPSILON = 1e-7
    BETA1, BETA2 = 0.9, 0.999

    def __init__(self, tables: list[Table], train: Train, machine: Machine, rate: Callable[[Replica, tf.Tensor], tf.Tensor]):
        self.tables, self.train, self.settings, self.machine, self.rate = tables, train, train.tables, machine, rate
        self.slots = [self._slots(table) for table in tables]
        self.saved = [variable for slots in self.slots for variable in slots]

    def lookups(self, tape: tf.GradientTape, rows: dict[int, tf.Tensor] | None) -> Lookups:
        """What takes the lookups of a forward pass; `rows`, where they are given: number of a table -> those that it looks up."""
        return Lookups(tape, None if rows is None else {self.tables[number]: given for number, given in rows.items()})

    def fetched(self, model: keras.Model, micro_batches: Callable, step: tf.Tensor, examples: Any) -> Fetched | None:
        """The rows that a step looks up, in cross-replica context, before its forward pass; None: replicas read them from their own tables.

        Args:
            micro_batches: of a replica (`Step.micro_batches`).
        """
        return None

    def brought_together(self, lookups: list) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Lookups of all replicas, summed by row; in cross-replica context: collectives take no number that differs from step to step."""
        if self.machine.group.size > 1:
            return [summed([_of_all_hosts(one, self.machine)]) for one in lookups]
        return [summed(list(zip(*(self.machine.strategy.experimental_local_results(part) for part in one)))) for one in lookups]

    def write(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor, norm: tf.Tensor) -> None:
        """Writes the rows that were looked up."""
        if not sums.lookups:
            return
        rate = self.rate(replica, step)
        if self.settings.learning_rate:
            rate *= self.settings.learning_rate / self.train.learning_rate.peak
        clipped = clip([gradient * rescale for _, gradient in sums.lookups], norm, self.train.clip)
        for number, ((ids, _), gradient) in enumerate(zip(sums.lookups, clipped)):
            self.write_rows(replica, number, ids, gradient, rate, step)

    def write_rows(self, replica: Replica, number: int, ids: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> None:
        """Writes those of table `number` that a replica holds; arguments as of `update_rows`."""
        self.update_rows(number, ids, gradient, rate, step, replica.copy)

    def _slots(self, table: Table) -> list[keras.Variable]:
        full = (table.rows, table.width)
        kinds: dict[str, list[tuple[int, ...]]] = {
            "sgd": [], "rowwise_adagrad": [(table.rows,)], "adagrad": [full], "adam": [full, full]}
        shapes = kinds[self.settings.optimizer]
        return [_variable("zeros", shape, f"{table.name}_slot{number}") for number, shape in enumerate(shapes)]

    def update_rows(self, number: int, ids: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor, step: tf.Tensor, copy: Any) -> None:
        """Changes rows of table `number`, in this replica's copy; in graph.

        Args:
            ids: [n] int64, each once.
            gradient: [n, width] float32, as clipped.
            rate: the learning rate.
            step: int64, of the whole run.
            copy: a Keras variable -> this replica's tf.Variable, its copy or its part.
        """
        table = copy(self.tables[number].variable)
        slots = [copy(variable) for variable in self.slots[number]]
        old = tf.gather(table, ids)
        if self.settings.optimizer == "sgd":
            change = gradient
        elif self.settings.optimizer == "adam":
            first = self.BETA1 * tf.gather(slots[0], ids) + (1.0 - self.BETA1) * gradient
            second = self.BETA2 * tf.gather(slots[1], ids) + (1.0 - self.BETA2) * tf.square(gradient)
            done = tf.cast(step + 1, tf.float32)
            correction = tf.sqrt(1.0 - tf.pow(self.BETA2, done)) / (1.0 - tf.pow(self.BETA1, done))
            change = correction * first / (tf.sqrt(second) + self.EPSILON)
            write(slots[0], ids, first)
            write(slots[1], ids, second)
        else:
            square = tf.square(gradient)
            if self.settings.optimizer == "rowwise_adagrad":
                square = tf.reduce_mean(square, -1)
            total = tf.gather(slots[0], ids) + square
            root = tf.sqrt(total) + self.EPSILON
            change = gradient / (root if self.settings.optimizer == "adagrad" else root[:, None])
            write(slots[0], ids, total)
        write(table, ids, old - rate * change)


def write(variable: tf.Variable, ids: tf.Tensor, rows: tf.Tensor) -> None:
    """Rows `ids` of a variable become `rows`."""
    # a scatter into the variable itself: read and assigned whole, it would cost the whole table
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=rows)
