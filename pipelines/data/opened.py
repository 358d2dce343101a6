"""A data set as it was opened: its own splits by name, nothing divided yet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipelines.data.source import Source

AnySource = TypeVar("AnySource", bound=Source)


@dataclass
class Opened(Generic[AnySource]):
    """A data set before it is divided.

    Attributes:
        place: its name in messages.
        names: its own splits; a single name means that the data come in one piece.
        load: gives the source of one of them.
        classes: class names, where the source numbers them; complete once every split that is used was loaded.
        notes, skipped: for the report.
    """

    place: str
    names: list[str]
    load: Callable[[str], AnySource]
    classes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
