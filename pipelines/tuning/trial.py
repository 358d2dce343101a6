"""One process of a search: a survey before the first trial, a trial, or the best setting over several seeds.

What came of it is a JSON file, written whole as the last thing; where that file is missing, the process was killed.
"""

import contextlib
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.base import formatting, storage, stored
from pipelines.base.errors import ConfigError, Interrupted, QuartetError
from pipelines.base.files import write_json
from pipelines.base.stored import Record
from pipelines.config.load import apply, from_text
from pipelines.config.schema import Cost, Experiment
from pipelines.machine import environment
from pipelines.monitoring.arithmetic import forward_operations
from pipelines.monitoring.metrics_log import read_rows
from pipelines.runs.folder import Locked, RunFolder
from pipelines.runs.launch import launch, task_class
from pipelines.runs.listing import metric_of
from pipelines.runs.run import Call, train
from pipelines.runs.work import Policy
from pipelines.training.embedding_tables import all_variables
from pipelines.training.loop import Hook, Loop
from pipelines.tuning.analysis import UNITS
from pipelines.tuning.search_folder import NO_VALIDATION

if TYPE_CHECKING:
    import keras


SURVEYED = 2000  # examples of validation that the survey judges
LOCKED_SECONDS = 1.0  # between looks at a folder in which another process trains
MEDIAN_OF = 3  # trials that must be there before one is compared with them


def main(arguments: Sequence[str]) -> int:
    """`FILE`: does what the order in that file says, and writes the result beside it. Returns the exit status."""
    file = Path(arguments[0])
    order = json.loads(file.read_text(encoding="utf-8"))
    for name in ("experiment", "folder"):  # paths are from the order's folder: another machine may call it otherwise
        order[name] = os.path.normpath(file.parent / order[name]) if name in order else None
    order["peers"] = [os.path.normpath(file.parent / peer) for peer in order.get("peers", ())]
    work = {"survey": survey, "trial": trial, "train": repeat}[order["kind"]]
    try:
        result = {"status": "completed", **work(order)}
    except Interrupted as error:
        print(error)
        return error.exit_status
    except QuartetError as error:
        print(error)
        result = {"status": "failed", "reason": str(error), "exit_status": error.exit_status,
                  **({"too_costly": True} if isinstance(error, TooCostly) else {})}
    except MemoryError:
        traceback.print_exc()
        result = {"status": "failed", "reason": "out of memory; a smaller model or batch, or fewer --workers"}
    except Exception as error:
        traceback.print_exc()
        result = {"status": "failed", "reason": f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0][:300]}"}
    finally:
        storage.leave()
    write_json(result_file(file), result)
    return 0


def result_file(order: Path) -> Path:
    return order.with_name(order.name.replace("order", "result"))


def survey(order: Mapping[str, Any]) -> dict[str, Any]:
    """What must be known before the first trial: which metrics there are, and the precision that all trials compute in.

    Judges the untrained model on some of validation. Nothing is written besides the result.
    """
    from pipelines.training.evaluation import Evaluator
    from pipelines.training.session import assemble

    experiment = _experiment(order)
    session = assemble(experiment, task_class(experiment.task))
    validation = session.splits.validation
    if validation is None:
        raise ConfigError(NO_VALIDATION)
    numbers = np.unique(np.linspace(0, len(validation) - 1, min(len(validation), SURVEYED)).astype(np.int64))
    source = validation if len(numbers) == len(validation) else validation.subset(numbers)
    one = Evaluator(session.task, session.model, source, machine=session.machine)
    own = [one.name for one in experiment.evaluate.metrics]
    streamed = list(dict.fromkeys(["loss", *session.step.scores.names, *own, session.watch[0]]))
    judged: list[str] | None
    try:
        answers, targets = one.judged()
        judged = list(session.task.output.judge(answers, targets, one.source).metrics)
    except Exception:
        traceback.print_exc()
        judged = None  # a judgement may need more than this; then the first trial shows what there is
    return {"streamed": streamed, "judged": judged, "watch": list(session.watch), "own": list(session.task.output.watch),
            "precision": session.machine.precision, "replicas": session.machine.replicas, "steps_per_epoch": session.plan.steps_per_epoch,
            "fingerprint": {"train": session.splits.train.fingerprint(), "validation": validation.fingerprint()}}


