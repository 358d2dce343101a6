"""Tables on disk - CSV, TSV, JSON lines, Parquet - read whole through pyarrow, with errors that name the row.

A row is named by its line in a text file (the header is line 1), and counted from 1 in Parquet.
"""

import csv
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config.wording import did_you_mean, listed
from pipelines.errors import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
SUFFIXES = (*DELIMITERS, *JSON_LINES, *PARQUET)


def read_table(path: str | Path, *, text: Collection[str] = (), names: Sequence[str] | None = None, bad_rows: list[str] | None = None,
               ) -> pa.Table:
    """The whole table. CSV and TSV need a header row; text is UTF-8, with or without a byte order mark.

    Args:
        path: the format is that of the ending, one of SUFFIXES.
        text: columns to read as text whatever they look like (`007` stays `007`, `NA` stays `NA`); those not there are passed over.
        names: the columns of a CSV or TSV file that has no header row; its first row is then data.
        bad_rows: rows of a CSV or TSV file with too few or too many fields are left out and put here, each with its reason,
            instead of raising.

    Raises:
        DataError: names the file and the line of what cannot be read.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    try:
        if suffix in DELIMITERS:
            table = _read_csv(path, DELIMITERS[suffix], text, names, bad_rows)
        elif suffix in JSON_LINES:
            table = _read_json(path)
        elif suffix in PARQUET:
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
        else:
            raise DataError(f"{path}: a table is .csv, .tsv, .jsonl or .parquet, not {suffix or 'a file without ending'}")
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


def class_names(labels: Sequence[str]) -> list[str]:
    """The distinct labels in order: by value where all are whole numbers, else as text."""
    distinct = set(labels)
    try:
        return sorted(distinct, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(distinct)


def row(path: str | Path, number: int) -> str:
    """`file:line` of the data row `number` (from 0); reads the file again, so for messages only."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in DELIMITERS:
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=DELIMITERS[suffix])
            seen, start = -2, 1
            for record in reader:
                seen += bool(record)
                if seen == number:
                    return f"{path}:{start}"
                start = reader.line_num + 1
    elif suffix in JSON_LINES:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            lines = (line for line, content in enumerate(file, 1) if content.strip())
            for seen, line in enumerate(lines):
                if seen == number:
                    return f"{path}:{line}"
    return f"{path}, row {number + 1}"


def _read_csv(path: Path, delimiter: str, text: Collection[str], names: Sequence[str] | None = None, bad_rows: list[str] | None = None,
              ) -> pa.Table:
    import pyarrow.csv

    def left_out(found: Any) -> str:
        where = f"{path}:{found.number}" if found.number is not None else f"{path}: row {found.text[:60]!r}"
        if bad_rows is not None:
            bad_rows.append(f"{where}: {found.actual_columns} fields where {found.expected_columns} are needed")
        return "skip"

    try:
        table = pyarrow.csv.read_csv(
            path, read_options=pyarrow.csv.ReadOptions(column_names=list(names)) if names else None,
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=bad_rows is None, invalid_row_handler=None if bad_rows is None else left_out),
            convert_options=pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in text}))
    except pa.ArrowInvalid as error:
        raise DataError(_blame_csv(path, delimiter, names) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    if any(pa.types.is_binary(column.type) for column in table.columns):
        # pyarrow makes a column of bytes where the text is not UTF-8
        raise DataError(_blame_encoding(path) or f"{path} is not UTF-8; save it as UTF-8")
    return table


def _blame_csv(path: Path, delimiter: str, names: Sequence[str] | None = None) -> str | None:
    """The first record that does not have as many fields as the header, in words."""
    if not path.stat().st_size:
        return f"{path} is empty"
    bad = _blame_encoding(path)
    if bad:
        return bad
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
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
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"{path}:{number}: byte {line[error.start]:#04x} is not UTF-8; save the table as UTF-8"
    return None


def _read_json(path: Path) -> pa.Table:
    import pyarrow.json

    if not path.stat().st_size:
        raise DataError(f"{path} is empty")
    try:
        return pyarrow.json.read_json(path)
    except pa.ArrowInvalid as error:
        raise DataError(_blame_json(path) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error


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
                return f"{path}:{number}: no JSON: {error.msg} at column {error.colno}"
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
