"""Launchers: how the processes of a command are started and stay together. Imports no TensorFlow.

The core's own is this process, with those that it starts on this machine. An extension's takes its place where it is asked for, as by an
option of its own or by the environment (`doors.LAUNCHERS`).
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say
from pipelines.config import registry
from pipelines.config.doors import LAUNCHERS
from pipelines.config.schema import Experiment
from pipelines.machine.group import ALONE, Group
from pipelines.runs.folder import RunFolder


@dataclass(frozen=True)
class TrainCall:
    """A call of `train`.

    Attributes:
        arguments: those with which `quartet` does the same without the launcher's own and without --fresh.
        runs: the folder of all runs, or its address.
    """

    experiment: Experiment
    folder: RunFolder
    arguments: tuple[str, ...]
    runs: Path
    fresh: bool


@dataclass(frozen=True)
class PredictCall:
    """A call of `predict`, as its options have it.

    Attributes:
        form: --format; None: not given.
        refused: options that were given and that only this process can do, such as --files.
    """

    run: RunFolder
    inputs: tuple[str, ...]
    output: Path | None
    form: str | None
    top: int
    probabilities: bool
    batch: int | None
    replace: bool
    refused: tuple[str, ...]


class Processes(Protocol):
    """Processes of a search, each of `pipelines.tuning.trial` with one order."""

    def start(self, key: str, arguments: list[str], *, log: str, environment: Mapping[str, str] | None = None) -> None:
        """Begins one, as soon as there is room; what it prints goes to the end of the file `log`."""

    def signal(self, number: int) -> None:
        """Sends a signal to every process that runs."""

    def ended(self, seconds: float) -> list[tuple[str, int]]:
        """(key, exit status, negative for a signal) of those that have ended; waits at most so long for one.

        Raises:
            TrainingError: no process can be started any more.
        """


class Launcher:
    """This process alone, with those that it starts on this machine.

    Attributes:
        chief: this process writes the run; False on all but one of several hosts.
        several: other processes, which were given the same command, train with this one.
        elsewhere: other processes do the command's work, and know of it what `TrainCall.arguments` says.
        other_machines: those may be on other machines.
    """

    chief = True
    several = elsewhere = other_machines = False

    def group(self, facts: Mapping[str, str]) -> contextlib.AbstractContextManager[Group]:
        """The hosts that train together; within the context they stay together.

        Args:
            facts: name -> text that must be the same on all hosts.

        Raises:
            ConfigError: the facts differ.
            HostLost: a host did not come.
        """
        return contextlib.nullcontext(ALONE)

    def train(self, call: TrainCall) -> int:
        """Of a launcher that works elsewhere: trains there; returns the exit status."""
        raise NotImplementedError

    def predict(self, call: PredictCall) -> int:
        """Of a launcher that works elsewhere: answers there, and writes the answers; returns the exit status."""
        raise NotImplementedError

    def trials(self, experiment: Experiment, workers: int, say: Say) -> contextlib.AbstractContextManager[Processes | None]:
        """The processes of a search's trials; None: those of this machine."""
        return contextlib.nullcontext()

    def writers(self, say: Say) -> contextlib.AbstractContextManager[Callable[[Any, Any], Any] | None]:
        """What writes the pieces of prepared data, as `pipelines.task.prepared.here` does; None: this process."""
        return contextlib.nullcontext()


def chosen(command: str) -> Launcher:
    """The launcher of this call of a command (train, tune, predict, prepare).

    Raises:
        ConfigError: two are asked for, or what asks for one is wrong.
    """
    registry.import_extensions()
    asked = {entry.name: launcher for entry in LAUNCHERS.entries() if (launcher := entry.load()(command)) is not None}
    if len(asked) > 1:
        raise ConfigError(f"{command}: {' and '.join(asked)} are both asked for; choose one")
    return next(iter(asked.values()), Launcher())
