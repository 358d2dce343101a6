"""What tasks share whose answers are places in a text."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipelines.base.formatting import escaped
from pipelines.data.source import Source
from pipelines.task.contract import Task

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class PlaceTask(Task):
    """Facts: those of an encoder.

    Attributes:
        samples: what TensorBoard calls examples with their places.
    """

    samples: ClassVar[str]

    @abstractmethod
    def marked(self, source: Source, numbers: list[int]) -> list[str]:
        """Examples of a source in words, with their places marked."""

    def facts_error(self) -> str | None:
        missing = next((name for name in ("backbone", "tokenizer") if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        """Examples of the source, with their places."""
        numbers = (step * len(inputs) + np.arange(len(inputs))) % len(source)
        writer.text(self.samples, "\n\n".join(escaped(line) for line in self.marked(source, numbers.tolist())), step)
