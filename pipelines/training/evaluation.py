"""Judging: every example answered exactly once, whatever the batch and the number of replicas.

Results come to the host batch by batch, so that the device holds those of two batches at most.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.progress import Say, Work, silent
from pipelines.data import order
from pipelines.data.input import Decoder, Feed, make_feed
from pipelines.data.lengths import joined
from pipelines.data.source import Source
from pipelines.machine import compiling
from pipelines.machine.compiling import constant
from pipelines.machine.devices import Machine
from pipelines.task.contract import Condensed, Task
from pipelines.task.own_metrics import own_scores, own_statistics
from pipelines.training.totals import losses, metric_of

Arrays = dict[str, np.ndarray]
COUNT = "loss/count"  # what the loss of each example counts, where it is no mean over examples


def watched(task: Task) -> str:
    """The name of the validation metric that the best weights follow."""
    name: str = task.experiment.train.watch or task.output.watch[0]
    return name.removeprefix("validation/")


class Evaluator:
    """Answers all examples of one source with a model's current weights, or their moving averages.

    Args:
        task: prepares batches, answers and scores them.
        model: built under `machine.strategy.scope()`.
        source: what is judged.
        batch: examples a step over all devices, rounded up to a multiple of them; None: as the experiment says.
        averages: (variable of the model, its replacement in `scores`), such as weights and statistics with their moving averages.
        trained: the weights stay as they are now, which makes the answers of a pretrained encoder faster.
        answer: what answers in the place of the model, as `Baseline.answer` does.
        say: is told how far judging is, where that takes long.
    """

    def __init__(self, task: Task, model: keras.Model, source: Source, *, machine: Machine, batch: int | None = None,
                 averages: Iterable[tuple[keras.Variable, keras.Variable]] = (), trained: bool = False, say: Say = silent,
                 answer: Callable[[Any], Any] | None = None):
        self.say, self.answer = say, answer
        self.averages = {id(variable): average for variable, average in averages}
        self.task, self.model, self.source, self.machine = task, model, source, machine
        experiment = task.experiment
        self.sets = watched(task) in task.output.set_scores.better  # then `scores` keeps all answers
        batch = min(batch or experiment.evaluate.batch_size or max(256, experiment.train.batch_size), len(source))
        batch += -batch % machine.replicas
        self.plan = order.Plan(len(source), batch, machine.replicas)
        self.feed: Feed = make_feed(source, Decoder.of(task), plan=self.plan, seed=0, shuffle=False, data=experiment.data, machine=machine)
        self.own: Arrays = {}  # name -> [examples], of the metrics in evaluate.metrics
        # traced once for scores, answers and features; of the examples alone, since a concrete function wants its defaults, too
        self._prepare = compiling.Once(tf.function(lambda examples: task.prepare(examples), autograph=False))
        self._scores = tf.function(self._score_step, autograph=False)
        self._answers = tf.function(self._answer_step, autograph=False)
        fixed = trained and model is not None and {"features", "head"} <= {layer.name for layer in model.layers}  # None: a converted run
        self._outputs = constant(model, machine.devices) if fixed else lambda inputs: model(inputs, training=False)

    def scores(self, stop: Callable[[], bool] = lambda: False) -> dict[str, float] | None:
        """The loss and the metric of each score over all examples; quick, for the end of an epoch. With the averages, if any.

        Args:
            stop: asked before each batch; once it says yes, nothing is returned.
        """
        parts = self._collect(self._scores, stop, keep=self._scored_and_condensed)
        if parts is None:
            return None
        output, own = self.task.output, {one.name for one in self.task.experiment.evaluate.metrics}
        statistics, metrics = {**output.statistics, **own_statistics(self.task)}, dict[str, float]()
        for name in (name for name in parts if "/" not in name):
            if name == "loss" and COUNT in parts:
                metrics[name] = float(parts[name].sum(dtype=np.float64) / max(parts[COUNT].sum(dtype=np.float64), 1.0))
            elif name in statistics:
                sums = np.asarray(np.nansum(parts[name], 0, dtype=np.float64))  # NaN: an example that does not count
                metrics[name] = metric_of(sums, len(parts[name]), statistics[name])
            else:
                metrics[name] = float((np.nanmean if name in own else np.mean)(parts[name], dtype=np.float64))
        if self.sets and self.machine.group.chief:
            metrics |= output.set_scores.compute(*_sides(parts))
        agreed: dict[str, float] = self.machine.group.of_chief(metrics)
        return agreed

    def each(self) -> Arrays:
        """The loss and the scores of each example, name -> [examples], in the order of the source."""
        parts = self._collect(self._scores) or {}
        if COUNT in parts:
            parts["loss"] = parts["loss"] / np.maximum(parts[COUNT], 1.0)
        return {name: values for name, values in parts.items() if "/" not in name}

    def answers(self) -> Condensed:
        """(answers, targets), each name -> array [examples, ...] in the order of the source, as served and whole: for few classes."""
        return _sides(self._collect(self._answers) or {})

    def judged(self) -> Condensed:
        """(answers, targets) as `Task.condense` leaves them of each batch: what `Task.judge` takes. `own` then holds evaluate.metrics."""
        arrays = self._collect(self._answers, keep=self._condensed) or {}
        self.own = {name.partition("/")[2]: values for name, values in arrays.items() if name.startswith("own/")}
        return _sides(arrays)

    def features(self, function: Callable[[Any], tf.Tensor]) -> tuple[np.ndarray, Arrays]:
        """(what `function` makes of the model's inputs, in graph, [examples, ...]; the targets, and what stands beside answers), in the
        order of the source."""
        def replica_step(step: tf.Tensor, examples: Any) -> dict:
            examples = self._examples(step, examples)
            inputs, _ = self._prepare(examples)
            return _named({"features": function(inputs)}, self.task.output.targets(examples) | self.task.passed_by(examples))

        def run(step: tf.Tensor, iterator: Any) -> Any:
            return self.machine.strategy.run(replica_step, args=(step, self._next(iterator)))

        answers, targets = _sides(self._collect(tf.function(run, autograph=False)) or {})
        return answers["features"], targets

    def _scored_and_condensed(self, arrays: Arrays) -> Arrays:
        scored = {name: value for name, value in arrays.items() if "/" not in name or name == COUNT}
        return scored | self._condensed(arrays) if self.sets else scored

    def _condensed(self, arrays: Arrays) -> Arrays:
        answers, targets = self.task.output.condense(*_sides(arrays))
        own = {name: value for name, value in arrays.items() if name.startswith("own/")}
        return _named(answers, targets) | own

    def _collect(self, step_function: Any, stop: Callable[[], bool] = lambda: False,
                 keep: Callable[[Arrays], Arrays] = dict) -> Arrays | None:
        """Results of all steps, one after another; `keep` makes of one replica's batch what is kept of it. None once `stop` says yes.

        Of several hosts, the chief has all results; the others have their own.
        """
        steps = self.plan.steps_per_epoch
        iterator = self.feed.iterator(0, steps)
        parts: list[Arrays] = []
        before = None
        try:
            with Work(self.say, f"answering {len(self.source):,} examples", steps) as work:
                for step in range(steps):  # a step is begun before the results of the one before it are fetched
                    if stop():
                        return None
                    result = step_function(tf.constant(step, tf.int64), iterator)
                    parts += self._fetched(before, keep)
                    before = result
                    work.at(step)
                parts += self._fetched(before, keep)
        except tf.errors.OpError as error:
            raise self.feed.blame(error, 0, steps) or error from error
        results = {name: joined([part[name] for part in parts]) for name in parts[0]}
        if self.machine.group.size > 1:
            every = self.machine.group.to_chief(results)
            if not every:
                return results
            results = {name: _interleaved([one[name] for one in every], steps) for name in results}
        results = {name: values[:len(self.source)] for name, values in results.items()}  # the rest fills up the last batch
        if self.feed.lengths is not None:
            place = np.argsort(self.feed.lengths.longest_first)
            results = {name: values[place] for name, values in results.items()}
        return results

    def _fetched(self, result: Any, keep: Callable[[Arrays], Arrays]) -> list[Arrays]:
        """What is kept of a step's result, a part for each replica here."""
        if result is None:
            return []
        local = {name: self.machine.strategy.experimental_local_results(value) for name, value in result.items()}
        count = len(next(iter(local.values())))
        return [keep({name: pieces[replica].numpy() for name, pieces in local.items()}) for replica in range(count)]

    def _score_step(self, step: tf.Tensor, iterator: Any) -> Any:
        def replica_step(examples: Any) -> dict:
            examples, output = self._examples(step, examples), self.task.output
            inputs, targets = self._prepare(examples)
            outputs = self._averaged(inputs)
            each, counts = losses(output, outputs, targets, training=False)
            scores = {"loss": each, **({} if counts is None else {COUNT: counts}), **output.scores(outputs, targets),
                      **own_scores(self.task, outputs, targets)}
            if not self.sets:
                return scores
            answers = output.answer(lambda x: outputs if x is inputs else self._averaged(x), inputs) | self.task.passed_by(examples)
            return scores | _named(answers, output.targets(examples))

        return self.machine.strategy.run(replica_step, args=(self._next(iterator),))

    def _answer_step(self, step: tf.Tensor, iterator: Any) -> Any:
        def replica_step(examples: Any) -> dict:
            examples = self._examples(step, examples)
            inputs, learned = self._prepare(examples)
            outputs: list[Any] = []  # of each call of the model: the first sees the inputs as they are, others test-time views

            def model(x: Any) -> Any:
                outputs.append(self._outputs(x))
                return outputs[-1]

            targets = self.task.output.targets(examples)
            if self.answer is not None:
                given = self.answer(inputs)
                return _named((given if isinstance(given, dict) else {"answer": given}) | self.task.passed_by(examples), targets)
            answers = self.task.output.answer(model, inputs) | self.task.passed_by(examples)
            own = own_scores(self.task, outputs[0], learned) if self.task.experiment.evaluate.metrics else {}
            return _named(answers, targets) | {f"own/{k}": v for k, v in own.items()}

        return self.machine.strategy.run(replica_step, args=(self._next(iterator),))

    def _next(self, iterator: Any) -> Any:
        return None if self.feed.on_device else next(iterator)

    def _examples(self, step: tf.Tensor, examples: Any) -> Any:
        replica = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
        return self.feed.batch(step, replica, examples)[2]

    def _averaged(self, inputs: Any) -> Any:
        """The model's outputs, with the averages in the place of what they are averages of."""
        if not self.averages:
            return self.model(inputs, training=False)
        trainable = [self.averages.get(id(variable), variable).value for variable in self.model.trainable_variables]
        state = [self.averages.get(id(variable), variable).value for variable in self.model.non_trainable_variables]
        return self.model.stateless_call(trainable, state, inputs, training=False)[0]


def _interleaved(parts: list[np.ndarray], steps: int) -> np.ndarray:
    """Results of each host, [steps x own, ...], as one array in the order of steps, and of hosts within a step."""
    every = joined(parts)
    by_host = every.reshape(len(parts), steps, len(every) // (len(parts) * steps), *every.shape[1:])
    return by_host.swapaxes(0, 1).reshape(every.shape)


def _named(answers: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any]:
    """Both in one, under `answer/` and `target/`."""
    return {**{f"answer/{name}": value for name, value in answers.items()}, **{f"target/{name}": value for name, value in targets.items()}}


def _sides(arrays: Arrays) -> Condensed:
    """(answers, targets) of the entries under `answer/` and `target/`."""
    answers, targets = ({name.partition("/")[2]: value for name, value in arrays.items() if name.startswith(side)}
                        for side in ("answer/", "target/"))
    return answers, targets
