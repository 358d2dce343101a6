"""What the facts of any task hold: the schemas from which a domain makes its own, in its `facts` module. Imports no TensorFlow."""

from typing import Annotated, Any, Literal

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


AnyNumber = Annotated[float, Field(ge=-1e38, le=1e38)]


class TargetFacts(Record):
    """One number that is predicted: `mean` and `std` of train in its unit, `low` and `high` where they are limited, and of the learned
    scale the `centre` and `spread`."""

    name: ClassName
    unit: Annotated[str, Field(max_length=100)] | None = None
    mean: AnyNumber
    std: Annotated[AnyNumber, Field(gt=0)]
    low: AnyNumber | None = None
    high: AnyNumber | None = None
    scale: Literal["linear", "log"]
    centre: AnyNumber
    spread: Annotated[AnyNumber, Field(gt=0)]


class IntervalFacts(Record):
    """Of the intervals around one number; see pipelines.outputs.prediction_intervals."""

    share: Annotated[float, Field(ge=0.5, le=0.99)]
    edges: Annotated[list[AnyNumber], Field(max_length=100)]
    margins: Annotated[list[AnyNumber], Field(min_length=1, max_length=101)]

    @model_validator(mode="after")
    def _bins(self) -> Any:
        if len(self.margins) != len(self.edges) + 1 or self.edges != sorted(self.edges):
            raise ValueError(f"edges: {len(self.edges)}, not ascending or not one less than the margins")
        return self


class NumberFacts(Facts):
    """Facts of a task that predicts numbers."""

    targets: Annotated[list[TargetFacts], Field(min_length=1, max_length=10_000)]
    intervals: list[IntervalFacts] | None = None

    @model_validator(mode="after")
    def _targets(self) -> Any:
        if self.intervals is not None and len(self.intervals) != len(self.targets):
            raise ValueError(f"intervals: {len(self.intervals)} for {len(self.targets)} targets")
        return self


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
