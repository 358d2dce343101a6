"""A link of the update that an extension brings, with what it asks of the training around it.

One is made for each training whose experiment asks for it, from `doors.TRANSFORMS`, and stands before the core's own links.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras

from pipelines.config.doors import TRANSFORMS
from pipelines.config.schema import Experiment
from pipelines.data.order import Plan
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training.chain import Link
from pipelines.training.loop import Hook

Kept = dict[str, dict[str, Any]]  # name of a transform -> what it keeps over the life of a run


@dataclass(frozen=True)
class Cost:
    """What a training gives up for something else than its score: of what is it the price, and what makes it less."""

    of: str
    remedy: str


class Transform(Link):
    """A link with the experiment's say in it. Its methods are called in the order in which they stand here, those of `Link` in the step.

    Args:
        experiment: checked settings.
        examples: of the training split.
        kept: what `begin` gave.

    Attributes:
        kept: JSON values that stand in checkpoints, and are given to `begin` when the run is resumed.
        cost: what explains a score below that of the cheap baseline.

    Raises:
        ConfigError: what the settings ask for is not installed, or does not suit the data.
    """

    cost: Cost | None = None

    @classmethod
    def applies(cls, experiment: Experiment) -> bool:
        """Whether the settings ask for it."""
        raise NotImplementedError

    @classmethod
    def begin(cls, kept: Mapping[str, Any] | None) -> dict[str, Any]:
        """What one training keeps: at the chief of several hosts, for all. `kept` is that of the run that is resumed; None: it is new."""
        return dict(kept or {})

    def __init__(self, experiment: Experiment, examples: int, kept: Mapping[str, Any]):
        self.experiment, self.examples, self.kept = experiment, examples, dict(kept)

    def facts(self, task: Task, facts: dict[str, Any]) -> dict[str, Any]:
        """What may be used of that which was learned of train. Raises ConfigError where the task cannot do with less."""
        return facts

    def plan(self, replicas: int) -> Plan | None:
        """How batches are made; None: as ever. Raises ConfigError where the settings do not fit together."""
        return None

    def check(self, task: Task, model: keras.Model, machine: Machine) -> None:
        """Raises ConfigError for a model that cannot be trained so."""

    def build(self, weights: list[keras.Variable]) -> None:
        """Creates `variables`; within the strategy's scope."""

    def describe(self) -> str | None:
        """A line for who watches, before training begins."""
        return None

    def hooks(self) -> list[Hook]:
        return []

    def record(self, steps: int) -> dict[str, Any]:
        """JSON values for environment.json under the transform's name, after so many steps; of these `statement` stands in the model card
        and `note` in the report."""
        return {}


def applying(experiment: Experiment) -> dict[str, type[Transform]]:
    """Name -> class of each that an experiment asks for."""
    kinds: dict[str, type[Transform]] = {entry.name: entry.load() for entry in TRANSFORMS.entries()}
    return {name: kind for name, kind in kinds.items() if kind.applies(experiment)}


def begin(experiment: Experiment, kept: Kept) -> Kept:
    """What the transforms of a training keep, as `Transform.begin` of each says."""
    return {name: kind.begin(kept.get(name)) for name, kind in applying(experiment).items()}


def made(experiment: Experiment, examples: int, kept: Kept) -> list[Transform]:
    """The transforms of a training."""
    found = []
    for name, kind in applying(experiment).items():
        one = kind(experiment, examples, kept[name] if name in kept else kind.begin(None))
        one.name = name
        found.append(one)
    return found
