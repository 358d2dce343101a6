"""What of a network trains: all of it, or the head alone on features of its encoder, which are computed once."""

from collections.abc import Callable
from dataclasses import dataclass, field

import keras

from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say
from pipelines.config.schema import Experiment
from pipelines.data.cache import readable
from pipelines.data.source import ArraySource, Source
from pipelines.encoders import linear_head, trainable
from pipelines.encoders.features import Computing, answers_once, parts
from pipelines.encoders.finetune import Finetune, Frozen
from pipelines.machine.devices import Machine
from pipelines.machine.group import Group
from pipelines.task.contract import Splits, Task


@dataclass
class Learner:
    """What the steps train and the epochs are judged by.

    Attributes:
        answers: whether its answers are those of the whole network.
        fit: sets the weights of the head before the first step; where nothing trains by steps, that is all. Is given what says what it
            does now.
        features: what it learns from of another source, such as one that is to be judged; None: examples as they are, or no room.
        notes: for the report.
    """

    task: Task
    model: keras.Model
    train: Source
    validation: Source | None
    answers: bool = True
    fit: Callable[[Say], None] | None = None
    features: Callable[[Source], Source | None] = lambda source: None
    notes: list[str] = field(default_factory=list)


def learner_of(task: Task, splits: Splits, model: keras.Model, way: Finetune | None, experiment: Experiment, machine: Machine,
               say: Say) -> Learner:
    """The learner of an experiment. Computes features, where it is one of a head alone; `say` is called with how far that is.

    Raises:
        ConfigError: a linear head is asked for, and features cannot be kept, or the head is another one.
    """
    chosen = trainable.note(experiment, way, len(splits.train))
    whole = Learner(task, model, splits.train, splits.validation, notes=[*([chosen] if chosen else []), *_unread(task)])
    if way is None:
        return whole

    def computing() -> Computing | None:
        # each host computes all of them, and keeps them for its own runs
        return Computing.of(task, model, splits.train, machine.alone(), experiment.data, experiment.train.seed, say)

    if not isinstance(way, Frozen):
        if way.head == "fitted":
            whole.fit = lambda doing: _fit_first(whole, computing(), experiment.train.seed, doing)
        return whole
    head = parts(model)[1]
    linear = any(linear_head.dense_of(head, moments=moments) is not None for moments in (False, True))
    learner = _of_head(whole, way, computing(), experiment.train.seed, linear, machine.group) if way.views else None
    if way.head == "linear" and experiment.model.finetune is not None:  # type: ignore[attr-defined]
        if not linear:
            raise ConfigError("model.finetune.head: linear fits one dense layer, and this model's head is another one; set head: trained")
        if learner is None:
            raise ConfigError("model.finetune.head: linear needs features that are kept, and there is no room for them, data.cache is "
                              "none, data.streaming is set, finetune.views is 0, or recordings that become text are augmented; change "
                              "that, or set head: trained")
        if learner.fit is None:
            raise ConfigError(f"model.finetune.head: linear is fitted to all features at once, which take {readable(learner.train.nbytes)} "  # type: ignore[attr-defined]
                              f"here, more than {readable(linear_head.MOST)}; set head: trained")
    return learner or whole


def _of_head(whole: Learner, way: Frozen, computing: Computing | None, seed: int, linear: bool, hosts: Group) -> Learner | None:
    """None where features cannot be kept, on one of the hosts."""
    if computing is None:
        return None
    views = way.views if computing.prepared.random else 0
    train = computing.source(whole.train, views)
    validation = None if train is None else _features(computing, whole.validation)
    there = train is not None and (validation is None) == (whole.validation is None)
    if not all(hosts.of_all(there)) or train is None:
        return None
    _, head = parts(whole.model)
    answers = not computing.prepared.sequences and answers_once(whole.task, whole.model, whole.train)
    learner = Learner(computing.adapted(views), head, train, validation, answers, features=computing.source, notes=whole.notes)
    each = f" in {views} views" if views > 1 else ""
    learner.notes.append(f"The encoder is frozen: its features of {len(train):,} training examples{each} ({readable(train.nbytes)}) were "
                         f"computed once, in {computing.seconds:.1f} s.")
    if way.head == "linear" and linear and not (computing.prepared.sequences and train.nbytes > linear_head.MOST):
        head.trainable = False  # no step trains it

        def fit(doing: Say) -> None:
            chosen = linear_head.fit(learner.task, head, train, validation, views, seed, doing=doing)
            learner.notes.append(
                f"The last layer was fitted by L-BFGS; L2 regularisation of {chosen.strength:g} was chosen by {chosen.metric} "
                f"({chosen.value:.4g}) on {chosen.judged_on}."
                + ("" if chosen.factor else " Its last columns, scores of the classes, are wrong on most of train, and left out."))

        learner.fit = fit
    return learner


def _fit_first(whole: Learner, computing: Computing | None, seed: int, doing: Say) -> None:
    """Fits the head to the features of the encoder as it is, where that can be done; training goes on from there."""
    _, head = parts(whole.model)
    train = computing.source(whole.train) if computing is not None and linear_head.dense_of(head) is not None else None
    if computing is not None and train is not None:
        chosen = linear_head.fit(computing.adapted(1), head, train, _features(computing, whole.validation), 1, seed,
                                 linear_head.BEFORE_TRAINING, doing=doing)
        whole.notes.append(f"Training began with a last layer fitted to the encoder's features by L-BFGS: {chosen.metric} "
                           f"{chosen.value:.4g} on {chosen.judged_on}.")


def _unread(task: Task) -> list[str]:
    """A note on pickles beside the encoder's weights."""
    encoder = task.facts.get("encoder") or {}
    if not encoder.get("unread"):
        return []
    return [f"{encoder['name']}: {', '.join(encoder['unread'])} lies beside the weights that were read; a pickle can run any code, and "
            "nothing opened it."]


def _features(computing: Computing, source: Source | None) -> ArraySource | None:
    return computing.source(source) if source is not None else None
