"""From a checked experiment to its report: the one way in for the command line and for Python, with one seed or several."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.config import extensions, registry
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.machine import environment
from pipelines.runs import launcher
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.runs.seeds import train_seeds
from pipelines.task.contract import Task

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