def trial(order: Mapping[str, Any]) -> dict[str, Any]:
    """Trains the experiment with one setting and judges it on validation."""
    began = time.perf_counter()
    base = _experiment(order)
    experiment = apply(base, order["values"])
    experiment = experiment.model_copy(update={"seeds": 1})
    further: tuple[Hook, ...] = ()
    folder = RunFolder(Path(order["folder"]))
    costs = folder.path / "cost.json"
    if order["peers"]:
        further = (MedianRule(order["objective"], order["direction"], [Path(peer) / "metrics.jsonl" for peer in order["peers"]]),)
    if base.tune is not None and base.tune.cost is not None:
        further += (CostOfModel(base.tune.cost, costs),)
    precision = order["precision"] if experiment.train.precision == "auto" else None  # a trial's own may be what is searched
    policy = trial_policy(order["values"], order["title"], precision=precision, epochs=order["epochs"], hooks=further)
    call = Call(name=order["name"], task_class=task_class(experiment.task), quiet=True, environment=environment.facts(), policy=policy)
    report = train_when_free(experiment, folder, call)
    key = f"validation/{order['objective']}"
    metrics = {**logged(folder, report["timing"]["best_epoch"], key), **report["metrics"]}
    metric = metrics.get(key)
    if metric is None:
        there = ", ".join(name.partition("/")[2] for name in metrics if name.startswith("validation/"))
        raise ConfigError(f"tune.objective: {order['objective']!r} is no metric of this task (there are: {there})")
    value = metric_of(metric).value
    if not np.isfinite(value):
        raise QuartetError(f"validation/{order['objective']} is not a finite number")
    stopped = next((note for note in report.get("notes", ()) if note.startswith("Training ended after")), None)
    if folder.finished:  # it will not continue
        with contextlib.suppress(OSError):
            for file in folder.checkpoints.glob("*.npz"):
                file.unlink()
    return {"value": value, **read_costs(costs), "low": metric.get("low"), "high": metric.get("high"), "metrics": metrics,
            "stopped": stopped, "epochs": report["timing"]["epochs"], "train_seconds": report["timing"]["train_seconds"],
            "parts": report["time"]["seconds"], "seconds": time.perf_counter() - began}


def trial_policy(values: dict[str, Any], title: str, *, precision: str | None = None, epochs: int | None = None,
                 hooks: tuple[Hook, ...] = ()) -> Policy:
    """How a trial is trained: as any run, but judged on validation alone, and reported in short.

    Args:
        values: the settings that the search chose, for TensorBoard's table.
        title: the row's name there.
        precision: that of the whole search, so that trials are compared in one.
        epochs: after which the trial pauses with its state saved, to be resumed later; None: it trains to its end.
        hooks: besides the usual ones.
    """
    return Policy(test=False, baseline=False, model=False, guidance=False, details=False, title=title, settings=values,
                  precision=precision, epochs=epochs, hooks=hooks)


def logged(folder: RunFolder, epoch: int | None, key: str) -> dict[str, dict[str, Any]]:
    """What the log of the epochs has of a metric that the report may lack, such as validation/loss; empty where it has none.

    Args:
        epoch: whose weights are judged; None for the last.
    """
    values = {row["epoch"]: row[key] for row in read_rows(folder.metrics) if key in row and "epoch" in row}
    chosen = max(values, default=None) if epoch is None else epoch
    return {key: {"value": values[chosen]}} if chosen in values else {}


def train_when_free(experiment: Experiment, folder: RunFolder, call: Call) -> dict[str, Any]:
    """Trains as `train` does. Where a process of a search that was killed still trains in the folder, on another machine, it is waited
    for, and its training is resumed."""
    announced = False
    while True:
        try:
            return train(experiment, folder, call)
        except Locked as error:
            if not announced:
                print(f"{error}\nwaiting for it", flush=True)
                announced = True
            time.sleep(LOCKED_SECONDS)


def repeat(order: Mapping[str, Any]) -> dict[str, Any]:
    """Trains an experiment over several seeds, as `train` does, test split and all."""
    experiment = _experiment(order)
    report = launch(experiment, RunFolder(Path(order["folder"])), order["name"], quiet=True)
    return {"metrics": report["metrics"], "spread": report.get("spread") or {}}


def _experiment(order: Mapping[str, Any]) -> Experiment:
    file = Path(order["experiment"])
    return from_text(file.read_text(encoding="utf-8"), file=str(file)).experiment


