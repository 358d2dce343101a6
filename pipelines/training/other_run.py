"""The model of another run that a training uses: a teacher, or the weights that it begins with. No code of that run is executed.

It must answer the same question: task, classes, and what becomes of an example on its way to the model. Its checksum stays with the
checkpoints, so that a run is not resumed with another one in its place.
"""

import hashlib
from pathlib import Path

import keras
import tensorflow as tf

from pipelines.base import stored
from pipelines.base.errors import ConfigError
from pipelines.base.inside import digest, refuse_links
from pipelines.config import registry
from pipelines.config.load import load
from pipelines.config.run_names import NEEDED, located
from pipelines.config.schema import Experiment
from pipelines.data.cache import computation, decoded_spec
from pipelines.data.fingerprint import graph_hash
from pipelines.data.source import Source
from pipelines.task.contract import Task
from pipelines.training.embedding_tables import tables_of
from pipelines.training.weight_limits import filled


def named(experiment: Experiment, beside: Path | None = None) -> dict[str, Path]:
    """Setting -> folder of each other run that an experiment needs while it trains; `beside` as in `located`."""
    train = experiment.train
    asked = {"train.teacher.run": train.teacher, "train.start.run": train.start}
    return {setting: located(setting, section.run, beside) for setting, section in asked.items() if section is not None}


def checksums(folders: dict[str, Path]) -> dict[str, str]:
    """Setting -> SHA-256 of what the run is: its experiment, weights and facts."""
    return {setting: _checksum(folder) for setting, folder in folders.items()}


def _checksum(folder: Path) -> str:
    refuse_links(folder)
    return hashlib.sha256("".join(digest(folder / name) for name in NEEDED).encode()).hexdigest()


def model_of(setting: str, folder: Path, task: Task, train: Source) -> keras.Model:
    """The trained model of a run; call it inside the strategy's scope.

    Args:
        setting: that names it, for messages.
        folder: as `named` has it.
        task: of this training, with its facts; `train`: its train split.

    Raises:
        ConfigError: another task or other classes, or it sees other inputs than `task` makes of `train`.
    """
    refuse_links(folder)
    experiment = load(folder / "experiment.yaml", check_paths=False).experiment
    if experiment.task != task.experiment.task:
        raise ConfigError(f"{setting}: {folder} is a run of {experiment.task}, and this experiment of {task.experiment.task}")
    kind = registry.task_class(experiment.task)
    facts = stored.read(folder / "model" / "facts.json", kind.facts_schema).model_dump(exclude_unset=True, by_alias=True)
    theirs: Task = kind(experiment, facts)
    for name, what in (("classes", "classes"), ("targets", "numbers, or another scale of them,")):
        if facts.get(name) != task.facts.get(name):
            raise ConfigError(f"{setting}: {folder} knows other {what} than these data have, or in another order")
    if _seen(theirs, train) != _seen(task, train):
        raise ConfigError(f"{setting}: {folder} sees other inputs than this model would; it needs these data, "
                          "sizes, front end or tokens, learned from the same train split")
    model = filled(theirs.model, folder / "model" / "model.keras", str(folder))
    model.trainable = False
    return model


def fits(model: keras.Model, start: keras.Model, setting: str) -> None:
    """Raises ConfigError where a model cannot take another's weights: they differ in number or shape."""
    ours, theirs = lasting(model), lasting(start)
    if len(ours) != len(theirs):
        raise ConfigError(f"{setting}: it has {len(theirs)} weights and this model {len(ours)}; give `model` the settings of that run")
    for variable, value in zip(ours, theirs):
        if variable.shape != value.shape:
            raise ConfigError(f"{setting}: {value.path} is {list(value.shape)} there and {list(variable.shape)} here; "
                              "give `model` the settings of that run")


def take_over(model: keras.Model, start: keras.Model) -> None:
    """Gives a model another's weights, statistics and table rows, but not its seeds."""
    for variable, value in zip(lasting(model), lasting(start)):
        variable.assign(value.value)


def lasting(model: keras.Model) -> list[keras.Variable]:
    return [*model.weights, *(table.variable for table in tables_of(model))]


def _seen(task: Task, train: Source) -> str:
    """What becomes of a stored example on its way to the model, as a hash; where that is random, without it."""
    decode = task.input.decoder
    one = {name: tf.TensorSpec([2, *spec.shape], spec.dtype) for name, spec in decoded_spec(train, decode).items()}
    prepared = tf.function(lambda examples: task.prepare(examples)[0], autograph=False).get_concrete_function(one)
    return f"{computation(train, decode)} {graph_hash(prepared)}"
