"""What the facts of any task hold: the schemas from which a domain makes its own, in its `facts` module. Imports no TensorFlow."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from pipelines.base.stored import Count, Name, Record, Text

ClassName = Annotated[str, Field(max_length=1000)]
Moment = Annotated[float, Field(ge=-1e9, le=1e9)]  # a mean or a deviation


class Described(Record):
    """A split as the facts describe it."""

    examples: Count
    fingerprint: Text = ""
    classes: dict[ClassName, Count] = {}


class Facts(Record):
    """Facts of any task."""

    splits: dict[Name, Described] = {}


class ClassFacts(Facts):
    """Facts of a task that chooses among classes; `thresholds` of each, where an example may have several."""

    classes: Annotated[list[ClassName], Field(min_length=1, max_length=10_000_000)]
    class_counts: list[Count] | None = None
    thresholds: list[Annotated[float, Field(ge=-1.0, le=2.0)]] | None = None

    @model_validator(mode="after")
    def _classes(self) -> Any:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: a name is there twice")
        for name in ("class_counts", "thresholds"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != len(self.classes):
                raise ValueError(f"{name}: {len(numbers)} numbers for {len(self.classes)} classes")
        return self
