"""A finished run as a task and a model, rebuilt from its settings and facts; only numbers are read from model.keras.

So no code that a run brings is executed: YAML is read safely, facts.json is JSON, and of model.keras only the weights.
"""

import json
import warnings
import zipfile
from dataclasses import dataclass
from typing import Any, Literal

import keras

from pipelines.config.load import load
from pipelines.config.schema import Experiment
from pipelines.errors import ConfigError
from pipelines.inside import refuse_links
from pipelines.listing import require_model
from pipelines.runs import RunFolder
from pipelines.task import Task
from pipelines.training import devices
from pipelines.training.launch import task_class

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class LoadedRun:
    """A run with the weights that it was judged with.

    Attributes:
        experiment: as the run was trained.
        judged_precision: the compute precision in which the report's metrics were made; `machine` has the one in use.
    """

    task: Task
    model: keras.Model
    experiment: Experiment
    folder: RunFolder
    machine: devices.Machine
    judged_precision: str

    @property
    def name(self) -> str:
        """The experiment's, as the report has it."""
        report = json.loads((self.folder.report / "report.json").read_text(encoding="utf-8")) if self.folder.finished else {}
        return str(report.get("experiment", self.experiment.task))


def load_run(folder: RunFolder, *, where: Literal["auto", "cpu"] | int = "auto", precision: Precision | None = None,
             ) -> LoadedRun:
    """Loads a run.

    Args:
        folder: a run that has been trained to its end.
        where: devices as train.devices says them; the run's own need not be here.
        precision: compute precision; None for the one that the run was judged in.

    Raises:
        ConfigError: not a run, not finished, damaged, made by another version, or with links that lead out of its folder.
    """
    refuse_links(folder.path)
    require_model(folder)
    experiment = load(folder.experiment, check_paths=False).experiment
    facts, environment = _json(folder, "model/facts.json"), _json(folder, "environment.json")
    judged = environment.get("precision")
    if judged not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"{folder.environment}: says no precision that the run was judged in")
    machine = devices.prepare(experiment.train.model_copy(update={"devices": where}), precision=precision or judged)
    task = task_class(experiment.task)(without_pretrained(experiment), facts)
    with machine.strategy.scope():
        model = task.model()
    weights = folder.model / "model.keras"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*freshly-initialized weights")  # Keras would go on with layers it found nothing for
            model.load_weights(weights)
    except (ValueError, OSError, KeyError, EOFError, UserWarning, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{weights}: does not hold the weights of this experiment's model ({reason}); "
                          "the file is damaged, or was made by another version") from error
    with machine.strategy.scope():
        task.freeze(model)
    return LoadedRun(task, model, experiment, folder, machine, judged)


def without_pretrained(experiment: Experiment) -> Experiment:
    """The experiment without pretrained weights to begin from: they are not wanted again, and their file may be gone."""
    model: Any = getattr(experiment, "model", None)
    if getattr(model, "weights", None) is None:
        return experiment
    return experiment.model_copy(update={"model": model.model_copy(update={"weights": None})})


def _json(folder: RunFolder, name: str) -> dict[str, Any]:
    path = folder.path / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: is not what a run writes there")
    return found
