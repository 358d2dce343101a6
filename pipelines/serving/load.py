"""A finished run as a task and a model, rebuilt from its settings and facts; only numbers are read from model.keras.

So no code of a run is executed: YAML is read safely, facts.json is JSON, and of model.keras only the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import keras

from pipelines.base.errors import ConfigError
from pipelines.base.inside import refuse_links
from pipelines.base.stored import read
from pipelines.config import extensions, guard
from pipelines.config.load import from_dict, load
from pipelines.config.messages import listed
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import to_answer
from pipelines.machine import devices
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.listing import require_model
from pipelines.task.contract import Task
from pipelines.training.weight_limits import filled

Precision = Literal["float32", "bfloat16", "float16"]
WRITTEN = ("columns", "delimiter", "encoding", "header", "file_pattern")  # settings of data that say how a table is written


@dataclass(frozen=True)
class LoadedRun:
    """A run with the weights that it was judged with.

    Attributes:
        experiment: as the run was trained.
        folder: where it lies, and what is made of it is written; a signed run was read from a copy.
        name: the experiment's, as the report has it.
        environment: as environment.json holds it.
        judged_precision: the compute precision of the report's metrics; `machine` has the one in use.
        form: of an export in another form, its name; `model` may be None.
    """

    task: Task
    model: keras.Model
    experiment: Experiment
    folder: RunFolder
    machine: devices.Machine
    judged_precision: str
    name: str
    environment: dict[str, Any] = field(default_factory=dict)
    form: str | None = None


@dataclass(frozen=True)
class Described:
    """What a run, or what was converted of one, says of its task: all but the weights.

    Attributes:
        environment: environment.json.
    """

    folder: RunFolder
    experiment: Experiment
    facts: dict[str, Any]
    environment: dict[str, Any]

    @property
    def precision(self) -> Precision | None:
        """That it was judged in."""
        precision: Precision | None = self.environment["precision"]
        return precision

    @classmethod
    def of(cls, folder: RunFolder) -> "Described":
        """Raises ConfigError as load_run."""
        refuse_links(folder.path)
        require_model(folder)
        environment = folder.read_environment()
        extensions.require(environment["extensions"], str(folder.path))
        experiment = load(folder.experiment, check_paths=False).experiment
        extensions.match(environment["extensions"], experiment, str(folder.path))
        facts = read(folder.facts, task_class(experiment.task).facts_schema).model_dump(exclude_unset=True, by_alias=True)
        return cls(folder, experiment, facts, environment)

    def task(self) -> Task:
        """Raises ConfigError where the facts are of another experiment."""
        task = task_class(self.experiment.task)(without_pretrained(self.experiment), self.facts)
        if (unfit := task.facts_error()) is not None:
            raise ConfigError(f"{self.folder.facts}: {unfit}; the file is damaged, or belongs to another experiment")
        return task

    def run(self) -> LoadedRun:
        """On the CPU, in float32, and still without a model."""
        machine = devices.prepare(to_answer(self.experiment.train, "cpu"), precision="float32")
        return LoadedRun(self.task(), None, self.experiment, self.folder, machine, "float32",  # type: ignore[arg-type]
                         self.experiment.task, self.environment)


def load_run(folder: RunFolder, *, where: Literal["auto", "cpu"] | int = "auto", precision: Precision | None = None) -> LoadedRun:
    """Loads a run, once the guards have looked at it.

    Args:
        folder: a run that has been trained to its end.
        where: devices, as in train.devices; the run's own need not exist here.
        precision: compute precision; None for the one that the run was judged in.

    Raises:
        Untrusted: a guard refuses it.
        ConfigError: not a run, not finished, damaged, of another version, with links that lead out of its folder, or trained with
            an extension that is not in use.
    """
    with guard.opened(folder.path) as path:
        return replace(_load(RunFolder(path), where, precision), folder=folder)


def _load(folder: RunFolder, where: Literal["auto", "cpu"] | int, precision: Precision | None) -> LoadedRun:
    described = Described.of(folder)
    if described.precision is None:
        raise ConfigError(f"{folder.environment}: says no precision that the run was judged in")
    machine = devices.prepare(to_answer(described.experiment.train, where), precision=precision or described.precision)
    task = described.task()

    def build() -> keras.Model:
        with machine.strategy.scope():
            return task.model()

    model = filled(build, folder.model / "model.keras", str(folder.path))
    with machine.strategy.scope():
        task.freeze(model)
    report = folder.read_report() if folder.finished else {}
    return LoadedRun(task, model, described.experiment, folder, machine, described.precision,
                     report.get("experiment") or described.experiment.task, described.environment)


def reading_as(run: LoadedRun, overrides: Sequence[str]) -> LoadedRun:
    """The run, with new inputs read as `overrides` say, `data.text_key=body`, and answered as they say, `writing.beam=1`.

    Raises:
        ConfigError: another setting than of columns' names, of how a table is written, and of `Experiment.answering`.
    """
    answering = run.task.experiment.answering
    for text in overrides:
        section, _, name = text.partition("=")[0].partition(".")
        if section not in answering and (section != "data" or not (name.endswith("_key") or name in WRITTEN)):
            others = f"; answers by {listed((f'{one}...' for one in answering), 'and')}" if answering else ""
            raise ConfigError(f"--set: {text}: new inputs are read as those of the training, but for the names of columns "
                              f"(data.text_key=COLUMN and the like) and {listed((f'data.{one}' for one in WRITTEN), 'and')}{others}")
    return answering_as(run, from_dict(run.task.experiment.model_dump(mode="python"), list(overrides), check_paths=False))


def answering_as(run: LoadedRun, experiment: Experiment) -> LoadedRun:
    """The run with an experiment that differs in how inputs are read, answered and judged alone."""
    task = type(run.task)(experiment, run.task.facts)
    if any(getattr(experiment, name) != getattr(run.task.experiment, name) for name in experiment.answering):
        with run.machine.strategy.scope():
            task.freeze(run.model)
    return replace(run, task=task)


def without_pretrained(experiment: Experiment) -> Experiment:
    """The experiment without pretrained weights to begin from: they are not needed again, and their file may be missing."""
    model: Any = getattr(experiment, "model", None)
    if getattr(model, "weights", None) is None:
        return experiment
    return experiment.model_copy(update={"model": model.model_copy(update={"weights": None})})

