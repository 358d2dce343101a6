"""Assembles a training from an experiment: machine, data, model, optimizer, step. No loop, no files."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import finite
from pipelines.base.metric_kinds import better
from pipelines.base.progress import Say, Work, silent
from pipelines.base.stored import checked
from pipelines.config.schema import Experiment, Train, accumulation_of, protected_by
from pipelines.data.cache import decoded_spec
from pipelines.data.input import Feed, make_feed
from pipelines.data.order import Plan
from pipelines.data.source import Source
from pipelines.encoders import trainable
from pipelines.encoders.finetune import Finetune, Gradual
from pipelines.machine import devices
from pipelines.machine.precision import FASTER, speed
from pipelines.task.contract import Splits, Task
from pipelines.task.own_metrics import own_scores
from pipelines.task.prepared import splits_of
from pipelines.training import links, optimizers, other_run, precision_probe, transform
from pipelines.training.chain import Chain
from pipelines.training.divided_tables import DividedTables
from pipelines.training.embedding_tables import TableOptimizer, all_variables, in_main_memory, tables_of
from pipelines.training.evaluation import Evaluator, batch_size
from pipelines.training.hooks.freezing import GradualUnfreeze, Unfreeze
from pipelines.training.learner import Learner, learner_of
from pipelines.training.loop import Hook
from pipelines.training.model_state import statistics_of
from pipelines.training.schedules import learning_rate
from pipelines.training.step import Step
from pipelines.training.teacher import Taught
from pipelines.training.totals import find_scores
from pipelines.training.transform import Kept, Transform
from pipelines.training.weight_limits import bounded

START, TEACHER = "train.start.run", "train.teacher.run"
INITIAL_BATCH = 256  # examples at a time for Task.initialise


@dataclass
class Session:
    """Everything a training is made of, built in this process.

    `task`, `splits` and `model` are the whole of what is judged on test and saved; `learner` is what of it trains: the same, or a head
    on features that were computed once.
    """

    task: Task
    splits: Splits
    machine: devices.Machine
    plan: Plan
    steps: int
    feed: Feed
    shown: Feed  # the same examples as the whole network sees them
    model: keras.Model
    learner: Learner
    way: Finetune | None  # of a network with a pretrained encoder
    optimizer: keras.optimizers.Optimizer
    weights: list[keras.Variable]  # all that may train, in the optimizer's order
    averaged: list[keras.Variable]  # of what there are moving averages: those weights, then batch statistics; or nothing
    averages: list[keras.Variable]  # one for each of these
    tables: TableOptimizer
    step: Step
    freezing: list[Hook]
    watch: tuple[str, str]  # the validation metric that early stopping and the best weights follow, and "max" or "min"
    start: keras.Model | None = None  # with whose weights it begins
    transforms: list[Transform] = field(default_factory=list)
    say: Say = silent  # is told how far work is that takes long

    @property
    def state_groups(self) -> dict[str, list[keras.Variable]]:
        """All variables of a checkpoint, by group."""
        groups: dict[str, list[keras.Variable]] = {"weights": self.all_weights, "optimizer": [], "averages": []}
        for link in self.step.chain.links:
            if link.saved:
                groups.setdefault(link.name, []).extend(link.saved)
        return groups

    @property
    def divided(self) -> DividedTables | None:
        """The tables, where each replica holds a part of them."""
        return self.tables if isinstance(self.tables, DividedTables) else None

    @property
    def fits_first(self) -> bool:
        """Whether training by steps begins with a head that was fitted."""
        return self.learner.fit is not None and self.steps > 0

    def __post_init__(self) -> None:
        self.all_weights = all_variables(self.learner.model)

    def initialise(self) -> None:
        """Sets the weights that are there before step 0: all of them, where nothing trains by steps."""
        with Work(self.say, "fitting") as work:
            self._initialise(work)

    def _initialise(self, work: Work) -> None:
        learner = self.learner
        if learner.fit is not None:
            learner.fit(work.doing)
        elif self.start is not None:
            other_run.take_over(self.model, self.start)
        elif learner.model is self.model and protected_by(self.task.experiment.train) is None:
            self.task.initialise(self.model, map(self.task.prepare, self.feed.judged(INITIAL_BATCH)))
            if note := self.task.fit_at_once(self.model, self.splits.train, self._features):
                learner.notes.append(note)

    def _features(self, source: Source, function: Callable[[Any], Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """What `function` makes of the model's inputs, on this host alone (pipelines.task.judging.Features)."""
        experiment = self.task.experiment
        return Evaluator(self.task, self.model, source, machine=self.machine.alone(), data=experiment.data,
                         batch=batch_size(experiment.evaluate, experiment.train.batch_size), say=self.say).features(function)


def plan_batches(train: Train, examples: int, replicas: int) -> Plan:
    """Divides the global batch over replicas and accumulation.

    Raises:
        ConfigError: the three batch settings and the number of devices do not fit together.
    """
    return Plan(examples, train.batch_size, replicas, accumulation_of(train, replicas))


