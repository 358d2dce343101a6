"""Tables on disk - CSV, TSV, JSON lines, Parquet - read whole through pyarrow, with errors that name the row.

A row is named by its line in a text file (the header is line 1), and counted from 1 in Parquet.
"""

import contextlib
import csv
import gzip
import json
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.regular import check_regular
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.schema import TableData
from pipelines.data import dialect
from pipelines.data.columns import number_of
from pipelines.data.dialect import TEXT, UNIT, Dialect, ending, find_dialect
from pipelines.data.divide import ALIASES

JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
SUFFIXES = (*TEXT, *JSON_LINES, *PARQUET)
NAMED = 1000  # rows left out that are named one by one


@dataclass
class LeftOut:
    """Rows that could not be read and were left out.

    Attributes:
        count: how many.
        reasons: where and why, of the first 1,000.
        lines: [rows] int64, the line of each row of the table that was read; None where none was left out.
    """

    count: int = 0
    reasons: list[str] = field(default_factory=list)
    lines: np.ndarray | None = None

    def add(self, reason: str) -> None:
        """One more."""
        self.count += 1
        if len(self.reasons) < NAMED:
            self.reasons.append(reason)


def is_table(path: Path) -> bool:
    """Whether a file's name ends like a table's; `.txt`, which is mostly a text, does not count."""
    return ending(path) in SUFFIXES and ending(path) != ".txt"


def read_table(path: str | Path, *, text: Collection[str] = (), names: Sequence[str] | None = None, left_out: LeftOut | None = None,
               delimiter: str | None = None, encoding: str | None = None) -> pa.Table:
    """The whole table. CSV and its like need a header row, or `names`.

    Args:
        path: the format is that of the ending, one of SUFFIXES; `.csv.gz` and its like are unpacked.
        text: columns to read as text whatever they look like (`007` stays `007`, `NA` stays `NA`); those not there are passed over.
        names: the columns of a CSV or TSV file that has no header row; its first row is then data.
        left_out: rows with too few or too many fields, and lines that are no JSON object or whose values are of another kind than those
            of most lines, are left out and counted here, instead of raising.
        delimiter: what divides the fields of a text table; None to find it in the file.
        encoding: of a text table; None for UTF-8, or that of a byte order mark.

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
            table = _read_csv(path, _dialect(path, delimiter, encoding), text, names, left_out)
        elif suffix in JSON_LINES:
            table = _read_json(path, left_out)
        elif suffix in PARQUET:
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
        else:
            raise DataError(f"{path}: a table is .csv, .tsv, .jsonl or .parquet, not {path.suffix or 'a file without ending'}")
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if repeated:
        raise DataError(f"{path} has more than one column named {min(repeated)!r}")
    return table


def column(table: pa.Table, name: str, path: str | Path, setting: str) -> pa.ChunkedArray:
    """A column by name.

    Raises:
        DataError: it is not there; names those there, the nearest, and the setting that asked for it.
    """
    if name in table.column_names:
        return table[name]
    there = table.column_names
    raise DataError(f"{path} has no column {name!r} ({setting}); there are {listed(there, 'and')}{did_you_mean(name, there)}")


def values_of(table: pa.Table, name: str, path: str | Path, setting: str) -> list[str]:
    """A column of labels, groups or names as text without surrounding blanks; whole floats lose their point.

    Raises:
        DataError: a row without value, or a value that names nothing (a list, a fraction).
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
            raise DataError(f"{row(path, number)}: {value!r} in column {name} ({setting}) is no name or whole number")
        values.append(str(value).strip())
    return values


def split_names(values: Sequence[str], data: TableData) -> list[str]:
    """The split of each row of data.split_key. Where none is called train, the values that data.test and data.validation name are held
    out, and all others are train: folds."""
    distinct = set(values)
    held = {value for value in (data.validation, data.test) if isinstance(value, str)} & distinct
    if not held or any(value.lower() in ALIASES["train"] for value in distinct):
        return list(values)
    return [value if value in held else "train" for value in values]


def one_hot(columns: Mapping[str, Sequence[Any]], place: Callable[[int], str]) -> list[str]:
    """Of each row the name of the one column that holds 1, where the others hold 0. Raises DataError that names another row."""
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


