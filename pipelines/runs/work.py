"""One process's work on a run: what is asked for, where it is written, and what is said of it."""

from dataclasses import dataclass, field
from typing import Any

import keras

from pipelines.base.terminal import Screen
from pipelines.config.schema import Experiment
from pipelines.machine.group import Group
from pipelines.runs.folder import RunFolder
from pipelines.task.contract import Task
from pipelines.training.hooks.diagnosis import Warnings
from pipelines.training.loop import Hook
from pipelines.training.meter import Meter
from pipelines.training.transform import Kept


@dataclass(frozen=True)
class Policy:
    """By default, that of a run by itself: it does everything. A search, which trains many and compares them, leaves things out.

    Attributes:
        test: the test split is judged, once, at the end.
        baseline: a cheap model is fitted, to stand beside the scores (unless the experiment leaves it out).
        model: the model is saved, and the state that it was resumed from is dropped (unless the experiment keeps it).
        guidance: samples are shown, and warnings given of the data, of a training that goes wrong, and of scores that beat no baseline.
        details: the report holds curves, figures, explanations and arithmetic beside the metrics.
        title: the run's row in TensorBoard's table of settings; None: its name.
        settings: that stand there; None: those that differ from their defaults.
        precision: of a run that begins; None: as the experiment says.
        epochs: after which the run pauses with its state saved, to be resumed later; None: it trains to its end.
        hooks: besides the usual ones.
        kept: what transforms keep of a run that begins; where one is missing, it begins anew.
    """

    test: bool = True
    baseline: bool = True
    model: bool = True
    guidance: bool = True
    details: bool = True
    title: str | None = None
    settings: dict[str, Any] | None = None
    precision: str | None = None
    epochs: int | None = None
    hooks: tuple[Hook, ...] = ()
    kept: Kept = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """How the person called: everything that is not the experiment."""

    name: str  # vision/cifar10_cnn
    task_class: type[Task]
    fresh: bool = False
    quiet: bool = False
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    environment: dict[str, Any] | None = None
    policy: Policy = field(default_factory=Policy)


class Voice:
    """What is said of a run: on the screen, and beside the bar once there is one."""

    def __init__(self, quiet: bool, hosts: Group):
        self.screen: Screen = Screen("", quiet=quiet)
        self.warnings, self._host = Warnings(), "" if hosts.chief else f"host {hosts.number}: "

    def note(self, text: str) -> None:
        self.screen.note(text)

    def remark(self, text: str) -> None:
        """A warning that does not concern the report."""
        self.screen.warning(text)

    def warn(self, text: str) -> None:
        """A warning, which stands in the report, too."""
        self.screen.warning(self._host + text)
        self.warnings.texts.append(text)


@dataclass(frozen=True)
class Work:
    """What every stage of a run works with.

    Attributes:
        private: nothing that the run's files hold may be shown elsewhere; TensorBoard, which others read, then shows scores alone.
    """

    experiment: Experiment
    folder: RunFolder
    call: Call
    hosts: Group
    private: bool
    voice: Voice
    meter: Meter = field(default_factory=Meter)

    @property
    def policy(self) -> Policy:
        return self.call.policy
