"""A data set as it was opened: its own splits by name, nothing divided yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.messages import listed
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


def check_columns(splits: Mapping[str, Mapping[str, Any]], wanted: Sequence[str], source: str) -> None:
    """Checks what a registered source returned: split -> column -> values, an entry for each example.

    Raises:
        DataError: no splits, a split without one of the `wanted` columns, or columns of unequal lengths.
    """
    if not isinstance(splits, Mapping) or not splits or not all(isinstance(columns, Mapping) for columns in splits.values()):
        raise DataError(f"source {source}: returned {type(splits).__name__}; a source returns columns by split, such as "
                        f'{{"all": {{{", ".join(f"{name!r}: ..." for name in wanted)}}}}}')
    for split, columns in splits.items():
        missing = next((name for name in wanted if name not in columns), None)
        if missing:
            raise DataError(f"source {source}: split {split} has no {missing!r}; there are {listed(columns, 'and')}")
        if len({len(columns[name]) for name in wanted}) > 1:
            raise DataError(f"source {source}: split {split}: {', '.join(f'{len(columns[name]):,} of {name}' for name in wanted)}")


def without(source: AnySource, bad: Sequence[tuple[int, str]], skipped: list[str]) -> AnySource:
    """The source without its unreadable examples, (number, reason), which are named in `skipped`."""
    if not bad:
        return source
    skipped.extend(f"{source.name(number)}: {reason}" for number, reason in bad)
    return source.subset(np.setdiff1d(np.arange(len(source)), [number for number, _ in bad]))  # type: ignore[return-value]
