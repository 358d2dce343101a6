"""Columns of numbers that are to be predicted: read with errors that name the line, the column and the value."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.config.messages import listed, show
from pipelines.data.columns import number_of
from pipelines.data.source import Source
from pipelines.data.tables import column, row

TARGET = "target"  # the entry of an example that holds its numbers, [columns] float32, NaN where one is missing
EMPTY = {"", "na", "n/a", "nan", "null", "none"}  # cells without a number, in any case

AnySource = TypeVar("AnySource", bound=Source)


@dataclass(frozen=True)
class NumberColumns:
    """The columns of data.label_key, and what is possible in each.

    Attributes:
        low, high: of each column; None: anything.
    """

    names: tuple[str, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    @classmethod
    def of(cls, key: Any, low: Any = None, high: Any = None) -> "NumberColumns":
        """Of the settings: a column or several, and of each limit one value for all, or a list."""
        names = tuple(map(str, key if isinstance(key, (list, tuple)) else [key]))
        return cls(names, *(tuple(value) if isinstance(value, list) else (value,) * len(names) for value in (low, high)))

    @classmethod
    def asked(cls, experiment: Any) -> "NumberColumns | None":
        """Of an experiment; None where it has no `target`, so that no number is predicted."""
        target = getattr(experiment, "target", None)
        return None if target is None else cls.of(experiment.data.label_key, target.low, target.high)

    def read(self, values: Sequence[Sequence[Any]], place: Callable[[int], str]) -> np.ndarray:
        """Numbers [n, columns] float32, NaN where a cell is empty.

        Args:
            values: of each column.
            place: the name of a row, such as `file:line`.

        Raises:
            DataError: text that is no number, or a number outside its limits.
        """
        return np.stack([np.array([self._number(which, cell, place, number) for number, cell in enumerate(cells)], np.float32)
                         for which, cells in enumerate(values)], 1)

    def in_table(self, table: pa.Table, path: Path) -> np.ndarray:
        """As `read`, of the columns of a table."""
        cells = [column(table, name, path, "data.label_key").to_pylist() for name in self.names]
        return self.read(cells, lambda number: row(path, number))

    def in_array(self, values: Any, place: str) -> np.ndarray:
        """As `read`, of an array [n] or [n, columns]; `place` is its name in messages."""
        rows = np.asarray(values)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise DataError(f"{place}: has the shape {list(np.shape(values))}; [n, {len(self.names)}] is asked for, a column for each of "
                            f"{listed(self.names, 'and')} (data.label_key)")
        return self.read(rows.T.tolist(), lambda number: f"{place}[{number}]")

    def _number(self, which: int, cell: Any, place: Callable[[int], str], number: int) -> float:
        if isinstance(cell, bytes):
            cell = cell.decode("utf-8", "replace")
        if cell is None or (isinstance(cell, str) and cell.strip().lower() in EMPTY) or (isinstance(cell, float) and math.isnan(cell)):
            return math.nan
        value = number_of(cell)
        if value is None or isinstance(cell, (list, dict)):
            raise DataError(f"{place(number)}: {show(cell)} in column {self.names[which]} (data.label_key) is no number")
        for limit, sign, name in ((self.low[which], 1, "low"), (self.high[which], -1, "high")):
            if limit is not None and sign * value < sign * limit:
                raise DataError(f"{place(number)}: {value:g} in column {self.names[which]} is {'below' if sign > 0 else 'above'} "
                                f"target.{name}, {limit:g}; repair the row, or the limit")
        return value


def without_targets_left_out(load: Callable[[str], AnySource], names: Sequence[str], notes: list[str]) -> Callable[[str], AnySource]:
    """`load` without the examples that have none of their numbers; what is missing is counted in the notes."""

    def loaded(split: str) -> AnySource:
        source = load(split)
        assert source.number_targets is not None
        missing = np.isnan(source.number_targets)
        empty, columns = missing.all(1), listed(names, "and")
        if empty.all():
            raise DataError(f"{source.name(0)} and the rest: not one has a number in {columns} (data.label_key)")
        if empty.any():
            notes.append(f"{split}: {empty.sum():,} of {len(empty):,} examples have no number in {columns}, and are left out")
        if (some := int(missing[~empty].any(1).sum())):
            notes.append(f"{split}: {some:,} of {len(empty):,} examples lack some of {columns}: the others count in loss and metrics")
        return source.subset(np.flatnonzero(~empty)) if empty.any() else source  # type: ignore[return-value]

    return loaded
