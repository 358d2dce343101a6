"""tracking.json: under which id a run is known to a tracker, and how far it was sent, so that a resumed run continues there.

No address stands in it: where a run is sent is said by the experiment and the environment, never by a file that may be a stranger's.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipelines.base import stored
from pipelines.base.files import write_json

FILE = "tracking.json"


class Record(stored.Record):
    """The content of tracking.json. Steps are counted from 1; of a step, the line of an epoch comes after its own."""

    tracker: Literal["mlflow", "wandb"]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
    step: stored.Count = 0
    epoch: bool = False  # the line of the epoch that ended with this step was sent, too

    def sent(self, row: dict) -> bool:
        """Whether a line of metrics.jsonl was sent already."""
        return (row["step"], of_epoch(row)) <= (self.step, self.epoch)


def of_epoch(row: dict) -> bool:
    """Whether a line of metrics.jsonl is that of an epoch."""
    return any(name.startswith("epoch/") for name in row)


def read(folder: Path) -> Record | None:
    """Of a run; None where it was not tracked. Raises ConfigError for a damaged file."""
    file = folder / FILE
    return stored.read(file, Record) if file.is_file() else None


def write(folder: Path, record: Record) -> None:
    """Raises OSError as the system gives it."""
    write_json(folder / FILE, record.model_dump(), plain=True)
