"""The formats of text tables - CSV, TSV, JSON lines - read through pyarrow; bad rows are omitted, or named with their line."""

import contextlib
import csv
import gzip
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.data import dialect
from pipelines.data.dialect import UNIT, UNQUOTED, Dialect, find_dialect

NAMED = 1000  # omitted rows that are named one by one


@dataclass
class LeftOut:
    """Rows that could not be read and are omitted.

    Attributes:
        count: their number.
        reasons: place and reason of the first 1,000.
        lines: [rows] int64, the line of each row of the table that was read; None where none was omitted.
    """

    count: int = 0
    reasons: list[str] = field(default_factory=list)
    lines: np.ndarray | None = None

    def add(self, reason: str) -> None:
        """Counts a row."""
        self.count += 1
        if len(self.reasons) < NAMED:
            self.reasons.append(reason)


def dialect_of(path: Path, delimiter: str | None, encoding: str | None, quote: str | None = None, *, guess: bool = False,
               beside: Sequence[Path] = ()) -> Dialect:
    """The dialect as set, else as detected; the encoding is guessed only with `guess`, for messages."""
    if not guess:
        encoding = dialect.mark_of(dialect.content_of(path, 4)) or encoding or "utf-8-sig"
    try:
        return find_dialect(path, delimiter=delimiter, quote=quote, encoding=encoding, beside=beside)
    except DataError:
        return find_dialect(path, delimiter=delimiter, quote=quote, encoding="latin-1", beside=beside)
    except LookupError:
        raise DataError(f"data.encoding: {encoding!r} is not an encoding that Python knows, such as utf-8, cp1252, shift_jis") from None


def _opened(path: Path, how: Dialect) -> TextIO:
    encoding = "utf-8-sig" if how.encoding == "utf-8" else how.encoding
    if path.suffix.lower() == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding=encoding, errors="replace", newline=""))
    return open(path, encoding=encoding, errors="replace", newline="")


def _reader(file: TextIO, how: Dialect) -> Any:
    if len(how.delimiter) > 1:
        return csv.reader((line.replace(how.delimiter, UNIT) for line in file), delimiter=UNIT, quoting=csv.QUOTE_NONE)
    if how.quote == UNQUOTED:
        return csv.reader(file, delimiter=how.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(file, delimiter=how.delimiter, quotechar=how.quote)


def _records(reader: Any, header: bool) -> Iterator[tuple[int, list[str]]]:
    """Each data record with the line that it begins at."""
    start, first = 1, header
    for record in reader:
        if record and not first:
            yield start, record
        first, start = first and not record, reader.line_num + 1


def record_lines(path: Path, header: bool) -> Iterator[int]:
    """The line of each data record of a CSV or TSV file."""
    how = dialect_of(path, None, None, guess=True)
    with _opened(path, how) as file:
        yield from (line for line, _ in _records(_reader(file, how), header))


def json_lines(path: Path) -> Iterator[int]:
    """The number of each line of a JSON lines file that is not blank."""
    with _opened(path, Dialect(",", "utf-8-sig", True)) as file:
        yield from (line for line, content in enumerate(file, 1) if content.strip())


def read_csv(path: Path, how: Dialect, text: Collection[str], names: Sequence[str] | None = None, left_out: LeftOut | None = None,
              ) -> pa.Table:
    import pyarrow.csv

    bad: list[Any] = []

    def skip(row: Any) -> str:
        bad.append(row if len(bad) < NAMED else None)
        return "skip"

    plain = how.encoding in ("utf-8", "utf-8-sig")
    several = len(how.delimiter) > 1
    content: Any = path
    if several:  # pyarrow takes delimiters of one character only
        code = "utf-8" if plain else how.encoding
        content = pa.BufferReader(dialect.content_of(path).replace(how.delimiter.encode(code), UNIT.encode(code)))
    try:
        table = pyarrow.csv.read_csv(
            content, read_options=pyarrow.csv.ReadOptions(column_names=list(names) if names else None,
                                                          encoding="utf8" if plain else how.encoding),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=UNIT if several else how.delimiter, quote_char=False if several or how.quote == UNQUOTED else how.quote,
                newlines_in_values=left_out is None and not several, invalid_row_handler=None if left_out is None else skip),
            convert_options=pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in text}))
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):
            raise DataError(f"{path}: has a line of more than a megabyte, which is no row of a table; is a quotation mark not "
                            "closed?") from error
        raise DataError(_csv_error(path, how, names) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {how.encoding.upper()} ({error.reason}); set another data.encoding") from None
    if any(pa.types.is_binary(column.type) for column in table.columns):
        # pyarrow makes a column of bytes where the text is not UTF-8
        raise DataError(_encoding_error(path) or f"{path} is not UTF-8; save it as UTF-8")
    if bad and left_out is not None:
        _name_lines(path, how, table, names is None, bad, left_out)
    return table


def _name_lines(path: Path, how: Dialect, table: pa.Table, header: bool, bad: Sequence[Any], left_out: LeftOut) -> None:
    """Finds the lines of the rows read and of those omitted, which pyarrow, reading in parallel, does not report."""
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
    else:  # Python's reader parses some quotes differently
        left_out.reasons += [f"{path}: row {one.text[:60]!r}: {one.actual_columns} fields where {needed} are needed" for one in bad if one]


def _csv_error(path: Path, how: Dialect, names: Sequence[str] | None = None) -> str | None:
    """A message on the first record whose number of fields is not the header's."""
    if not path.stat().st_size:
        return f"{path} is empty"
    bad = _encoding_error(path) if how.encoding in ("utf-8", "utf-8-sig") else None
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


def _encoding_error(path: Path) -> str | None:
    content = dialect.content_of(path)
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            return (f"{path}:{number}: byte {line[error.start]:#04x} is not UTF-8; save the table as UTF-8, or set data.encoding, such as "
                    "cp1252")
    return None


def read_json(path: Path, left_out: LeftOut | None = None) -> pa.Table:
    import pyarrow.json

    if not path.stat().st_size:
        raise DataError(f"{path} is empty")
    try:
        return pyarrow.json.read_json(path)
    except pa.ArrowInvalid as error:
        good = _good_lines(path, left_out) if left_out is not None else b""
        if good:
            return pyarrow.json.read_json(pa.BufferReader(good))
        raise DataError(_json_error(path) or f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _good_lines(path: Path, left_out: LeftOut) -> bytes:
    """The lines that are JSON objects whose values are of the kinds that most lines have; the others are omitted."""
    kinds: Counter[frozenset[tuple[str, str]]] = Counter()
    parsed: list[tuple[int, bytes, frozenset[tuple[str, str]]]] = []
    bad: list[tuple[int, str]] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                value = parse_json(text.decode("utf-8"))
            except UnicodeDecodeError as error:
                bad.append((number, f"byte {text[error.start]:#04x} is not UTF-8"))
            except ValueError as error:
                bad.append((number, f"not JSON: {error}"))
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


def _json_error(path: Path) -> str | None:
    """A message on the first line that is not a JSON object, or whose value changes its type."""
    bad = _encoding_error(path)
    if bad:
        return bad
    kinds: dict[str, tuple[str, int]] = {}
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line)
            except ValueError as error:
                return f"{path}:{number}: not JSON: {error}"
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
