"""A data set as it was opened: its own splits by name, nothing divided yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.messages import listed
from pipelines.config.schema import Data
from pipelines.data.source import Source

AnySource = TypeVar("AnySource", bound=Source)
LENIENT: Mapping[str, Any] = {"on_bad_example": "skip", "most_skipped": 1.0}  # settings by which `quartet check` lists all bad examples
SPARED = 3  # examples that may be lost of the smallest data


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


def check_skipped(reasons: Sequence[str], examples: int, data: Data, place: str, count: int | None = None) -> None:
    """Raises DataError, which shows three, where more of the `examples` in a place cannot be read than data.most_skipped allows.

    Args:
        reasons: of each example that cannot be read, or of the first of `count`.
    """
    count = len(reasons) if count is None else count
    if count > max(SPARED, data.most_skipped * examples):
        raise DataError(f"{place}: {count:,} of {examples:,} examples cannot be read, more than data.most_skipped allows "
                        f"({data.most_skipped:g}): {'; '.join(reasons[:3])}. Repair them; where a table is read in a wrong form set "
                        "data.delimiter, data.quote or data.encoding; or raise data.most_skipped")


def without(source: AnySource, bad: Sequence[tuple[int, str]],
            skipped: list[str], data: Data | None = None, place: str = "") -> AnySource:
    """The source without its unreadable examples, (number, reason), which are named in `skipped`. With `data`, raises DataError where they
    are more than its settings allow."""
    if not bad:
        return source
    reasons = [f"{source.name(number)}: {reason}" for number, reason in bad]
    if data is not None:
        check_skipped(reasons, len(source), data, place)
    skipped.extend(reasons)
    return source.subset(np.setdiff1d(np.arange(len(source)), [number for number, _ in bad]))  # type: ignore[return-value]
