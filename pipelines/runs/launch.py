"""From a checked experiment to its report: the one way in for the command line and for Python, with one seed or several."""

import contextlib
import gc
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from pipelines.base import storage
from pipelines.base.files import write_json
from pipelines.config import extensions, registry
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.machine import environment, group
from pipelines.reports.report import Reported, write_report
from pipelines.runs import launcher
from pipelines.runs.folder import RunFolder, seed_name
from pipelines.runs.run import Call, train
from pipelines.task.contract import Task
from pipelines.task.results import Judgement, Metric

if TYPE_CHECKING:
    import keras


def launch(experiment: Experiment, folder: RunFolder, name: str, *, fresh: bool = False, quiet: bool = False,
           callbacks: Sequence["keras.callbacks.Callback"] = ()) -> dict[str, Any]:
    """Trains or resumes a run or the runs of several seeds, with the hosts that the launcher brings together. Returns the report; empty
    where this host is not their chief.

    Args:
        name: the experiment's, such as vision/cifar10_cnn.
        callbacks: of Keras; those of several seeds are called for one after the other.

    Raises:
        QuartetError: as `train` does; HostLost where other hosts train too, and one did not come.
    """
    packages = (environment.DISTRIBUTION, "tensorflow", "keras")
    facts = {"its versions": "\n".join(f"{package} {environment.version(package)}" for package in packages),
             "the experiment": resolved_yaml(experiment), "its extensions": json.dumps(extensions.used_by(experiment), indent=1)}
    with launcher.chosen("train").group(facts):
        call = Call(name=name, task_class=task_class(experiment.task), fresh=fresh, quiet=quiet, callbacks=tuple(callbacks),
                    environment=environment.facts())
        return train_seeds(experiment, folder, call) if experiment.seeds > 1 else train(experiment, folder, call)


def task_class(task: str) -> type[Task]:
    """The class of a task such as vision.classification; imports its module, and so TensorFlow. Raises ConfigError for no such task."""
    registered: type[Task] = registry.task_class(task)
    return registered


def train_seeds(experiment: Experiment, folder: RunFolder, call: Call) -> dict[str, Any]:
    """Trains `<name>-seed<k>` with train.seed = k for each seed and writes the joint report into `<name>`. Returns that report.

    Raises:
        QuartetError: as `train` does.
    """
    hosts = group.current()
    with folder.claimed(resolved_yaml(experiment), fresh=call.fresh) if hosts.chief else contextlib.nullcontext():
        if hosts.chief:
            storage.begin(folder.path, begun=folder.trained)
        if hosts.of_chief(folder.finished):
            return folder.read_report() if hosts.chief else {}
        reports = {}
        for number in range(experiment.seeds):
            one = one_seed(experiment, number)
            reports[one.train.seed] = train(one, seed_folder(folder, one.train.seed), call)
            keras.backend.clear_session()  # the next seed begins with the memory and the layer names that this one began with
            gc.collect()
        return joint_report(experiment, folder, call, reports) if hosts.chief else {}


def one_seed(experiment: Experiment, number: int) -> Experiment:
    """The experiment of the seed `number` (from 0) alone."""
    seed = experiment.train.seed + number
    return experiment.model_copy(update={"seeds": 1, "train": experiment.train.model_copy(update={"seed": seed})})


def seed_folder(folder: RunFolder, seed: int) -> RunFolder:
    return RunFolder(folder.path.with_name(seed_name(folder.path.name, seed)))


def joint_report(experiment: Experiment, folder: RunFolder, call: Call, reports: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Writes the report over seed -> report; its metrics are means over the seeds."""
    names = {seed: seed_folder(folder, seed).path.name for seed in reports}
    seeds = [{"seed": seed, "run": names[seed], "metrics": {name: metric["value"] for name, metric in report["metrics"].items()}}
             for seed, report in reports.items()]
    timing: dict[str, Any] = {}
    for name in next(iter(reports.values()))["timing"]:
        values = [report["timing"].get(name) for report in reports.values()]
        if all(isinstance(value, (int, float)) for value in values):
            timing[name] = sum(values) if name.endswith("_seconds") else sum(values) / len(values)
    first = seed_folder(folder, experiment.train.seed)
    environment = first.read_environment()
    write_json(folder.environment, environment)
    note = (f"Metrics are means over {len(seeds)} seeds, each trained anew on the same splits; in brackets the mean of their intervals, "
            "which tell of the number of examples, not of the seeds. Seconds are those of all seeds together. "
            f"Curves, figures and the models are with the seeds: {', '.join(names.values())}.")
    return write_report(folder.report, Reported(
        task=experiment.task, experiment=call.name, run=folder.path.name, judgements=mean_judgements(list(reports.values())),
        timing=timing, settings=experiment, environment=environment, notes=[note], seeds=seeds,
        fingerprints={name: judged["fingerprint"] for name, judged in (next(iter(reports.values())).get("judged") or {}).items()}))


def mean_judgements(reports: Sequence[Mapping[str, Any]]) -> dict[str, Judgement]:
    """Split -> mean of each metric and of its bounds over the reports that have it."""
    means: dict[str, Judgement] = {}
    for name in dict.fromkeys(name for report in reports for name in report["metrics"]):
        split, _, base = name.partition("/")
        values = [report["metrics"][name] for report in reports if name in report["metrics"]]
        value, low, high = (_mean([metric[key] for metric in values]) for key in ("value", "low", "high"))
        means.setdefault(split, Judgement()).metrics[base] = Metric(
            float("nan") if value is None else value, low, high, values[0]["n"], values[0].get("unit", "example"), values[0].get("units"))
    return means


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
