"""A table as `quartet new` inspects it: its columns with their facts, the reader's settings, and the rows it could not read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.config.messages import listed
from pipelines.config.schema import Data
from pipelines.data import columns
from pipelines.data.columns import Facts, by_name, fit, number_of, role_of, split_values
from pipelines.data.dialect import TEXT, ending, find_dialect
from pipelines.data.opened import SPARED
from pipelines.data.tables import LeftOut, is_table, one_hot, read_table, row
from pipelines.data.walk import FOLDERS, PassedOver, folders_in, hidden, pattern_of_files

MOST_SKIPPED = float(Data.model_fields["most_skipped"].default)
MOST = 5000  # columns that are looked at
COMMENTS = {  # to the settings that `new` writes
    "on_bad_example": "some rows cannot be used: `quartet check` lists them", "encoding": "guessed: see that accents come out right",
    "columns": "the file has no header row: these are its columns", "label_pattern": "finds the class in a file's name",
    "group_pattern": "finds the person, scene or device in a file's name", "file_pattern": "where the files lie, from the table's folder"}


@dataclass
class Frame:
    """The columns of a table.

    Attributes:
        path: the file.
        values: name -> values; in a file without a header row the names are positions, from "0".
        header: whether the file names its columns.
        settings: of the data section, so that training reads the same: encoding, delimiter.
        lost: rows that cannot be read.
    """

    path: Path
    values: dict[str, Sequence[Any]]
    header: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    lost: LeftOut = field(default_factory=LeftOut)
    table: pa.Table | None = None

    def __post_init__(self) -> None:
        check_width(self.path, len(self.values))

    @cached_property
    def facts(self) -> dict[str, Facts]:
        """Of each column."""
        return {name: columns.facts_of(values) for name, values in self.values.items()}

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.values)

    @property
    def rows(self) -> int:
        """Rows read."""
        return len(next(iter(self.values.values()), ()))

    def named(self, roles: Mapping[str, str | None]) -> tuple[dict[str, str], list[str] | None]:
        """(role -> the column's name in the experiment, the names to give to data.columns where the file names none)."""
        there = {role: name for role, name in roles.items() if name is not None}
        if self.header:
            return there, None
        by_place = {name: role for role, name in there.items()}
        names = [by_place.get(name, f"column{name}") for name in self.names]
        return {role: role for role in there}, names

    def sample(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Some 50 values of each column as text, spread evenly."""
        return {name: [str(value).strip() for value in self.values[name][:: max(1, self.rows // 50)] if value is not None]
                for name in names}

    def keep_as_written(self, name: str) -> None:
        """Reads a column of whole numbers of a text file as text: 007 stays 007."""
        if ending(self.path) in TEXT and self.table is not None and pa.types.is_integer(self.table[name].type):
            names = None if self.header else self.names
            table = read_table(self.path, text=[name], names=names, left_out=LeftOut(), encoding=self.settings.get("encoding"))
            self.values = {**self.values, name: table[name].to_pylist()}

    def passed_over(self) -> str | None:
        """A note on the number of unreadable rows, with a reason."""
        if not self.lost.count:
            return None
        reason = self.lost.reasons[0] if self.lost.reasons else ""
        hint = "; a value with the delimiter in it needs quotation marks" if "fields where" in reason and "quotation" not in reason else ""
        total = self.rows + self.lost.count
        return (f"Passed over: {self.lost.count:,} of {total:,} rows that cannot be read, such as {reason}{hint}."
                f"{stops_at(self.lost.count, total)}")


def stops_at(count: int, rows: int) -> str:
    """What is said where training would stop at so many unreadable rows; else empty."""
    return (" Training stops at so many: see data.delimiter, data.quote and data.encoding, or raise data.most_skipped."
            if count > max(SPARED, MOST_SKIPPED * rows) else "")


def check_width(path: Path, columns: int) -> None:
    """Raises DataError for more columns than are looked at."""
    if columns > MOST:
        raise DataError(f"{path}: has {columns:,} columns or more, of which no more than {MOST:,} are looked at: keep those that matter, "
                        "or write the experiment by hand")


def tables_in(folder: Path) -> list[Path]:
    """The tables in a folder, one of train first."""
    tables = [entry for entry in folder.iterdir() if is_table(entry) and not hidden(entry.name) and entry.is_file()]
    return sorted(sorted(tables), key=lambda entry: role_of(entry.stem.partition("_")[0]) != "train")


def tables_for(folder: Path) -> list[Path]:
    """The tables in a folder, and those in the folders in it, such as meta/ beside audio/."""
    return [table for place in (folder, *folders_in(folder, PassedOver())[:FOLDERS]) for table in tables_in(place)]


def files_there(frame: Frame, column: str, pattern: str | None) -> bool:
    """Whether at least half of the first files that a column names are there."""
    values = [str(value) for value in frame.values[column][:50]]
    return sum((frame.path.parent / (pattern or "{}").replace("{}", value)).is_file() for value in values) * 2 >= len(values)


def missing_files(path: Path, column: str, missing: Path) -> DataError:
    """The error for a table whose files are not where they are looked for."""
    return DataError(f"{path}: column {column} names {missing}, which is not there; files are looked for from the table's folder on, in "
                     "the folders in it and beside it. --files PATTERN says where they lie, with {} for the column's value: "
                     "--files '../images/{}.jpg'")


def open_frame(path: Path) -> Frame:
    """Reads a table of any dialect. Raises DataError where it cannot be read."""
    lost, settings, names, encoding = LeftOut(), dict[str, Any](), None, None
    if ending(path) in TEXT:
        if not path.stat().st_size:
            raise DataError(f"{path} is empty")
        how = find_dialect(path)
        check_width(path, how.width)
        if not how.encoding.startswith("utf-8") and how.encoding not in ("utf-16", "utf-32"):
            settings["encoding"] = encoding = how.encoding
        if not how.header:
            names = [str(place) for place in range(how.width)]
    table = read_table(path, names=names, left_out=lost, encoding=encoding)
    values = {name: table[name].to_pylist() for name in table.column_names}
    return Frame(path, values, names is None, settings, lost, table)


def file_column(frame: Frame, asked: Asked, endings: Sequence[str], *, unread: Sequence[str] = (),
                by_name_alone: bool = False) -> tuple[str | None, str | None]:
    """(the column that names files, data.file_pattern where they lie in a folder beside the table or lack their ending).

    Args:
        endings: of the files that are looked for, in lower case; `unread` are those of files that are named but cannot be read.
        by_name_alone: a column may be called like one of files though no such files are there.
    """
    own, folder, pattern = asked.column("file", frame.names, frame.path), frame.path.parent, asked.pattern()
    values = frame.sample([own] if own else frame.names)

    def share(name: str) -> float:
        return sum(value.lower().endswith((*endings, *unread)) for value in values[name]) / max(1, len(values[name]))

    best = max(values, key=share, default=None)
    if best is None:
        return None, None
    named = by_name(frame.names, ["file"]).get("file")
    known = own is not None or share(best) > 0.5
    best = best if known else named or frame.names[0]  # values without an ending name files where such files are there
    frame.keep_as_written(best)
    values = frame.sample([best])
    if pattern:
        return best, pattern
    if known and sum((folder / value.replace("\\", "/")).is_file() for value in values[best]) * 2 >= len(values[best]):
        return best, None
    pattern = pattern_of_files(folder, values[best], ("", *endings))
    return (best, pattern) if known or pattern or (by_name_alone and best == named) else (None, None)


def split_column(values: Mapping[str, Sequence[Any]], own: str | None, path: Path, asked: Asked,
                 ) -> tuple[str | None, dict[str, str | None]]:
    """(the column that divides the data, role -> its value); (None, {}) where none does.

    Raises:
        DataError: the column named by the user does not divide the data.
    """
    if asked.absent("split"):
        return None, {}
    for name in [own] if own else sorted(values, key=lambda name: (fit(name, "split") is None, list(values).index(name))):
        parts = split_values("fold" if own else name, values[name])
        if parts is not None:
            return name, parts
    if own:
        some = list(dict.fromkeys(str(value) for value in values[own]))[:6]
        raise DataError(f"--split: column {own} of {path} holds {listed(some, 'and')}; needed are train, validation and test, or numbers "
                        "of folds")
    return None, {}


def in_both(groups: Sequence[Any], parts: Sequence[str | None]) -> int:
    """Groups of train that are in another part, too."""
    train = {str(group) for group, part in zip(groups, parts) if part == "train"}
    return len(train & {str(group) for group, part in zip(groups, parts) if part != "train"})


def label_values(frame: Frame, label: str | Sequence[str]) -> list[str]:
    """The label of each row as text, from one column or from several that hold 1 where they apply: of several labels with ; between."""
    if isinstance(label, str):
        return [str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip() for value in frame.values[label]]
    rows = list(zip(*([number_of(value) for value in frame.values[name]] for name in label)))
    if all(set(values) <= {0, 1} for values in rows) and any(sum(values) != 1 for values in rows):
        return [";".join(name for name, value in zip(label, values) if value) for values in rows]
    return one_hot({name: frame.values[name] for name in label}, lambda number: row(frame.path, number))


def label_column(path: Path, facts: Mapping[str, Facts], values: Mapping[str, Sequence[Any]], *, most: float, what: str, asked: Asked,
                 roles: Sequence[str] = ("label",)) -> str | list[str]:
    """The column of a table that holds the labels: the one asked for, one so named, or else the only one with few values; or the columns
    of which one holds 1 in each row.

    Args:
        facts: of the columns that may be it.
        values: of these and others.
        most: share of the rows up to which values are few.
        what: the word for a label in messages.
        roles: whose names such a column may have, the likeliest first.

    Raises:
        DataError: none or several could be it, or it has one value only.
    """
    several = asked.several("label", list(facts), path)
    if several is not None and len(several) > 1:
        return several
    label = several[0] if several else None
    few = [name for name, one in facts.items() if one.few(most)]
    usable = [name for name, one in facts.items() if one.kind in ("number", "text", "list", "other") and one.present]
    marks = [name for name, one in facts.items() if one.kind == "number" and one.whole and one.low >= 0 and one.high == 1
             and one.distinct == 2]
    if label is None and len(marks) > 2 and all(sum(number_of(value) or 0 for value in row) == 1 for row in zip(
            *(values[name] for name in marks))):
        return marks
    for role in roles:
        label = label or by_name([name for name in usable if name in few or facts[name].distinct == 1 or facts[name].kind == "list"],
                                 [role]).get(role) or by_name(usable, [role]).get(role)
    if label is None and (len(few) == 1 or len(usable) == 1):
        label = (few or usable)[0]
    if label is None and len(marks) > 2 and len(marks) == len(few):
        return marks
    if label is None:
        there = f"it may be {listed(few)}" if few else f"there are {listed(facts, 'and')}" if facts else "there are no other columns"
        raise DataError(f"{path}: which column holds the {what} is not clear ({there}); name it with --label")
    if facts[label].distinct < 2:
        raise DataError(f"{path}: column {label} has one value only; a classifier needs two or more classes")
    return label
