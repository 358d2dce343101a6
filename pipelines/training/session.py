"""Assembles a training from an experiment: machine, data, model, optimizer, step. No loop, no files."""

from dataclasses import dataclass
from typing import Any

import keras

from pipelines.config.schema import Experiment, Train
from pipelines.data.input import Feed, make_feed
from pipelines.data.lengths import Lengths
from pipelines.data.order import Plan
from pipelines.errors import ConfigError, DataError
from pipelines.task import Splits, Task
from pipelines.training import devices, optimizers
from pipelines.training.hooks import Unfreeze
from pipelines.training.step import Step, statistics_of
from pipelines.training.tables import TableOptimizer, all_variables, tables_of


@dataclass
class Session:
    """Everything a training is made of, built in this process."""

    task: Task
    splits: Splits
    machine: devices.Machine
    plan: Plan
    steps: int
    feed: Feed
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    weights: list[keras.Variable]  # all that may train, in the optimizer's order
    averaged: list[keras.Variable]  # of what there are moving averages: those weights, then batch statistics; or nothing
    averages: list[keras.Variable]  # one for each of these
    tables: TableOptimizer
    step: Step
    freezing: list[Unfreeze]

    @property
    def state_groups(self) -> dict[str, list[keras.Variable]]:
        """All variables of a checkpoint, by group."""
        optimizer = [*self.optimizer.variables, *self.tables.variables]
        return {"weights": self.all_weights, "optimizer": optimizer, "averages": self.averages}

    def __post_init__(self) -> None:
        self.all_weights = all_variables(self.model)


def plan_batches(train: Train, examples: int, replicas: int) -> Plan:
    """Divides the global batch over replicas and accumulation.

    Raises:
        ConfigError: the three batch settings and the number of devices do not fit together.
    """
    batch = train.batch_size
    accumulation = train.accumulation
    if train.micro_batch_size:
        implied, rest = divmod(batch, replicas * train.micro_batch_size)
        if rest or (accumulation or implied) != implied or not implied:
            unit = replicas * train.micro_batch_size * (accumulation or 1)
            nearest = unit if accumulation else max(1, round(batch / unit)) * unit
            raise ConfigError(
                f"train.batch_size: {batch} examples do not divide into {replicas} device{'s' * (replicas > 1)} x "
                f"{accumulation or 'some'} accumulation steps x {train.micro_batch_size} examples "
                f"(train.micro_batch_size); nearest: {nearest}"
            )
        accumulation = implied
    accumulation = accumulation or 1
    if batch % (replicas * accumulation):
        unit = replicas * accumulation
        raise ConfigError(
            f"train.batch_size: the global batch of {batch} examples does not divide over {replicas} devices x {accumulation} accumulation "
            f"steps; nearest: {max(1, round(batch / unit)) * unit}"
        )
    return Plan(examples, batch, replicas, accumulation)


def assemble(
    experiment: Experiment,
    task_class: type[Task],
    *,
    precision: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Session:
    """Builds the whole training.

    Args:
        experiment: checked settings.
        task_class: what is learned.
        precision: the precision an interrupted run had chosen, None for a new run.

    Raises:
        ConfigError, DataError: settings or data that cannot be used.
    """
    train = experiment.train
    machine = devices.prepare(train, precision=precision)
    task = task_class(experiment, facts)
    splits = task.splits()
    task.facts = splits.facts
    if not len(splits.train):
        raise DataError("the training split holds no examples")
    plan = plan_batches(train, len(splits.train), machine.replicas)
    steps = plan.steps_per_epoch * train.epochs
    feed = make_feed(
        splits.train,
        None if task.stored_decoded else task.decode,
        plan=plan,
        seed=train.seed,
        shuffle=True,
        random_decode=task.random_decode,
        data=experiment.data,
        strategy=machine.strategy,
        devices=machine.devices,
        facts=task.facts,
        lengths=Lengths.of(task),
    )
    with machine.strategy.scope():
        model = task.model()
        weights = list(model.trainable_variables)
        freezing = [Unfreeze(train.freeze, model)] if train.freeze else []
        optimizer = optimizers.make(train.optimizer, weights)
        model.optimizer = optimizer
        # from numbers: given the tf.Variable of a weight, a keras.Variable would take that itself, not its value
        tables = TableOptimizer(tables_of(model), train.tables, train.clip)
        averaged = [*weights, *statistics_of(model)] if train.ema else []
        averages = [
            keras.Variable(variable.numpy(), trainable=False, dtype="float32", name=f"{variable.name}_average") for variable in averaged
        ]
    step = Step(
        task=task,
        model=model,
        optimizer=optimizer,
        weights=weights,
        averages=list(zip(averaged, averages)),
        tables=tables,
        machine=machine,
        plan=plan,
        feed=feed,
        train=train,
        steps=steps,
    )
    return Session(task, splits, machine, plan, steps, feed, model, optimizer, weights, averaged, averages, tables, step, freezing)
