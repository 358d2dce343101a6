"""What `quartet prepare` keeps of a task's data."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.data.source import Source
from pipelines.task.splits import Splits

# settings on which neither `splits` nor what it learns depends, whatever the task
NOT_IN_DATA = ("train", "evaluate", "monitor", "tune", "seeds", "loss", "data.prepared", "data.cache", "data.cache_folder", "data.workers",
               "model.weights", "model.finetune", "model.dropout")


@dataclass
class PreparedForm:
    """The examples of the splits as they are stored, with the facts; what an input keeps otherwise, it says here."""

    input: Any  # an `input.Input`

    @property
    def settings_not_in_data(self) -> tuple[str, ...]:
        """Settings on which neither `splits` nor what it learns depends: data that were prepared serve whatever they are."""
        return NOT_IN_DATA

    @property
    def own_writer(self) -> Callable[[Path], None] | None:
        """What writes the data into a folder in a form of the input's own, from which `splits` reads them where data.prepared names it."""
        return None

    def extras(self, source: Source) -> dict[str, list[str]]:
        """What is kept of each example beside the example itself, for `from_prepared`."""
        return {}

    def from_prepared(self, splits: Splits) -> Splits:
        """The splits as `splits` would give them, from those that were prepared; their sources are pipelines.data.shards.ShardSource."""
        return splits
