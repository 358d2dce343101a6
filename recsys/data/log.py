"""Interactions as arrays, an entry each, and the ids as they were given.

A log of interactions written as it was read, and mapped from there: what `quartet prepare` keeps of a recommendation experiment.

A table is parsed once, ids are counted once; what is divided and learned from a log is computed at each start, in memory, by the split
that the experiment asks for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.files import write_json
from pipelines.base.stored import Count, Record, Text, read
from pipelines.data.tables import line_numbers, rows
from pipelines.data.text_rows import split_files


@dataclass(frozen=True)
class Ids:
    """Ids by number from 0, as given: [count] int64, or texts."""

    values: np.ndarray

    @property
    def numeric(self) -> bool:
        """Whether the ids are whole numbers."""
        return self.values.dtype.kind == "i"

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Log:
    """Interactions, an entry each.

    Attributes:
        users, items: [n] int32 numbers of `user_ids`, `item_ids`; None where the data have none (clicks without ids).
        ratings: [n] float32, or None.
        times: [n] float64, seconds since 1970 (or whatever the data count in), or None.
        parts: [n] text, the data's own split of each, or None.
        features: the feature columns of the interactions.
        item_table, user_table: the tables of items and users, or None; with their id columns.
        rows: [n] int32 or int64 (see `index_type`), place of each in the file, from 0.
        place: what the data are called.
        skipped: rows left out as unreadable, each with its reason; of more than 1,000 the first.
        left_out: how many rows were.
        lines: [rows of the file] the line of each, by its place; None where places tell it.
        notes: what a reader should know.
        digest: a short hash that changes when the data do.
        propensities: [n] float64, above 0 and at most 1: how probable the logged choice was, or None.
    """

    users: np.ndarray | None
    items: np.ndarray | None
    user_ids: Ids | None
    item_ids: Ids | None
    ratings: np.ndarray | None
    times: np.ndarray | None
    parts: np.ndarray | None
    features: pa.Table
    item_table: pa.Table | None
    user_table: pa.Table | None
    rows: np.ndarray
    place: str
    path: Path | None = None
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    header: bool = True  # the file has a header row
    left_out: int = 0
    lines: np.ndarray | None = None
    propensities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def in_time(self) -> np.ndarray:
        """[n] int32 or int64: the events ordered by user, then time, then row (of equal times the order of the data decides)."""
        in_order = not np.any(self.rows[1:] < self.rows[:-1])  # then a stable sort leaves them so
        keys = [*([] if in_order else [self.rows]), *(key for key in (self.times, self.users) if key is not None)]
        order = np.lexsort(keys) if keys else np.arange(len(self))
        return order.astype(index_type(len(self)))

    def take(self, keep: np.ndarray) -> "Log":
        """The interactions `keep` (numbers or truth values), in that order; ids stay as they are numbered."""
        numbers = np.flatnonzero(keep) if keep.dtype == bool else keep

        def of(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[numbers]

        features = self.features.take(pa.array(numbers)) if self.features.num_columns else self.features
        taken = replace(
            self,
            users=of(self.users),
            items=of(self.items),
            ratings=of(self.ratings),
            times=of(self.times),
            parts=of(self.parts),
            propensities=of(self.propensities),
            features=features,
            rows=self.rows[numbers],
        )
        if keep.dtype == bool and "in_time" in self.__dict__:  # sorted already; what is taken stands in the same order
            places = np.cumsum(keep, dtype=self.in_time.dtype) - 1
            taken.__dict__["in_time"] = places[self.in_time[keep[self.in_time]]]
        return taken

    def name(self, number: int) -> str:
        """What a person calls an interaction: the row of the file, which is read whole the first time."""
        lines = self.lines if self.lines is not None or self.path is None else line_numbers(self.path, header=self.header)
        return row_names(self.path, self.place, self.header, lines, [int(self.rows[number])])[0]


def index_type(count: int) -> type[np.int32] | type[np.int64]:
    """The narrower type that counts so many: 100 million places take 0.4 GB."""
    return np.int32 if count < 2**31 else np.int64


def row_names(path: Path | None, place: str, header: bool, lines: np.ndarray | None, numbers: Sequence[int]) -> list[str]:
    """What rows are called, by their place in the file."""
    if path is None:
        return [f"{place}[{number}]" for number in numbers]
    if lines is None:
        return rows(path, numbers, header=header)
    if path.is_dir():  # lines begin anew with each file
        files, starts = list(split_files(path).values()), np.flatnonzero(np.diff(lines) <= 0) + 1
        return [f"{files[int(np.searchsorted(starts, number, 'right'))]}:{lines[number]}" for number in numbers]
    return [f"{path}:{lines[number]}" if number < len(lines) else f"{path}, row {number + 1}" for number in numbers]


ARRAYS = ("users", "items", "ratings", "times", "parts", "rows", "lines", "propensities")
IDS = ("user_ids", "item_ids")
TABLES = ("features", "item_table", "user_table")


class Described(Record):
    """log.json."""

    place: Text
    path: Text | None
    skipped: list[Text]
    notes: list[Text]
    digest: Text
    header: bool
    left_out: Count
    there: list[Text]
    objects: list[Text]  # arrays that hold texts as Python objects


def write_log(log: Log, folder: Path) -> None:
    """Writes a log into a folder. Raises OSError where the disk is full."""
    there = [name for name in (*ARRAYS, *IDS, *TABLES) if getattr(log, name) is not None]
    objects = []
    for name in there:
        value = getattr(log, name)
        if name in TABLES:
            with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, value.schema) as writer:
                writer.write_table(value)
        else:
            array = value.values if isinstance(value, Ids) else value
            if array.dtype == object:
                objects.append(name)
                array = array.astype(str)
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    write_json(folder / "log.json", {
        "place": log.place, "path": None if log.path is None else str(log.path), "skipped": list(log.skipped), "notes": list(log.notes),
        "digest": log.digest, "header": log.header, "left_out": log.left_out, "there": there,
        "objects": objects})


def load_log(folder: Path) -> Log:
    """The log that `write` wrote, its arrays mapped. Raises ConfigError or DataError that names the file."""
    described = read(folder / "log.json", Described)
    values: dict[str, Any] = {}
    for name in described.there:
        path = folder / f"{name}.{'arrow' if name in TABLES else 'npy'}"
        try:
            if name in TABLES:
                values[name] = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
                values[name].validate(full=True)
            else:
                values[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}; copy the folder again, or write it anew "
                            "(quartet prepare)") from error
    for name in described.objects:
        values[name] = values[name].astype(object)
    for name in IDS:
        if name in values:
            values[name] = Ids(values[name])
    stored: dict[str, Any] = {name: values.get(name) for name in (*ARRAYS, *IDS, *TABLES)}
    return Log(**stored, place=described.place,
               path=Path(described.path) if described.path else None, skipped=tuple(described.skipped), notes=tuple(described.notes),
               digest=described.digest, header=described.header, left_out=described.left_out)
