"""What of a network trains: all of it, or the head alone on features of its encoder, which are computed once."""

from collections.abc import Callable
from dataclasses import dataclass, field

import keras

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment
from pipelines.data.cache import readable
from pipelines.data.source import Source
from pipelines.encoders import linear_head
from pipelines.encoders.features import Computing, answers_once, parts
from pipelines.encoders.finetune import Finetune, Frozen
from pipelines.machine.devices import Machine
from pipelines.task.contract import Splits, Task


@dataclass
class Learner:
    """What the steps train and the epochs are judged by.

    Attributes:
        answers: whether its answers are those of the whole network.
        fit: fits the model at once, where no step trains it; returns what a reader of the report should know.
        notes: for the report.
    """

    task: Task
    model: keras.Model
    train: Source
    validation: Source | None
    answers: bool = True
    fit: Callable[[], str] | None = None
    notes: list[str] = field(default_factory=list)


def learner_of(task: Task, splits: Splits, model: keras.Model, way: Finetune | None, experiment: Experiment, machine: Machine) -> Learner:
    """The learner of an experiment. Computes features, where it is one of a head alone.

    Raises:
        ConfigError: a linear head is asked for, and features cannot be kept.
    """
    whole = Learner(task, model, splits.train, splits.validation)
    if not isinstance(way, Frozen):
        return whole
    computing = Computing.of(task, model, splits.train, machine, experiment.data, experiment.train.seed) if way.views else None
    learner = _of_head(whole, way, computing, experiment.train.seed) if computing else None
    if learner is None and way.head == "linear" and getattr(experiment, "model").finetune is not None:  # noqa: B009
        raise ConfigError("model.finetune.head: linear needs features that are kept, and there is no room for them, data.cache is none, "
                          "data.streaming is set or finetune.views is 0; change that, or set head: trained")
    return learner or whole


def _of_head(whole: Learner, way: Frozen, computing: Computing, seed: int) -> Learner | None:
    """None where features cannot be kept."""
    views = way.views if computing.prepared.random else 0
    train = computing.source(whole.train, views)
    validation = computing.source(whole.validation) if whole.validation is not None else None
    if train is None or (validation is None) != (whole.validation is None):
        return None
    _, head = parts(whole.model)
    learner = Learner(computing.adapted(views), head, train, validation, answers_once(whole.task, whole.model, whole.train))
    each = f" in {views} views" if views > 1 else ""
    learner.notes.append(f"The encoder is frozen: its features of {len(train):,} training examples{each} ({readable(train.nbytes)}) were "
                         f"computed once, in {computing.seconds:.1f} s.")
    if way.head == "linear":
        linear_head.dense_of(head)
        head.trainable = False  # no step trains it

        def fit() -> str:
            chosen = linear_head.fit(learner.task, head, train, validation, views, seed)
            return (f"The last layer was fitted by L-BFGS; L2 regularisation of {chosen.strength:g} was chosen by {chosen.metric} "
                    f"({chosen.value:.4g}) on {'validation' if validation is not None else 'a fifth of train'}.")

        learner.fit = fit
    return learner
