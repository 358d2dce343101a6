"""A hook that an extension brings: it listens to the loop of a run, is told how the run ended, and may describe the data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.config.schema import Experiment
from pipelines.data.divide import Splits
from pipelines.runs.folder import RunFolder
from pipelines.task.contract import Task
from pipelines.training.loop import Hook

Status = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class HookedRun:
    """The run that a hook belongs to.

    Attributes:
        name: the experiment's: vision/digits.
        private: nothing that the run's files hold may be shown or sent elsewhere, as they are encrypted.
        note: called with a sentence for the person who watches.
        warn: called with a warning, which stands in the report, too.
    """

    experiment: Experiment
    folder: RunFolder
    name: str
    task_class: type[Task]
    private: bool
    note: Callable[[str], None]
    warn: Callable[[str], None]


class RunHook(Hook):
    """Made before any work, once for each process that trains a run, by the chief of several hosts alone, and not for the trials of a
    search. `on_start` comes when the logs are open, `ended` after the report. A hook changes nothing of the training, and none of its
    methods may raise but the constructor.

    Raises:
        ConfigError: from the constructor, where what its settings ask for is not installed; the run then does not begin.
    """

    def __init__(self, run: HookedRun):
        self.run = run

    @classmethod
    def describe_data(cls, experiment: Experiment, splits: Splits, name: str) -> dict[str, Any]:
        """Name of a file -> JSON value, written into the run and beside the findings of `quartet check`.

        Raises:
            QuartetError, OSError: the data cannot be described; a remark says so, and the run goes on.
        """
        return {}

    def ended(self, status: Status, report: dict[str, Any]) -> None:
        """The run's process ends; `report` as report.json holds it, empty where the run is not finished."""
