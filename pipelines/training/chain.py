"""The chain of links that turns summed gradients into an update, as optax has it: pure functions over one state.

A link takes a `Change` and the values of its own variables, and gives both anew; what it leaves alone is not written. What comes before
gradients are summed (a scaled loss, gradients by example) and what comes after the update (the next scale, rows of tables) are methods of
the same link, so that the step names no feature.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from pipelines.machine import compiling
from pipelines.machine.devices import Machine


class Sums(NamedTuple):
    """What a micro-batch gives, and the sum over several."""

    gradients: list[tf.Tensor]  # of each weight that trains now
    statistics: dict[int, tf.Tensor]  # number among the model's non-trainable variables -> value; those that the batch changes
    totals: tf.Tensor  # [2 + columns] float32, as ScoreSums has them
    lookups: list[tuple[tf.Tensor, tf.Tensor]]  # of each embedding table (ids [n] int64, gradients [n, width])


class Replica:
    """The replica that is being traced: its `number` among those of all hosts, its `place` among this host's, its copies of variables."""

    def __init__(self, machine: Machine):
        self.strategy = machine.strategy
        self.context = tf.distribute.get_replica_context()
        self.number = int(tf.get_static_value(self.context.replica_id_in_sync_group))
        self.place = self.number - machine.own.start

    def own(self, values: Any) -> Any:
        """This replica's of the values that a strategy distributes."""
        return self.strategy.experimental_local_results(values)[self.place]

    def copy(self, variable: keras.Variable) -> tf.Variable:
        return self.own(variable.value)

    def values(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(self.copy(variable)) for variable in variables]

    def assign(self, variable: keras.Variable, value: tf.Tensor) -> None:
        self.copy(variable).assign(tf.cast(value, variable.dtype))


class Change(NamedTuple):
    """What goes along the chain."""

    step: tf.Tensor  # int64, of the whole run
    norm: tf.Tensor  # float32, global norm of the gradient as it came
    gradients: list[tf.Tensor]  # of the mean loss, by each weight; 0 of those that are frozen
    before: list[tf.Tensor]  # the weights
    weights: list[tf.Tensor]  # what becomes of them; the same tensor as in `before`: nothing
    batch: dict[int, tf.Tensor]  # number among the model's non-trainable variables -> the batch's statistic
    statistics: dict[int, tf.Tensor]  # of the same, what the model keeps


State = list[tf.Tensor]  # the values of a link's variables


class Link:
    """A link that does nothing; each overrides what it needs. Methods are traced, those with a replica once in each."""

    name = ""  # under which its state is saved; those of one name must stay in one order
    variables: Sequence[keras.Variable] = ()  # its state; created under the strategy's scope
    saved: Sequence[keras.Variable] = ()  # what a checkpoint holds of it besides: read and written by itself

    def scale(self, replica: Replica, scale: tf.Tensor) -> tf.Tensor:
        """The factor, float32, by which the loss that is summed over a micro-batch is multiplied before it is differentiated."""
        return scale

    def by_micro_batch(self, forward_and_backward: Callable[..., Sums]) -> Callable[..., Sums]:
        """The pure function of a micro-batch, or another in its place."""
        return forward_and_backward

    def summed(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor) -> tuple[Sums, tf.Tensor]:
        """Once a step, from what is summed over the whole batch: (sums, the factor from their gradients to those of the mean loss)."""
        return sums, rescale

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        """Pure; compiled with the other links."""
        return change, state

    def write(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor, norm: tf.Tensor) -> None:
        """Writes what is no new value of a whole variable, after all of these are written."""

    def settle(self, replica: Replica, loss: tf.Tensor, finite: tf.Tensor) -> tf.Tensor | None:
        """After each step, written or, since not all was `finite`, not: whether training goes on all the same; None: it does not."""
        return None

    def row(self, step: int) -> dict[str, float]:
        """What is logged of a step that is done."""
        return {}


class Chain:
    """Links in the order of their calls, on `weights`, all that may ever train; `fuse` compiles them into one kernel."""

    def __init__(self, model: keras.Model, weights: list[keras.Variable], links: Sequence[Link], *, fuse: bool):
        self.model, self.weights, self.links, self.fuse = model, weights, tuple(links), fuse
        self.retrace()

    def retrace(self) -> None:
        """Compiles anew, after layers were frozen or unfrozen."""
        self._update = compiling.Once(tf.function(self._updated, jit_compile=self.fuse, autograph=False))

    def row(self, step: int) -> dict[str, float]:
        return {name: value for link in self.links for name, value in link.row(step).items()}

    def write(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor, norm: tf.Tensor, micro_batches: int) -> None:
        """Writes a replica's copies; in graph. `sums` are of so many micro-batches over all replicas, of tables each row once."""
        by_weight = {id(variable): gradient for variable, gradient in zip(self.model.trainable_variables, sums.gradients)}
        kept = {number: self.model.non_trainable_variables[number] for number in sums.statistics}
        weights = replica.values(self.weights)
        change = Change(step, norm, [by_weight.get(id(variable), tf.zeros_like(value)) for variable, value in zip(self.weights, weights)],
                        weights, weights, {number: value / micro_batches for number, value in sums.statistics.items()},
                        dict(zip(kept, replica.values(list(kept.values())))))
        new, statistics, states = self._update(change, rescale, [replica.values(link.variables) for link in self.links])
        pairs = [*zip(self.weights, new), *((kept[number], value) for number, value in statistics.items()),
                 *(pair for link, state in zip(self.links, states) for pair in zip(link.variables, state))]
        for variable, value in pairs:
            if value is not None:
                replica.assign(variable, value)
        for link in self.links:
            link.write(replica, step, sums, rescale, norm)

    def _updated(self, change: Change, rescale: tf.Tensor, states: list[State]) -> tuple[list, dict, list]:
        """Pure: (weights, statistics, states), with None for each that stays as it is."""
        def changed(before: list[tf.Tensor], after: list[tf.Tensor]) -> list[tf.Tensor | None]:
            return [None if new is old else new for old, new in zip(before, after)]

        begun, new = change, []
        change = change._replace(gradients=[gradient * rescale for gradient in change.gradients], weights=change.before)
        for link, state in zip(self.links, states):
            change, after = link.update(change, state)
            new.append(changed(state, after))
        statistics = {number: None if value is begun.statistics[number] else value for number, value in change.statistics.items()}
        return changed(begun.before, change.weights), statistics, new