class MedianRule(Hook):
    """Ends a trial whose best so far is worse than the median of what the others had on average by the same epoch.

    After Golovin et al. 2017 ("Google Vizier", section 3.2). The others are fixed when the trial begins, so that it ends at the
    same epoch however often it was interrupted.
    """

    name = "median"

    class Kept(Record):
        best: float | None

    def __init__(self, objective: str, direction: str, peers: Sequence[Path]):
        self.key, self.sign = f"validation/{objective}", 1.0 if direction == "max" else -1.0
        self.curves = [curve for curve in (self._curve(path) for path in peers) if curve]
        self.best: float | None = None

    def state(self) -> dict[str, Any]:
        return {"best": self.best}

    def restore(self, state: dict[str, Any]) -> None:
        self.best = state["best"]

    def on_epoch(self, loop: Loop) -> None:
        value = loop.epoch_metrics.get(self.key)
        if value is None or not np.isfinite(value) or loop.stopping:
            return
        self.best = value * self.sign if self.best is None else max(self.best, value * self.sign)
        others = [statistics.fmean(seen) for curve in self.curves if (seen := [curve[epoch] for epoch in curve if epoch <= loop.epoch])]
        if len(others) < MEDIAN_OF or loop.step >= loop.steps:
            return
        middle = statistics.median(others)
        if self.best < middle:
            loop.stopping = (f"{self.key} {self.best * self.sign:.4g} is worse than {middle * self.sign:.4g}, "
                             f"the median of {len(others)} trials before it")

    def _curve(self, path: Path) -> dict[float, float]:
        return {row["epoch"]: row[self.key] * self.sign for row in read_rows(path) if row.get(self.key) is not None and "epoch" in row}


if __name__ == "__main__":
    from pipelines.config.extensions import use_environment
    from pipelines.machine.startup import current_folder_last, start_tensorflow

    current_folder_last()
    start_tensorflow()
    use_environment()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os._exit(main(sys.argv[1:]))


EXAMPLES = 16  # training examples that operations are counted of, padded together
CALLS, SECONDS = 200, 1.0  # of timing, at most


class Kept(stored.Record):
    """The file of a trial's cost."""

    cost: float


class TooCostly(QuartetError):
    """A setting whose model costs more than the search allows."""


class CostOfModel(Hook):
    """Measures the model before it trains, once: a trial that is resumed keeps its figure.

    Args:
        file: where that is kept.

    Raises:
        TooCostly: it is over the limit; nothing is trained.
    """

    def __init__(self, cost: Cost, file: Path):
        self.cost, self.file = cost, file

    def on_start(self, loop: Loop) -> None:
        step = loop.run_steps
        if not self.file.exists():
            _, examples = step.feed.sample(0, min(EXAMPLES, step.plan.micro))
            inputs, _ = step.task.prepare(examples)
            write_json(self.file, {"cost": measured(self.cost.measure, step.model, inputs)})
        value, limit = read_costs(self.file)["cost"], self.cost.limit
        if limit is not None and value > limit:
            raise TooCostly(f"{formatting.number(value)} {UNITS[self.cost.measure]}, and tune.cost.limit is {formatting.number(limit)}")


def measured(measure: str, model: "keras.Model", inputs: Any) -> float:
    """A model's cost.

    Args:
        measure: operations (multiplications and additions of an example), parameters, size (bytes of the weights) or latency (ms of one
            example, the median).
        inputs: examples as the model takes them.

    Raises:
        QuartetError: its operations cannot be counted.
    """
    if measure == "operations":
        whole = forward_operations(model, inputs)
        if whole is None:
            raise QuartetError("tune.cost.measure: operations cannot be counted of a model with loops (recurrent layers); take parameters "
                               "or latency")
        return whole / int(tf.nest.flatten(inputs)[0].shape[0])
    if measure == "latency":
        return _latency(model, tf.nest.map_structure(lambda each: each[:1], inputs))
    variables = [one for one in all_variables(model) if "seed_generator" not in one.path]
    counts = [int(np.prod(one.shape)) for one in variables]
    if measure == "parameters":
        return float(sum(counts))
    return float(sum(count * tf.as_dtype(one.dtype).size for count, one in zip(counts, variables)))


def _latency(model: "keras.Model", one: Any) -> float:
    call = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    tf.nest.map_structure(lambda each: each.numpy(), call(one))
    times: list[float] = []
    while len(times) < CALLS and sum(times) < SECONDS:
        began = time.perf_counter()
        tf.nest.map_structure(lambda each: each.numpy(), call(one))
        times.append(time.perf_counter() - began)
    return 1000.0 * float(np.median(times))


def read_costs(file: Path) -> dict[str, float]:
    """{"cost": ...} of a trial that measured its model; else empty."""
    return stored.read(file, Kept).model_dump() if file.exists() else {}
