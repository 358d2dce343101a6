"""The training step: a pure function of (weights, state, micro-batch, seed), and what stands around it.

Forward and backward run through `stateless_call`, compiled or not, once per micro-batch. Gradients, changed
statistics and totals are summed over replicas in one reduction; clipping, the finite check and the update
follow, as the same pure function in every replica, each writing its own copy. K steps run in one call.
Randomness belongs to the micro-batch, not to the device: the same micro-batches give the same weights on any
number of replicas, dropout and batch statistics included.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from pipelines.config.schema import Clip, Train
from pipelines.data import order
from pipelines.data.input import Feed, StreamFeed
from pipelines.machine import compiling
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training.batch_norm import norms, of_this_batch_alone, rising
from pipelines.training.embedding_tables import TableOptimizer, recorded, summed
from pipelines.training.schedules import learning_rate

FIRST_LOSS_SCALE, SCALE_PATIENCE = 2.0**15, 2000  # float16: doubled after so many finite steps, halved at each overflow


class Carry(NamedTuple):
    """What goes from step to step besides weights; everything in it is saved with a checkpoint."""

    totals: tf.Tensor  # [2 + scores] float64: sum of loss, of weights, of each score, since the epoch began
    loss: tf.Tensor  # float32: mean loss of the last step
    gradient_norm: tf.Tensor  # float32: global norm of the last step's gradient, before clipping
    loss_scale: tf.Tensor  # float32: 1 unless float16
    good_steps: tf.Tensor  # int32: finite steps since the loss scale changed
    finite: tf.Tensor  # bool: False stops the loop
    waited: tf.Tensor  # float64, s: time spent waiting for input


class Step:
    """Runs training steps. Holds no state of its own but compiled functions.

    Args:
        task: says how a batch is prepared, what the loss and the scores are.
        model: built under `machine.strategy.scope()`.
        optimizer: from `optimizers.make`, over `weights`.
        weights: all weights that may ever train, in the optimizer's order.
        averages: each of `weights`, and then batch statistics, with its exponential moving average; or an empty list.
        plan: the division of the global batch.
        tables: updates the model's embedding tables.
        feed: where examples come from.
        train: the settings.
        steps: steps of the whole run, for the learning rate.
        score_names: of the task's scores, in their order.
    """

    def __init__(self, *, task: Task, model: keras.Model, optimizer: keras.optimizers.Optimizer, weights: list[keras.Variable],
                 averages: list[tuple[keras.Variable, keras.Variable]], tables: TableOptimizer, machine: Machine, plan: order.Plan,
                 feed: Feed, train: Train, steps: int, score_names: list[str]):
        self.task, self.model, self.optimizer, self.machine = task, model, optimizer, machine
        self.weights, self.tables = weights, tables
        self.averages = [average for _, average in averages[: len(weights)]]
        self.average_of = {id(statistic): average for statistic, average in averages[len(weights):]}
        self.plan, self.feed, self.train, self.steps = plan, feed, train, steps
        self.score_names = score_names
        self.norms = norms(model)
        self.momentum = {id(statistic): layer.momentum for layer in self.norms for statistic in (layer.moving_mean, layer.moving_variance)}
        self.retrace()

    def retrace(self) -> None:
        """Compiles anew, after layers were frozen or unfrozen."""
        self._gradients = compiling.function(self._gradients_of_micro_batch, xla=self.machine.xla)
        # an update is a few passes over all weights; fused into one it costs half, on CPUs too. Muon's is matrix products.
        fuse = self.machine.xla or (self.train.xla != "off" and not self.train.deterministic and type(self.optimizer).__name__ != "Muon")
        self._apply = tf.function(self._apply_gradients, jit_compile=fuse, autograph=False)
        self._run = tf.function(self._run_steps, autograph=False)
        self._changed: list[int] = []

    def fresh(self) -> Carry:
        """The carry at step 0."""
        scale = FIRST_LOSS_SCALE if self.machine.precision == "float16" else 1.0
        return Carry(tf.zeros([2 + len(self.score_names)], tf.float64), tf.constant(0.0), tf.constant(0.0), tf.constant(scale),
                     tf.constant(0), tf.constant(True), tf.constant(0.0, tf.float64))

    def __call__(self, iterator: Any, start: int, count: int, carry: Carry) -> tuple[int, Carry]:
        """Runs up to `count` steps from step `start`; fewer where a loss is not finite. Returns (next step, carry)."""
        step, carry = self._run(iterator, tf.constant(start, tf.int64), tf.constant(count, tf.int64), carry)
        return int(step), carry

    # ---- in graph -------------------------------------------------------------------------------------------

    def _run_steps(self, iterator: Any, start: tf.Tensor, count: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
        strategy = self.machine.strategy

        def one(step: tf.Tensor, carry: Carry) -> tuple[tf.Tensor, Carry]:
            if self.feed.on_device:
                examples, waited = None, carry.waited
            else:
                # nothing else orders a clock and an iterator within a graph
                asked = self._now()
                with tf.control_dependencies([asked]):
                    examples = next(iterator)
                with tf.control_dependencies(tf.nest.flatten(tf.nest.map_structure(strategy.experimental_local_results, examples))):
                    waited = carry.waited + self._now() - asked
            parts = strategy.run(self._replica_gradients, args=(step, examples, carry))
            # here the lookups of all replicas can be put together; their number differs from step to step, which collectives do not take
            rows = [summed(list(zip(*(strategy.experimental_local_results(part) for part in one)))) for one in parts.pop("lookups")]
            result = strategy.run(self._replica_update, args=(step, parts, rows, carry._replace(waited=waited)))
            carry = Carry(*(strategy.experimental_local_results(value)[0] for value in result))
            return step + tf.cast(carry.finite, tf.int64), carry  # a step that failed is not counted: its number names its batch

        return tf.while_loop(lambda step, carry: (step < start + count) & carry.finite, one, (start, carry), parallel_iterations=1)

    def _now(self) -> tf.Tensor:
        """Seconds, float64, in graph. TensorFlow's own clock is not to be had with determinism on."""
        if self.train.deterministic:
            return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])
        return tf.timestamp()

    def _replica_gradients(self, step: tf.Tensor, examples: Any, carry: Carry) -> dict[str, Any]:
        """This replica's micro-batches: gradients, statistics and totals, summed over replicas, and its own lookups of tables."""
        plan = self.plan
        context = tf.distribute.get_replica_context()
        replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        epoch = step // plan.steps_per_epoch
        rows = slice(replica * plan.local, (replica + 1) * plan.local)
        if isinstance(self.feed, StreamFeed):  # a stream numbers its own examples
            numbers, mask = examples.pop(StreamFeed.NUMBERS), examples.pop(StreamFeed.WEIGHTS)
        else:
            numbers, mask = (value[rows] for value in self.feed.numbers(step))
        if examples is None:
            examples = self.feed.gather(numbers, replica)

        live = self.model.trainable_variables
        weights, state = self._values(live, replica), self._values(self.model.non_trainable_variables, replica)

        def micro_batch(turn: int | tf.Tensor) -> tuple[list, list, tf.Tensor, list]:
            part = slice(turn * plan.micro, (turn + 1) * plan.micro)
            def take(value: tf.Tensor) -> tf.Tensor:
                return value if plan.accumulation == 1 else tf.ensure_shape(value[part], [plan.micro, *value.shape[1:]])
            seed = order.micro_seed(self.train.seed, step, replica * plan.accumulation + turn)
            keys = order.example_keys(self.train.seed, epoch, take(numbers))
            inputs, targets = self.task.prepare(tf.nest.map_structure(take, examples), keys=keys, seed=seed, epoch=epoch)
            return self._gradients(weights, state, inputs, targets, take(mask), seed, carry.loss_scale)

        gradients, statistics, totals, lookups = micro_batch(0)
        if plan.accumulation > 1 and self.tables.tables:  # a loop cannot carry lookups, whose number differs from turn to turn
            for turn in range(1, plan.accumulation):
                *next_sums, seen = micro_batch(turn)
                gradients, statistics, totals = tf.nest.map_structure(tf.add, [gradients, statistics, totals], next_sums)
                lookups = [(tf.concat([ids, others], 0), tf.concat([rows, further], 0))
                           for (ids, rows), (others, further) in zip(lookups, seen)]
        elif plan.accumulation > 1:
            def more(turn: tf.Tensor, *sums: Any) -> Any:
                return turn + 1, *tf.nest.map_structure(tf.add, sums, micro_batch(turn)[:3])
            _, gradients, statistics, totals = tf.while_loop(
                lambda turn, *_: turn < plan.accumulation, more, (tf.constant(1), gradients, statistics, totals), parallel_iterations=1)
        if plan.replicas > 1:
            gradients, statistics, totals = context.all_reduce(tf.distribute.ReduceOp.SUM, [gradients, statistics, totals])
        return {"gradients": gradients, "statistics": statistics, "totals": totals, "lookups": lookups}

    def _replica_update(self, step: tf.Tensor, parts: dict[str, Any], rows: list, carry: Carry) -> Carry:
        """Clips, checks and applies what all replicas computed, to this replica's copies."""
        plan, live = self.plan, self.model.trainable_variables
        gradients, statistics, totals = parts["gradients"], parts["statistics"], parts["totals"]
        replica = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))

        # the pure function divided by the full batch; the last batch of an epoch counts fewer examples
        count = totals[1]
        rescale = plan.batch / count / carry.loss_scale
        norm = tf.linalg.global_norm([*gradients, *(gradient for _, gradient in rows)]) * rescale
        loss = totals[0] / count
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        micro_batches = plan.replicas * plan.accumulation
        changed = [self.model.non_trainable_variables[i] for i in self._changed]
        statistics = self._moved(changed, [value / micro_batches for value in statistics], replica, step)

        def update() -> tf.Tensor:
            self._update(replica, step, live, gradients, (rescale, norm), list(zip(changed, statistics)))
            self._update_tables(replica, step, rows, rescale, norm)
            return tf.constant(True)

        tf.cond(finite, update, lambda: tf.constant(False))
        scale, good = carry.loss_scale, carry.good_steps
        if self.machine.precision == "float16":
            # all replicas see the same sum, so they agree; an overflow of the scaled gradient halves the scale and the step is passed over.
            # The loss is not scaled: where it is not finite, no scale helps
            grown = good + 1 >= SCALE_PATIENCE
            scale = tf.where(finite, tf.where(grown, scale * 2.0, scale), scale * 0.5)
            good = tf.where(finite & ~grown, good + 1, 0)
            totals = tf.where(finite, totals, tf.zeros_like(totals))
            finite = finite | (tf.math.is_finite(loss) & (scale >= 1.0))
        return Carry(carry.totals + tf.cast(totals, tf.float64), loss, norm, scale, good, finite, carry.waited)

    def _gradients_of_micro_batch(self, weights: list, state: list, inputs: Any, targets: Any, mask: tf.Tensor, seed: tf.Tensor,
                                  loss_scale: tf.Tensor) -> tuple[list, list, tf.Tensor, list]:
        """The pure function: (gradients, changed statistics, totals [2 + scores], lookups of tables) of one micro-batch."""
        variables = self.model.non_trainable_variables
        seeded = [
            tf.cast(tf.random.experimental.stateless_fold_in(seed, number), value.dtype) if is_seed(variable) else value
            for number, (variable, value) in enumerate(zip(variables, state))
        ]
        with tf.GradientTape() as tape, recorded(tape) as lookups, of_this_batch_alone(self.norms):
            tape.watch(weights)
            outputs, after, penalties = self.model.stateless_call(weights, seeded, inputs, training=True, return_losses=True)
            losses = tf.cast(self.task.loss(outputs, targets, training=True), tf.float32) * mask
            weighted = self.task.example_weights(targets)
            total = tf.reduce_sum(losses if weighted is None else losses * weighted)
            # penalties on weights count once a step: each micro-batch brings its share, by examples
            penalty = tf.add_n([tf.cast(p, tf.float32) for p in penalties]) * tf.reduce_sum(mask) if penalties else 0.0
            objective = (total + penalty) * (loss_scale / self.plan.batch)
        found = tape.gradient(objective, [*weights, *(vectors for _, _, vectors in lookups.made)],
                              unconnected_gradients=tf.UnconnectedGradients.ZERO)
        found = [tf.convert_to_tensor(gradient) for gradient in found]
        gradients, of_rows = found[:len(weights)], found[len(weights):]
        self._changed = [
            i for i, (variable, old, new) in enumerate(zip(variables, seeded, after))
            if new is not old and is_statistic(variable)
        ]
        scores = self.task.scores(outputs, targets)
        self.score_names = list(scores)
        sums = [total + penalty, tf.reduce_sum(mask)] + [tf.reduce_sum(tf.cast(score, tf.float32) * mask) for score in scores.values()]
        statistics = [tf.convert_to_tensor(after[i]) for i in self._changed]
        return gradients, statistics, tf.stack(sums), lookups.gradients(self.tables.tables, of_rows)

    def _update(self, replica: int, step: tf.Tensor, live: list, gradients: list, scale: tuple[tf.Tensor, tf.Tensor],
                statistics: list) -> None:
        """Writes this replica's copy of weights, optimizer values, averages and moving statistics."""
        by_weight = {id(variable): gradient for variable, gradient in zip(live, gradients)}
        groups = (self.weights, list(self.optimizer.variables), self.averages)
        old = [self._values(variables, replica) for variables in groups]
        full = [by_weight.get(id(variable), tf.zeros_like(value)) for variable, value in zip(self.weights, old[0])]
        new = self._apply(full, *scale, step, *old)
        # frozen weights stand still, though the optimizer may decay them, and so do their averages
        frozen = [at for at, variable in enumerate(self.weights) if id(variable) not in by_weight]
        keep = {id(variables[at]) for variables in (self.weights, self.averages) if variables for at in frozen}
        keep.add(id(self.optimizer._learning_rate))
        pairs = [pair for variables, values in zip(groups, new) for pair in zip(variables, values) if id(pair[0]) not in keep]
        # the averaged weights are judged and saved with statistics of the same age
        followed = [(average, value) for variable, value in statistics if (average := self.average_of.get(id(variable))) is not None]
        if followed:
            variables, values = zip(*followed)
            pairs += zip(variables, self._nearer(self._values(list(variables), replica), values, step))
        for variable, value in pairs + statistics:
            self._copy(variable, replica).assign(tf.cast(value, variable.dtype))

    def _update_tables(self, replica: int, step: tf.Tensor, rows: list, rescale: tf.Tensor, norm: tf.Tensor) -> None:
        """Writes this replica's copy of the rows that were looked up."""
        if not rows:
            return
        rate = learning_rate(self.train.learning_rate, self.steps, step) * self._copy(self.optimizer._learning_rate, replica)
        if self.train.tables.learning_rate:
            rate *= self.train.tables.learning_rate / self.train.learning_rate.peak
        clipped = clip([gradient * rescale for _, gradient in rows], norm, self.train.clip)
        for number, ((ids, _), gradient) in enumerate(zip(rows, clipped)):
            self.tables.update(number, ids, gradient, rate, step, lambda variable: self._copy(variable, replica))

    def _apply_gradients(self, gradients: list, rescale: tf.Tensor, norm: tf.Tensor, step: tf.Tensor, weights: list, slots: list,
                         averages: list) -> tuple[list, list, list]:
        """Pure: (weights, optimizer values, averages) after one update."""
        rate = learning_rate(self.train.learning_rate, self.steps, step)
        # the optimizer's own rate is a factor on the schedule, 1.0 unless a callback changed it
        slots = [value * rate if variable is self.optimizer._learning_rate else value
                 for variable, value in zip(self.optimizer.variables, slots)]
        clipped = clip([gradient * rescale for gradient in gradients], norm, self.train.clip)
        weights, slots = self.optimizer.stateless_apply(slots, clipped, weights)
        return weights, slots, self._nearer(averages, weights, step) if averages else []

    def _moved(self, variables: list, values: list, replica: int, step: tf.Tensor) -> list:
        """Moving batch statistics after a step whose batch had `values`; other statistics are those values already."""
        return [
            value if (momentum := self.momentum.get(id(variable))) is None else old + (value - old) * (1.0 - rising(momentum, step))
            for variable, value, old in zip(variables, values, self._values(variables, replica))
        ]

    def _nearer(self, averages: Sequence, values: Sequence, step: tf.Tensor) -> list:
        """The averages after one more step that ended with `values`."""
        decay = rising(self.train.ema or 0.0, step)
        return [average + (tf.cast(value, tf.float32) - average) * (1.0 - decay) for average, value in zip(averages, values)]

    def _copy(self, variable: keras.Variable, replica: int) -> tf.Variable:
        return self.machine.strategy.experimental_local_results(variable.value)[replica]

    def _values(self, variables: list, replica: int) -> list:
        return [tf.convert_to_tensor(self._copy(variable, replica)) for variable in variables]


