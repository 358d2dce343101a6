"""The update: what one step changes, in every replica's own copies, from gradients and statistics summed over all."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import keras
import tensorflow as tf

from pipelines.config.schema import Train
from pipelines.training import averages, model_state
from pipelines.training.accumulation import Sums
from pipelines.training.clipping import clip
from pipelines.training.divided_tables import DividedTables
from pipelines.training.embedding_tables import TableOptimizer
from pipelines.training.replica import Replica
from pipelines.training.schedules import learning_rate


class Update:
    """Writes weights, optimizer values, moving averages, statistics, and the rows of tables.

    Args:
        model: whose weights and statistics are written.
        optimizer: from `optimizers.make`, over `weights`.
        weights: all weights that may ever train, in the optimizer's order.
        averaged: each of `weights`, and then batch statistics, with its exponential moving average; or an empty list.
        tables: updates the model's embedding tables.
        divided: their parts, where each replica holds one.
        train: the settings.
        steps: steps of the whole run, for the learning rate.
        xla: whether the machine compiles.
        shares: id of a weight -> its learning rate as a share of the schedule's; of those that are missing it is 1.
    """

    def __init__(self, *, model: keras.Model, optimizer: keras.optimizers.Optimizer, weights: list[keras.Variable],
                 averaged: Sequence[tuple[keras.Variable, keras.Variable]], tables: TableOptimizer, divided: DividedTables | None,
                 train: Train, steps: int, xla: bool, shares: Mapping[int, float] = MappingProxyType({})):
        self.model, self.optimizer, self.weights, self.tables, self.divided = model, optimizer, weights, tables, divided
        self.train, self.steps = train, steps
        self.shares = [shares.get(id(weight), 1.0) for weight in weights]
        self.averages = [average for _, average in averaged[: len(weights)]]
        self.average_of = {id(statistic): average for statistic, average in averaged[len(weights):]}
        self.momenta = model_state.momenta(model)
        # an update is a few passes over all weights; fused into one it costs half, on CPUs too. Muon's is matrix products.
        self.fuse = xla or (train.xla != "off" and not train.deterministic and type(optimizer).__name__ != "Muon")
        self.retrace()

    def retrace(self) -> None:
        """Compiles anew, after layers were frozen or unfrozen."""
        self._apply = tf.function(self._applied, jit_compile=self.fuse, autograph=False)

    def rate(self, step: int) -> float:
        """The learning rate of a step: the schedule's, times the optimizer's own, which is 1 unless a callback changed it."""
        scheduled = learning_rate(self.train.learning_rate, self.steps, tf.constant(step))
        return float(scheduled) * float(self.optimizer.learning_rate.value.numpy())

    def __call__(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor, norm: tf.Tensor, micro_batches: int) -> None:
        """Writes a replica's copies; in graph.

        Args:
            sums: over all micro-batches and replicas; of tables each row once.
            rescale: float32, of the sum of gradients to the gradient of the mean loss.
            norm: float32, global norm of that gradient.
            micro_batches: in `sums`, which statistics are means over.
        """
        statistics = self._statistics(replica, step, sums.statistics, micro_batches)
        pairs = self._trained(replica, step, sums.gradients, rescale, norm) + self._followed(replica, step, statistics) + statistics
        for variable, value in pairs:
            replica.copy(variable).assign(tf.cast(value, variable.dtype))
        self._update_tables(replica, step, sums.lookups, rescale, norm)

    def _trained(self, replica: Replica, step: tf.Tensor, gradients: list, rescale: tf.Tensor, norm: tf.Tensor) -> list:
        """(variable, new value) of weights, optimizer and averages of weights."""
        by_weight = {id(variable): gradient for variable, gradient in zip(self.model.trainable_variables, gradients)}
        groups = (self.weights, list(self.optimizer.variables), self.averages)
        old = [replica.values(variables) for variables in groups]
        full = [by_weight.get(id(variable), tf.zeros_like(value)) for variable, value in zip(self.weights, old[0])]
        new = self._apply(full, rescale, norm, step, *old)
        # frozen weights stand still, though the optimizer may decay them, and so do their averages
        frozen = [at for at, variable in enumerate(self.weights) if id(variable) not in by_weight]
        keep = {id(variables[at]) for variables in (self.weights, self.averages) if variables for at in frozen}
        keep.add(id(self.optimizer._learning_rate))
        return [pair for variables, values in zip(groups, new) for pair in zip(variables, values) if id(pair[0]) not in keep]

    def _applied(self, gradients: list, rescale: tf.Tensor, norm: tf.Tensor, step: tf.Tensor, weights: list, slots: list,
                 averaged: list) -> tuple[list, list, list]:
        """Pure: (weights, optimizer values, averages) after one update."""
        rate = learning_rate(self.train.learning_rate, self.steps, step)
        # the optimizer's own rate is a factor on the schedule, 1.0 unless a callback changed it
        slots = [value * rate if variable is self.optimizer._learning_rate else value
                 for variable, value in zip(self.optimizer.variables, slots)]
        clipped = clip([gradient * rescale for gradient in gradients], norm, self.train.clip)
        before = weights
        weights, slots = self.optimizer.stateless_apply(slots, clipped, weights)
        # a step is proportional to the rate, weight decay included
        weights = [new if share == 1.0 else old + share * (new - old) for old, new, share in zip(before, weights, self.shares)]
        return weights, slots, averages.moved(averaged, weights, self.train.ema or 0.0, step)

    def _statistics(self, replica: Replica, step: tf.Tensor, sums: dict[int, tf.Tensor], micro_batches: int) -> list:
        """(variable, new value) of the statistics that the batch changes."""
        changed = [self.model.non_trainable_variables[number] for number in sums]
        return [(variable, model_state.moved(old, value / micro_batches, self.momenta.get(id(variable)), step))
                for variable, value, old in zip(changed, sums.values(), replica.values(changed))]

    def _followed(self, replica: Replica, step: tf.Tensor, statistics: list) -> list:
        """(average, new value) of the statistics that have one: averaged weights are judged and saved with statistics of the same age."""
        followed = [(average, value) for variable, value in statistics if (average := self.average_of.get(id(variable))) is not None]
        moving = [average for average, _ in followed]
        values = averages.moved(replica.values(moving), [value for _, value in followed], self.train.ema or 0.0, step)
        return list(zip(moving, values))

    def _update_tables(self, replica: Replica, step: tf.Tensor, rows: list, rescale: tf.Tensor, norm: tf.Tensor) -> None:
        """Writes the rows that were looked up."""
        if not rows:
            return
        rate = learning_rate(self.train.learning_rate, self.steps, step) * replica.copy(self.optimizer._learning_rate)
        if self.train.tables.learning_rate:
            rate *= self.train.tables.learning_rate / self.train.learning_rate.peak
        clipped = clip([gradient * rescale for _, gradient in rows], norm, self.train.clip)
        for number, ((ids, _), gradient) in enumerate(zip(rows, clipped)):
            if self.divided is None:
                self.tables.update(number, ids, gradient, rate, step, replica.copy)
            else:
                self.tables.update(number, *self.divided.own(replica, ids, gradient), rate, step, self.divided.part(replica))
