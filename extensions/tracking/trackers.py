"""What a tracker does for the process that follows a run; each one's package is imported when it is opened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class Order:
    """What is to be tracked.

    Attributes:
        tracker: `mlflow` or `wandb`.
        folder: of the run.
        project: `vision/digits`.
        name: the run's.
        server: its address, or None: as the tracker's own environment variables say.
        files: the report's files are sent, too.
        seconds: that the end of the run may wait, s.
        began: when this process began to train, s since 1970; None: now.
    """

    tracker: Literal["mlflow", "wandb"]
    folder: str
    project: str
    name: str
    server: str | None = None
    files: bool = True
    seconds: float = 30.0
    began: float | None = None


class Tracker(Protocol):
    """A run as a tracker has it. Every method raises what its package raises."""

    id: str
    place: str  # where a person finds it

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Lines of metrics.jsonl, in their order."""

    def finish(self, status: Status, metrics: Mapping[str, float], files: Mapping[Path, str], step: int) -> None:
        """The end of a process: what the report says, its files (with the folder of each there), and how it ended."""


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a line: its numbers, less what says when they were measured."""
    return {name: float(value) for name, value in row.items()
            if name not in ("step", "epoch", "time_s") and isinstance(value, (int, float)) and not isinstance(value, bool)}