def find_scores(task: Task, model: keras.Model, spec: Mapping[str, tf.TensorSpec]) -> list[str]:
    """The names of the task's scores, from a trace on symbols (nothing is computed).

    Args:
        spec: name -> spec of one decoded example.
    """
    def scores(examples: Any) -> dict:
        inputs, targets = task.prepare(examples)
        return task.scores(model(inputs, training=False), targets)

    one = {key: tf.TensorSpec([1, *value.shape], value.dtype) for key, value in spec.items()}
    return list(tf.function(scores, autograph=False).get_concrete_function(one).structured_outputs)


def clip(gradients: list, norm: tf.Tensor, settings: Clip) -> list:
    """Clips the summed gradients as the settings say: by global norm (Pascanu et al. 2013), by each one's norm, or by value."""
    if settings.global_norm:
        factor = settings.global_norm / tf.maximum(norm, settings.global_norm)
        return [gradient * factor for gradient in gradients]
    if settings.norm:
        return [tf.clip_by_norm(gradient, settings.norm) for gradient in gradients]
    if settings.value:
        return [tf.clip_by_value(gradient, -settings.value, settings.value) for gradient in gradients]
    return gradients


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a Keras SeedGenerator, which the step sets itself."""
    return variable.name == "seed_generator_state"


def statistics_of(model: keras.Model) -> list[keras.Variable]:
    """What a model keeps beside its weights in floats, such as the moving mean and variance of batch normalisation."""
    own = {id(variable) for layer in model._flatten_layers() for variable in layer._non_trainable_variables}
    return [variable for variable in model.non_trainable_variables if id(variable) in own and is_statistic(variable)]


def is_statistic(variable: keras.Variable) -> bool:
    """Whether a variable that does not train is a float, and so may be averaged over replicas and steps."""
    return not is_seed(variable) and variable.dtype.startswith(("float", "bfloat"))
