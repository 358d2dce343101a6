"""Assembles a training from an experiment: prepared, a learner, its update, its feed, its step. No loop, no files."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say, Work, silent
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import protected_by
from pipelines.data.input import Decoder, Feed, make_feed
from pipelines.data.source import Source
from pipelines.encoders import trainable
from pipelines.task.contract import Task
from pipelines.training import other_run
from pipelines.training.chain import Chain, Link
from pipelines.training.divided_tables import DividedTables
from pipelines.training.embedding_tables import TableOptimizer, all_variables, in_main_memory, tables_of
from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.home import Elsewhere, Home
from pipelines.training.learner import Learner, learner_of
from pipelines.training.links import Averaged, Clipped, LossScaled, Optimized, learning_rate, make_optimizer
from pipelines.training.loop import Hook
from pipelines.training.mesh_step import MeshStep, OnMesh
from pipelines.training.moving_statistics import Statistics
from pipelines.training.preparation import Prepared, divides_tables, prepare
from pipelines.training.step import Step
from pipelines.training.teacher import Taught
from pipelines.training.transform import Kept
from pipelines.training.weight_limits import bounded

START, TEACHER = "train.start.run", "train.teacher.run"
INITIAL_BATCH = 256  # examples at a time for Task.initialise


@dataclass(frozen=True)
class Update:
    """What changes a learner: the chain of links, the tables among them, and (weight or statistic, its moving average), if any."""

    chain: Chain
    tables: TableOptimizer
    averages: list[tuple[keras.Variable, keras.Variable]]


@dataclass(frozen=True)
class Session(Prepared):
    """Everything a training is made of, built in this process.

    `task`, `splits` and `model` are the whole of what is judged on test and saved; `learner` is what of it trains: the same, or a head
    on features that were computed once.

    Attributes:
        steps: of the whole training.
        shown: the examples of `feed` as the whole network sees them.
        start: with whose weights it begins.
        say: is told how far work is that takes long.
    """

    learner: Learner
    steps: int
    update: Update
    feed: Feed
    shown: Feed
    step: Step
    start: keras.Model | None
    say: Say

    @property
    def weights(self) -> list[keras.Variable]:
        """All that may train, in the optimizer's order."""
        return self.update.chain.weights

    @property
    def all_weights(self) -> list[keras.Variable]:
        """All that makes the learner what it is."""
        return all_variables(self.learner.model)

    @property
    def averages(self) -> list[tuple[keras.Variable, keras.Variable]]:
        """(weight or statistic, its moving average): all weights, then statistics; or nothing."""
        return self.update.averages

    @property
    def state_groups(self) -> dict[str, list[keras.Variable]]:
        """All variables of a checkpoint, by group."""
        groups: dict[str, list[keras.Variable]] = {"weights": self.all_weights, "optimizer": [], "averages": []}
        for link in self.update.chain.links:
            if variables := [*link.variables, *link.saved]:
                groups.setdefault(link.name, []).extend(variables)
        return groups

    @property
    def elsewhere(self) -> Elsewhere | None:
        """What holds values that the steps change: parts of tables, or all that lies on a mesh."""
        if isinstance(self.step, MeshStep):
            return self.step.held
        return self.update.tables if isinstance(self.update.tables, DividedTables) else None

    def homing(self, due: Callable[[], bool] = lambda: False) -> list[Hook]:
        """What brings that to main memory; `due` as in `Home`. First among the hooks."""
        return [Home(self.elsewhere, due)] if self.elsewhere is not None else []

    @property
    def fits_first(self) -> bool:
        """Whether training by steps begins with a head that was fitted."""
        return self.learner.fit is not None and self.steps > 0

    def initialise(self) -> None:
        """Sets the weights that are there before step 0: all of them, where nothing trains by steps."""
        learner = self.learner
        with Work(self.say, "fitting") as work:
            if learner.fit is not None:
                learner.fit(work.doing)
            elif self.start is not None:
                other_run.take_over(self.model, self.start)
            elif learner.model is self.model and protected_by(self.task.experiment.train) is None:
                self.task.initialise(self.model, map(self.task.prepare, self.feed.judged(INITIAL_BATCH)))
                if note := self.task.fit_at_once(self.model, self.splits.train, self._features):
                    learner.notes.append(note)
        for variable, average in self.averages:
            average.assign(variable.value)

    def _features(self, source: Source, function: Callable[[Any], Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """What `function` makes of the model's inputs, on this host alone (pipelines.task.output.Features)."""
        return Evaluator(self.task, self.model, source, machine=self.machine.alone(), say=self.say).features(function)


def assemble(experiment: Experiment, task_class: type[Task], *, precision: str | None = None, facts: dict[str, Any] | None = None,
             beside: Path | None = None, kept: Kept | None = None, say: Say = silent) -> Session:
    """Builds the whole training. Arguments and errors as those of `prepare`; `say` is called with what takes long."""
    begun = prepare(experiment, task_class, precision=precision, facts=facts, beside=beside, kept=kept)
    begun.task.learn_fixed(begun.model, begun.splits.train)
    learner = find_learner(begun, say)
    start = begun.others.get(START)
    if start is not None:
        other_run.fits(begun.model, start, START)
    # a model in closed form is what Task.initialise makes it
    by_steps = learner.model.trainable_variables or tables_of(begun.model)
    steps = begun.plan.steps_per_epoch * experiment.train.epochs if by_steps else 0
    update = build_update(begun, learner, steps)
    feed, shown = build_feeds(begun, learner)
    step = build_step(begun, learner, update, feed)
    return Session(**vars(begun), learner=learner, steps=steps, update=update, feed=feed, shown=shown, step=step, start=start, say=say)


def build_step(begun: Prepared, learner: Learner, update: Update, feed: Feed) -> Step:
    """The step that trains the learner, on a mesh where there is one. Raises ConfigError where the mesh does not suit the learner."""
    common: dict[str, Any] = {"task": learner.task, "chain": update.chain, "tables": update.tables, "machine": begun.machine, "feed": feed,
                              "train": begun.task.experiment.train, "scores": begun.scores}
    if begun.layouts is None:
        return Step(**common)
    if learner.model is not begun.model:
        raise ConfigError("train.parallel: the encoder is frozen, and its features are computed once: the head alone trains, which one "
                          "device does; leave train.parallel out")
    variables = [*all_variables(learner.model), *(one for link in update.chain.links for one in link.variables)]
    return MeshStep(held=OnMesh(begun.layouts, variables, {id(average): one for one, average in update.averages}), **common)


def find_learner(begun: Prepared, say: Say) -> Learner:
    """What of the model trains, beside its teacher if it has one. Raises ConfigError where the settings do not fit together."""
    train, model = begun.task.experiment.train, begun.model
    learner = learner_of(begun.task, begun.splits, model, begun.way, begun.task.experiment, begun.machine, say)
    if begun.others and learner.model is not model:
        setting = next(iter(begun.others)).removesuffix(".run")
        raise ConfigError(f"{setting}: the encoder is frozen, and its head learns from features that are kept; set "
                          "model.finetune.views: 0, or leave it out")
    if (protection := protected_by(train)) and learner.fit is not None:
        raise ConfigError(f"{protection}: the head is fitted to the training data without noise; set model.finetune.head: trained or new")
    if train.teacher is None:
        return learner
    return replace(learner, task=cast(Task, Taught(learner.task, begun.others[TEACHER], train.teacher)))


def build_update(begun: Prepared, learner: Learner, steps: int) -> Update:
    """The optimizer, which is the models' from now on, and the links around it, for a training of so many steps."""
    train, machine, model, weights = begun.task.experiment.train, begun.machine, learner.model, list(learner.model.trainable_variables)
    with machine.scope(), bounded("train.optimizer"):
        optimizer = make_optimizer(train.optimizer, weights)
        begun.model.optimizer = model.optimizer = optimizer
        shares = trainable.shares(begun.way, begun.model, train.learning_rate.peak)
        optimized = Optimized(model, optimizer, lambda step: learning_rate(train.learning_rate, steps, step),
                              [(weight, shares.get(id(weight), 1.0)) for weight in weights])
        divided = divides_tables(train, machine)
        with in_main_memory(divided):
            tables = (DividedTables if divided else TableOptimizer)(tables_of(begun.model), train, machine, optimized.rate_in)
        averaged = [Averaged(model, weights, train.ema)] if train.ema else []
        for one in begun.transforms:
            one.build(weights)
        scaled = [LossScaled()] if machine.precision == "float16" else []
    links: list[Link] = [*begun.transforms, *scaled, Clipped(train.clip), optimized, Statistics(model), *averaged, tables]
    # an update is a few passes over all weights; fused into one it costs half, on CPUs too. Muon's is matrix products.
    fuse = machine.xla or (machine.mesh is None and train.xla != "off" and not train.deterministic and type(optimizer).__name__ != "Muon")
    return Update(Chain(model, weights, links, fuse=fuse), tables, averaged[0].averages if averaged else [])


def build_feeds(begun: Prepared, learner: Learner) -> tuple[Feed, Feed]:
    """What feeds the learner, and the same examples as the whole network sees them."""
    task, machine, train = begun.task, begun.machine, begun.task.experiment.train
    feed = make_feed(learner.train, Decoder.of(learner.task, few=machine.xla), plan=begun.plan, seed=train.seed, shuffle=True,
                     data=task.experiment.data, machine=machine)
    if learner.model is begun.model:
        return feed, feed
    whole = Decoder.of(task)
    return feed, Feed(begun.splits.train, whole.decode, plan=begun.plan, seed=train.seed, shuffle=True, rule=whole.lengths)