@dataclass
class Prepared:
    """What a training begins with, before its data are decoded."""

    task: Task
    splits: Splits
    machine: devices.Machine
    plan: Plan
    model: keras.Model
    way: Finetune | None  # of a network with a pretrained encoder
    freezing: list[Hook]
    score_names: list[str]
    watch: tuple[str, str]
    others: dict[str, keras.Model]  # those of other runs, by the setting that names one
    transforms: list[Transform]


def prepare(
    experiment: Experiment,
    task_class: type[Task],
    *,
    precision: str | None = None,
    facts: dict[str, Any] | None = None,
    beside: Path | None = None,
    kept: Kept | None = None,
) -> Prepared:
    """Divides the data and builds the model: all that a training can be refused for before its first step. `check` does it, too.

    Args:
        experiment: checked settings.
        task_class: what is learned.
        precision: the precision an interrupted run had chosen, None for a new run.
        beside: the folder of this run, above which other runs are looked for that the experiment names.
        kept: what transforms keep of this run (`transform.begin`), None for a new one.

    Raises:
        ConfigError, DataError: settings or data that cannot be used.
    """
    train = experiment.train
    machine = devices.prepare(train, precision=precision)
    task = task_class(experiment, facts)
    splits = splits_of(task)
    transforms = transform.made(experiment, len(splits.train), kept or {})
    for one in transforms:
        splits = replace(splits, facts=one.facts(task, splits.facts))
    task.facts = splits.facts
    checked(finite(splits.facts), task.facts_schema, f"{experiment.task}, what was learned of the data",
            "a run with it could not be loaded")
    if not len(splits.train):
        raise DataError("the training split holds no examples")
    for name, source in (("validation", splits.validation), ("test", splits.test)):
        if source is not None and (why := task.output.cannot_judge(source)) is not None:
            raise DataError(f"data.{name}: {why}")
    planned = (one.plan(machine.replicas) for one in transforms)
    plan = next((one for one in planned if one), None) or plan_batches(train, len(splits.train), machine.replicas)
    spec = decoded_spec(splits.train, task.input.decoder)
    with machine.strategy.scope(), bounded("model"), in_main_memory(divides(train, machine)):
        model, way = _built(task, len(splits.train))
        if precision is None and devices.by_convolution(machine, train) and precision_probe.depthwise(model):
            machine, model, way = _timed(machine, task, model, way, spec, len(splits.train))
        machine = devices.for_model(machine, model)
        others = {setting: other_run.model_of(setting, folder, task, splits.train)
                  for setting, folder in other_run.named(experiment, beside).items()}
        freezing: list[Hook] = [Unfreeze(train.freeze, model)] if train.freeze else []
        if isinstance(way, Gradual):
            freezing.append(GradualUnfreeze(way, model))
    # what is wrong whatever the data is reported before they are all decoded
    score_names = find_scores(task, model, spec)
    own = check_own_metrics(task, model, splits, score_names)
    for one in transforms:
        one.check(task, model, machine)
    return Prepared(task, splits, machine, plan, model, way, freezing, score_names, watched(train, task, [*score_names, *own], splits),
                    others, transforms)


def _built(task: Task, examples: int) -> tuple[keras.Model, Finetune | None]:
    """The task's network, what of it trains on so many examples settled."""
    model = task.model()
    way = trainable.way_of(task.experiment, model, examples)
    if way is not None:
        trainable.settle(way, model)
    return model, way


def _timed(machine: devices.Machine, task: Task, model: keras.Model, way: Finetune | None, spec: dict[str, tf.TensorSpec],
           examples: int) -> tuple[devices.Machine, keras.Model, Finetune | None]:
    """Machine and network in float32, where that is no slower for it than the machine's own precision."""
    train = task.experiment.train
    plain = devices.in_precision(machine, train, "float32")
    other, its_way = _built(task, examples)
    gain = machine.group.of_chief(
        precision_probe.gain(task, model, other, spec, train.batch_size) if machine.group.chief else None)
    said = f"this network, which has depthwise convolutions, is {speed(gain, machine.precision)} here"
    if gain < FASTER:
        return plain.with_reason(said), other, its_way
    return devices.in_precision(machine, train, machine.precision).with_reason(said), model, way


