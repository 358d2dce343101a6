"""One process's work on a run: what is asked for, where it is written, and what is said of it."""

from dataclasses import dataclass, field
from typing import Any

import keras

from pipelines.base.screen import Screen
from pipelines.config.schema import Experiment
from pipelines.machine.group import Group
from pipelines.runs.folder import RunFolder
from pipelines.runs.policy import Policy
from pipelines.task.contract import Task
from pipelines.training.hooks.remarks import Warnings
from pipelines.training.meter import Meter


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