def class_names(labels: Sequence[str]) -> list[str]:
    """The distinct labels in order: by value where all are whole numbers, else as text."""
    distinct = set(labels)
    try:
        return sorted(distinct, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(distinct)


def row(path: str | Path, number: int) -> str:
    """`file:line` of the data row `number` (from 0); reads the file again, so for messages only."""
    return rows(path, [number])[0]


def rows(path: str | Path, numbers: Sequence[int], *, header: bool = True) -> list[str]:
    """`file:line` of each of the data rows `numbers` (from 0), in one pass over the file.

    Args:
        header: a CSV or TSV file has a header row.
    """
    path, wanted = Path(path), set(numbers)
    suffix, last, found = ending(path), max(numbers, default=-1), dict[int, int]()
    if suffix in (*TEXT, *JSON_LINES):
        how = _dialect(path, None, None, guess=True) if suffix in TEXT else Dialect(",", "utf-8-sig", True)
        with _opened(path, how) as file:
            if suffix in TEXT:
                lines = (line for line, _ in _records(_reader(file, how), header))
            else:
                lines = (line for line, content in enumerate(file, 1) if content.strip())
            for seen, line in enumerate(lines):
                if seen in wanted:
                    found[seen] = line
                if seen == last:
                    break
    return [f"{path}:{found[number]}" if number in found else f"{path}, row {number + 1}" for number in numbers]


def _dialect(path: Path, delimiter: str | None, encoding: str | None, *, guess: bool = False) -> Dialect:
    """What is set, else what the file's beginning shows; an encoding is only guessed where asked for, for messages."""
    if not guess:
        encoding = dialect.mark_of(dialect.content_of(path, 4)) or encoding or "utf-8-sig"
    try:
        return find_dialect(path, delimiter=delimiter, encoding=encoding)
    except DataError:
        return find_dialect(path, delimiter=delimiter, encoding="latin-1")
    except LookupError:
        raise DataError(f"data.encoding: {encoding!r} is no encoding that Python knows; such as utf-8, cp1252, shift_jis") from None


def _opened(path: Path, how: Dialect) -> TextIO:
    encoding = "utf-8-sig" if how.encoding == "utf-8" else how.encoding
    if path.suffix.lower() == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding=encoding, errors="replace", newline=""))
    return open(path, encoding=encoding, errors="replace", newline="")


def _reader(file: TextIO, how: Dialect) -> Any:
    if len(how.delimiter) > 1:
        return csv.reader((line.replace(how.delimiter, UNIT) for line in file), delimiter=UNIT, quoting=csv.QUOTE_NONE)
    return csv.reader(file, delimiter=how.delimiter)


def _records(reader: Any, header: bool) -> Iterator[tuple[int, list[str]]]:
    """Each data record with the line that it begins at."""
    start, first = 1, header
    for record in reader:
        if record and not first:
            yield start, record
        first, start = first and not record, reader.line_num + 1


