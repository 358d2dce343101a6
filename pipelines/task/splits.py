"""The data of one run, divided."""

from dataclasses import dataclass, field
from typing import Any

from pipelines.data.source import Source


@dataclass(frozen=True)
class Splits:
    """The data of one run. Nothing in `facts` was learned from validation or test."""

    train: Source
    validation: Source | None
    test: Source | None
    facts: dict[str, Any] = field(default_factory=dict)  # JSON values: class names, statistics, vocabulary
    skipped: tuple[str, ...] = ()  # examples left out under on_bad_example: skip, each with its reason
    notes: tuple[str, ...] = ()  # for a reader of the report: how splits were made, resized from, ...; said at the start, too, if Warned
    more_skipped: int = 0  # further examples left out, so many that they are not named
