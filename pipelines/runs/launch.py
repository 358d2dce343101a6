"""From a checked experiment to its report: the one way in for the command line, with one seed or several."""

from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.config.registry import part
from pipelines.config.schema import Experiment
from pipelines.machine import environment
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.runs.seeds import train_seeds
from pipelines.task.contract import Task


def launch(experiment: Experiment, folder: RunFolder, name: str, *, fresh: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Trains or resumes a run or the runs of several seeds. Returns the report.

    Args:
        name: the experiment's, such as vision/cifar10_cnn.

    Raises:
        QuartetError: as `train` does.
    """
    call = Call(name=name, task_class=task_class(experiment.task), fresh=fresh, quiet=quiet, environment=environment.facts())
    return train_seeds(experiment, folder, call) if experiment.seeds > 1 else train(experiment, folder, call)


def task_class(task: str) -> type[Task]:
    """The class of a task such as vision.classification; imports its domain, and so TensorFlow.

    Raises:
        ConfigError: the domain has no such task.
    """
    tasks = part(task.partition(".")[0], "tasks")
    found = getattr(tasks, "TASKS", {}).get(task)
    if found is None:
        raise ConfigError(f"{task!r} is no task of this installation")
    return found