def _read_csv(path: Path, how: Dialect, text: Collection[str], names: Sequence[str] | None = None, left_out: LeftOut | None = None,
              ) -> pa.Table:
    import pyarrow.csv

    bad: list[Any] = []

    def skip(found: Any) -> str:
        bad.append(found if len(bad) < NAMED else None)
        return "skip"

    plain = how.encoding in ("utf-8", "utf-8-sig")
    several = len(how.delimiter) > 1
    content: Any = path
    if several:  # pyarrow knows delimiters of one sign only
        code = "utf-8" if plain else how.encoding
        content = pa.BufferReader(dialect.content_of(path).replace(how.delimiter.encode(code), UNIT.encode(code)))
    try:
        table = pyarrow.csv.read_csv(
            content, read_options=pyarrow.csv.ReadOptions(column_names=list(names) if names else None,
                                                          encoding="utf8" if plain else how.encoding),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=UNIT if several else how.delimiter, quote_char=False if several else '"',
                newlines_in_values=left_out is None and not several, invalid_row_handler=None if left_out is None else skip),
            convert_options=pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in text}))
    except pa.ArrowInvalid as error:
        raise DataError(_blame_csv(path, how, names) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {how.encoding.upper()} ({error.reason}); set another data.encoding") from None
    if any(pa.types.is_binary(column.type) for column in table.columns):
        # pyarrow makes a column of bytes where the text is not UTF-8
        raise DataError(_blame_encoding(path) or f"{path} is not UTF-8; save it as UTF-8")
    if bad and left_out is not None:
        _name_lines(path, how, table, names is None, bad, left_out)
    return table


def _name_lines(path: Path, how: Dialect, table: pa.Table, header: bool, bad: Sequence[Any], left_out: LeftOut) -> None:
    """Finds the lines of the rows that were read and of those that were left out; pyarrow, which reads in parallel, knows none."""
    lines, reasons, needed = array("q"), LeftOut(), table.num_columns
    with _opened(path, how) as file, contextlib.suppress(csv.Error):
        for line, record in _records(_reader(file, how), header):
            if len(record) == needed:
                lines.append(line)
            else:
                reasons.add(f"{path}:{line}: {len(record)} fields where {needed} are needed")
    left_out.count += len(bad)
    if len(lines) == table.num_rows and reasons.count == len(bad):
        left_out.reasons += reasons.reasons
        left_out.lines = np.array(lines, np.int64)
    else:  # quotes that Python's reader understands otherwise
        left_out.reasons += [f"{path}: row {one.text[:60]!r}: {one.actual_columns} fields where {needed} are needed" for one in bad if one]


def _blame_csv(path: Path, how: Dialect, names: Sequence[str] | None = None) -> str | None:
    """The first record that does not have as many fields as the header, in words."""
    if not path.stat().st_size:
        return f"{path} is empty"
    bad = _blame_encoding(path) if how.encoding in ("utf-8", "utf-8-sig") else None
    if bad:
        return bad
    with _opened(path, how) as file:
        reader = _reader(file, how)
        header, start = list(names) if names else None, 1
        try:
            for record in reader:
                if record and header is None:
                    header = record
                elif record and header is not None and len(record) != len(header):
                    return f"{path}:{start}: {len(record)} fields where the header has {len(header)} ({', '.join(header)})"
                start = reader.line_num + 1
        except csv.Error as error:
            return f"{path}:{reader.line_num}: {error}"
    return None


def _blame_encoding(path: Path) -> str | None:
    content = dialect.content_of(path)
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            return (f"{path}:{number}: byte {line[error.start]:#04x} is not UTF-8; save the table as UTF-8, or set data.encoding, such as "
                    "cp1252")
    return None


def _read_json(path: Path, left_out: LeftOut | None = None) -> pa.Table:
    import pyarrow.json

    if not path.stat().st_size:
        raise DataError(f"{path} is empty")
    try:
        return pyarrow.json.read_json(path)
    except pa.ArrowInvalid as error:
        good = _good_lines(path, left_out) if left_out is not None else b""
        if good:
            return pyarrow.json.read_json(pa.BufferReader(good))
        raise DataError(_blame_json(path) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _good_lines(path: Path, left_out: LeftOut) -> bytes:
    """The lines that are JSON objects whose values are of the kinds that most lines have; the others are left out."""
    kinds: Counter[frozenset[tuple[str, str]]] = Counter()
    parsed: list[tuple[int, bytes, frozenset[tuple[str, str]]]] = []
    bad: list[tuple[int, str]] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                value = json.loads(text.decode("utf-8"))
            except UnicodeDecodeError as error:
                bad.append((number, f"byte {text[error.start]:#04x} is not UTF-8"))
            except json.JSONDecodeError as error:
                bad.append((number, f"not JSON: {error.msg} at column {error.colno}"))
            else:
                if not isinstance(value, dict):
                    bad.append((number, f'{_kind(value)} where an object such as {{"column": "value"}} is needed'))
                    continue
                kind = frozenset((key, _kind(item)) for key, item in value.items() if item is not None)
                kinds[kind] += 1
                parsed.append((number, text.rstrip(b"\r\n") + b"\n", kind))
    usual: dict[str, Counter[str]] = {}
    for some, count in kinds.items():
        for key, kind_of in some:
            usual.setdefault(key, Counter())[kind_of] += count
    most = {key: counts.most_common(1)[0][0] for key, counts in usual.items()}
    odd = {some: next(((key, kind_of) for key, kind_of in sorted(some) if kind_of != most[key]), None) for some in kinds}
    bad += [(number, f"{odd[some][0]} is {odd[some][1]} here and {most[odd[some][0]]} elsewhere")  # type: ignore[index]
            for number, _, some in parsed if odd[some]]
    for number, reason in sorted(bad):
        left_out.add(f"{path}:{number}: {reason}")
    kept = [(number, line) for number, line, some in parsed if not odd[some]]
    left_out.lines = np.array([number for number, _ in kept], np.int64)
    return b"".join(line for _, line in kept)


def _blame_json(path: Path) -> str | None:
    """The first line that is no JSON object, or whose value changes its type, in words."""
    bad = _blame_encoding(path)
    if bad:
        return bad
    kinds: dict[str, tuple[str, int]] = {}
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                return f"{path}:{number}: not JSON: {error.msg} at column {error.colno}"
            if not isinstance(value, dict):
                return f'{path}:{number}: {_kind(value)} where an object such as {{"column": "value"}} is needed'
            for key, item in value.items():
                if item is None:
                    continue
                kind, line_number = kinds.setdefault(key, (_kind(item), number))
                if kind != _kind(item):
                    return f"{path}:{number}: {key} is {_kind(item)} here and {kind} in line {line_number}"
    return None


def _kind(value: Any) -> str:
    return {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}.get(type(value), "null")
