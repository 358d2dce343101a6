"""Tables on disk - CSV, TSV, JSON lines, Parquet - read whole, and what their columns hold, with errors that name the row.

A row is named by its line in a text file (the header is line 1), and counted from 1 in Parquet.
"""

import contextlib
import functools
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular, other_kind
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.schema import TableData
from pipelines.data.columns import number_of
from pipelines.data.dialect import JSON_LINES, PARQUET, SUFFIXES, TEXT, ending
from pipelines.data.divide import ALIASES
from pipelines.data.table_formats import NAMED as NAMED
from pipelines.data.table_formats import LeftOut as LeftOut
from pipelines.data.table_formats import dialect_of, read_csv, read_json
from pipelines.data.text_rows import records, records_as


def is_table(path: Path) -> bool:
    """Whether a file's name ends like a table's; `.txt`, which is usually a text, does not count."""
    return ending(path) in SUFFIXES and ending(path) != ".txt"


def read_table(path: str | Path, *, text: Collection[str] = (), names: Sequence[str] | None = None, left_out: LeftOut | None = None,
               delimiter: str | None = None, encoding: str | None = None, quote: str | None = None,
               beside: Sequence[Path] = ()) -> pa.Table:
    """The whole table. CSV and its like need a header row, or `names`.

    Args:
        path: the format is that of the ending, one of SUFFIXES; `.csv.gz` and its like are unpacked.
        text: columns to read as text whatever they look like (`007` stays `007`, `NA` stays `NA`); missing ones are ignored.
        names: the columns of a CSV or TSV file that has no header row; its first row is then data.
        left_out: rows with too few or too many fields, and lines that are not a JSON object or whose values differ in kind from those
            of most lines, are omitted and counted here, instead of raising.
        delimiter: of the fields of a text table; None to detect it.
        encoding: of a text table; None for UTF-8, or that of a byte order mark.
        quote: around fields of a text table: `"`, `'` or "none"; None to detect it.
        beside: further files of the same table, by whose rows the form is detected, too.

    Raises:
        DataError: names the file and the line of what cannot be read.
    """
    path = Path(path)
    suffix = ending(path)
    if not path.is_file():
        check_regular(path)
        raise DataError(f"{path} does not exist")
    try:
        if suffix in TEXT:
            table = read_csv(path, dialect_of(path, delimiter, encoding, quote, beside=beside), text, names, left_out)
        elif suffix in JSON_LINES:
            table = read_json(path, left_out)
        elif suffix in PARQUET:
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
        else:
            raise DataError(f"{path}: a table is .csv, .tsv, .jsonl or .parquet, not {path.suffix or 'a file without ending'}")
    except (pa.ArrowException, OSError, EOFError, MemoryError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if repeated:
        raise DataError(f"{path} has more than one column named {min(repeated)!r}")
    return table


def column(table: pa.Table, name: str, path: str | Path, setting: str) -> pa.ChunkedArray:
    """A column by name.

    Raises:
        DataError: it is missing; names the existing ones, the nearest, and the setting that named it.
    """
    if name in table.column_names:
        return table[name]
    there = table.column_names
    raise DataError(f"{path} has no column {name!r} ({setting}); there are {listed(there, 'and')}{did_you_mean(name, there)}")


def values_of(table: pa.Table, name: str, path: str | Path, setting: str) -> list[str]:
    """A column of labels, groups or names as text without surrounding blanks; whole floats lose their point.

    Raises:
        DataError: a row without value, or a value that is not a name (a list, a fraction).
    """
    values = []
    for number, value in enumerate(column(table, name, path, setting).to_pylist()):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if value is None or (isinstance(value, str) and not value.strip()) or value != value:
            raise DataError(f"{row(path, number)}: no value in column {name} ({setting})")
        if isinstance(value, (float, list, dict)):
            raise DataError(f"{row(path, number)}: {value!r} in column {name} ({setting}) is not a name or whole number")
        values.append(str(value).strip())
    return values


def split_names(values: Sequence[str], data: TableData) -> list[str]:
    """The split of each row of data.split_key. Where none is called train (folds), the values that data.test and data.validation name
    are held out, and all others are train."""
    distinct = set(values)
    held = {value for value in (data.validation, data.test) if isinstance(value, str)} & distinct
    if not held or any(value.lower() in ALIASES["train"] for value in distinct):
        return list(values)
    return [value if value in held else "train" for value in values]


def one_hot(columns: Mapping[str, Sequence[Any]], place: Callable[[int], str]) -> list[str]:
    """For each row the name of the one column that holds 1, the others 0. Raises DataError that names a row without exactly one."""
    names = list(columns)
    labels = []
    for number, values in enumerate(zip(*columns.values())):
        ones = [name for name, value in zip(names, values) if number_of(value) == 1]
        if len(ones) != 1:
            raise DataError(f"{place(number)}: {'none' if not ones else listed(ones, 'and')} of {listed(names, 'and')} is 1; exactly one "
                            "must be (data.label_key)")
        labels.append(ones[0])
    return labels


def labels_of(table: pa.Table, key: str | Sequence[str], path: str | Path) -> list[str]:
    """The label of each row, from data.label_key: one column, or several of which one holds 1. Raises DataError as values_of does."""
    if isinstance(key, str):
        return values_of(table, key, path, "data.label_key")
    return one_hot({name: column(table, name, path, "data.label_key").to_pylist() for name in key}, lambda number: row(path, number))


def file_paths(values: Sequence[Any], path: Path, pattern: str | None, what: str) -> list[Path]:
    """The files that a column names, from the table's folder; with data.file_pattern its {} holds the value.

    Raises:
        DataError: a row that names none; `what` is the column with its setting.
    """
    files = []
    for number, value in enumerate(values):
        if isinstance(value, int) and pattern:
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{row(path, number)}: no file named in column {what}")
        file = path.parent / (pattern.replace("{}", value.strip()) if pattern else value.strip())
        if "\\" in value and not file.exists():  # written on Windows
            file = Path(str(file).replace("\\", "/"))
        files.append(file)
    return files


def absent_files(files: Sequence[Path], path: Path, *, skip: bool) -> dict[int, str]:
    """The rows of a table whose file is not there: number -> what the report says of it.

    Raises:
        DataError: there are such rows, and `skip` is off; names the first and the remedy.
    """
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    if missing and not skip:
        more = f" ({len(missing) - 1:,} more rows name missing files)" if len(missing) > 1 else ""
        first = files[missing[0]]
        raise DataError(f"{row(path, missing[0])}: {first} is {other_kind(first) or 'not there'}{more}; relative paths start at the "
                        f"table's folder, {path.parent.resolve()}. Repair the row, or set data.on_bad_example: skip")
    return {number: f"{files[number]}: {other_kind(files[number]) or 'not there'} ({path.name}, row {number + 1})" for number in missing}


def class_names(labels: Sequence[str]) -> list[str]:
    """The distinct labels in order: by value where all are whole numbers, else as text."""
    distinct = set(labels)
    try:
        return sorted(distinct, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(distinct)


def numbered(labels: Sequence[str], classes: list[str]) -> np.ndarray:
    """The place of each label in `classes`, [n] int64; labels that are new are appended to it, in order."""
    classes.extend(class_names(list(set(labels) - set(classes))))
    numbers = {title: number for number, title in enumerate(classes)}
    return np.array([numbers[label] for label in labels], np.int64)


def row(path: str | Path, number: int) -> str:
    """`file:line` of the data row `number` (from 0); reads the file again, so for messages only."""
    return rows(path, [number])[0]


def line_numbers(path: Path, *, header: bool = True) -> np.ndarray:
    """The line of each data row, int64 [rows], for many names of one file: it is read once, until it changes."""
    about = path.stat()
    return _line_numbers(path, header, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=1)
def _line_numbers(path: Path, header: bool, changed: int, size: int) -> np.ndarray:
    with contextlib.closing(_lines(path, header)) as lines:
        return np.fromiter(lines, np.int64)


def rows(path: str | Path, numbers: Sequence[int], *, header: bool = True) -> list[str]:
    """`file:line` of each of the data rows `numbers` (from 0), in one pass over the file.

    Args:
        header: a CSV or TSV file has a header row.
    """
    path, wanted = Path(path), set(numbers)
    last, line_of = max(numbers, default=-1), dict[int, int]()
    with contextlib.closing(_lines(path, header)) as lines:
        for number, line in enumerate(lines):
            if number in wanted:
                line_of[number] = line
            if number >= last:
                break
    return [f"{path}:{line_of[number]}" if number in line_of else f"{path}, row {number + 1}" for number in numbers]


def _lines(path: Path, header: bool) -> Generator[int, None, None]:
    """The line of each data row; none in Parquet."""
    if ending(path) in TEXT:
        how = dialect_of(path, None, None, guess=True)
        rows = records_as(path, how, named=header, lenient=True)
    elif ending(path) in JSON_LINES:
        rows = records(path, named=True, lenient=True)
    else:
        return
    next(rows)
    yield from (line for line, record in rows if not isinstance(record, str))