def assemble(experiment: Experiment, task_class: type[Task], *, precision: str | None = None, facts: dict[str, Any] | None = None,
             beside: Path | None = None, kept: Kept | None = None, say: Say = silent) -> Session:
    """Builds the whole training. Arguments and errors as those of `prepare`; `say` is called with what takes long."""
    train, begun = experiment.train, prepare(experiment, task_class, precision=precision, facts=facts, beside=beside, kept=kept)
    task, splits, machine, plan, model = begun.task, begun.splits, begun.machine, begun.plan, begun.model
    task.learn_fixed(model, splits.train)
    learner = learner_of(task, splits, model, begun.way, experiment, machine, say)
    if begun.others and learner.model is not model:
        setting = next(iter(begun.others)).removesuffix(".run")
        raise ConfigError(f"{setting}: the encoder is frozen, and its head learns from features that are kept; set "
                          "model.finetune.views: 0, or leave it out")
    if train.teacher is not None:
        learner.task = cast(Task, Taught(task, begun.others[TEACHER], train.teacher))
    start = begun.others.get(START)
    if start is not None:
        other_run.fits(model, start, START)
    if (protection := protected_by(train)) and learner.fit is not None:
        raise ConfigError(f"{protection}: the head is fitted to the training data without noise; set model.finetune.head: trained or new")
    weights = list(learner.model.trainable_variables)
    # a model in closed form is what Task.initialise makes it
    steps = plan.steps_per_epoch * train.epochs if weights or tables_of(model) else 0
    decode = learner.task.input.decoder
    with machine.strategy.scope(), bounded("train.optimizer"):
        optimizer = optimizers.make(train.optimizer, weights)
        model.optimizer = learner.model.optimizer = optimizer
        shares = trainable.shares(begun.way, model, train.learning_rate.peak)
        optimized = links.Optimized(optimizer, lambda step: learning_rate(train.learning_rate, steps, step),
                                    [shares.get(id(weight), 1.0) for weight in weights])
        divided = divides(train, machine)
        with in_main_memory(divided):
            tables = (DividedTables if divided else TableOptimizer)(tables_of(model), train, machine, optimized.rate_in)
        # from numbers: given the tf.Variable of a weight, a keras.Variable would take that itself, not its value
        statistics = statistics_of(learner.model)
        averaged = [*weights, *statistics] if train.ema else []
        averages = [
            keras.Variable(variable.numpy(), trainable=False, dtype="float32", name=f"{variable.name}_average") for variable in averaged
        ]
        for one in begun.transforms:
            one.build(weights)
        scaled = [links.LossScaled()] if machine.precision == "float16" else []
    rule = learner.task.input.lengths
    feed = make_feed(
        learner.train,
        decode,
        plan=plan,
        seed=train.seed,
        shuffle=True,
        random_decode=learner.task.input.decoding.random,
        data=experiment.data,
        strategy=machine.strategy,
        devices=machine.devices,
        own=machine.own,
        facts=task.facts,
        lengths=rule and replace(rule, few=machine.xla),
    )
    following = [links.Averaged(learner.model, weights, statistics, averages, train.ema)] if train.ema else []
    # an update is a few passes over all weights; fused into one it costs half, on CPUs too. Muon's is matrix products.
    fuse = machine.xla or (train.xla != "off" and not train.deterministic and type(optimizer).__name__ != "Muon")
    chain = Chain(learner.model, weights, [
        *begun.transforms, *scaled, links.Clipped(train.clip), optimized, links.Frozen(learner.model, weights),
        links.Statistics(learner.model), *following, tables], fuse=fuse)
    step = Step(task=learner.task, model=learner.model, chain=chain, tables=tables, machine=machine, plan=plan, feed=feed, train=train,
                score_names=begun.score_names)
    shown = feed if learner.model is model else Feed(
        splits.train, task.input.decoder, plan=plan, seed=train.seed, shuffle=True, rule=task.input.lengths)
    return Session(task, splits, machine, plan, steps, feed, shown, model, learner, begun.way, optimizer, weights, averaged, averages,
                   tables, step, begun.freezing, begun.watch, start, begun.transforms, say)


def divides(train: Train, machine: devices.Machine) -> bool:
    """Whether each replica holds a part of the embedding tables."""
    return train.tables.divided and machine.replicas > 1


def check_own_metrics(task: Task, model: Any, splits: Splits, scores: list[str]) -> list[str]:
    """The names of evaluate.metrics, traced on an example to be judged, so that what is wrong with them is reported before training.

    Raises:
        ConfigError: one that is there twice or has the name of a score, or gives anything but a number for each example.
    """
    names = [one.name for one in task.experiment.evaluate.metrics]
    twice = next((name for number, name in enumerate(names) if name in [*scores, "loss", *names[:number]]), None)
    if twice:
        raise ConfigError(f"evaluate.metrics: there is a metric {twice} already")
    source = splits.validation or splits.test
    if names and source is not None:
        spec = decoded_spec(source, task.input.decoder)
        find_scores(task, model, spec, partial(own_scores, task))
    return names


def watched(train: Train, task: Task, scores: list[str], splits: Splits) -> tuple[str, str]:
    """The validation metric that early stopping and the best weights follow, and "max" or "min".

    Raises:
        ConfigError: the task has no such metric, or there is no validation split to stop by.
    """
    own = task.output.watch
    if train.early_stopping and not splits.validation:
        raise ConfigError("train.early_stopping: there is no validation split to judge by; set data.validation")
    if train.watch is None:
        return own
    name = train.watch.removeprefix("validation/")
    if name == own[0]:  # also where validation alone has it
        return own
    known = ["loss", *scores]
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise ConfigError(f"train.watch: {train.watch!r} is no metric of this task{f'; did you mean {near[0]}?' if near else ''} "
                          f"(there are: {', '.join(known)})")
    direction = better(name)
    if direction is None:
        raise ConfigError(f"train.watch: whether more or less of {name} is better is not known; declare it (pipelines.base.metric_kinds)")
    return name, direction
