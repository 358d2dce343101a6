"""The formats of text tables - CSV, TSV, JSON lines - read through pyarrow; bad rows are omitted, or named with their line."""

import csv
import io
from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.data import dialect
from pipelines.data.dialect import UNIT, UNQUOTED, Dialect, find_dialect
from pipelines.data.text_rows import records_as

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


def read_csv(path: Path, how: Dialect, text: Collection[str], names: Sequence[str] | None = None, left_out: LeftOut | None = None,
             ) -> pa.Table:
    """By pyarrow, in parallel, where every row is good; else row by row, so that each bad row is named by its line."""
    plain, several = how.encoding in ("utf-8", "utf-8-sig"), len(how.delimiter) > 1
    content: Any = path
    if several:  # pyarrow takes delimiters of one character only
        code = "utf-8" if plain else how.encoding
        content = pa.BufferReader(dialect.content_of(path).replace(how.delimiter.encode(code), UNIT.encode(code)))
    bad = []

    def note(row: Any) -> str:
        bad.append(row.number)
        return "skip"

    try:
        table = _arrow(content, text, names, encoding="utf8" if plain else how.encoding, delimiter=UNIT if several else how.delimiter,
                       quote_char=False if several or how.quote == UNQUOTED else how.quote,
                       newlines_in_values=left_out is None and not several, invalid_row_handler=note)
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):
            raise DataError(f"{path}: has a line of more than a megabyte, which is no row of a table; is a quotation mark not "
                            "closed?") from error
        return _by_row(path, how, text, names, left_out)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {how.encoding.upper()} ({error.reason}); set another data.encoding") from None
    # pyarrow makes a column of bytes where the text is not UTF-8
    odd = any(pa.types.is_binary(column.type) for column in table.columns) or any(name != name.strip() for name in table.column_names)
    return _by_row(path, how, text, names, left_out) if bad or odd else table


def _arrow(content: Any, text: Collection[str], names: Sequence[str] | None, encoding: str = "utf8", **parsing: Any) -> pa.Table:
    import pyarrow.csv

    return pyarrow.csv.read_csv(
        content, read_options=pyarrow.csv.ReadOptions(column_names=list(names) if names else None, encoding=encoding),
        parse_options=pyarrow.csv.ParseOptions(**parsing),
        convert_options=pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in text}))


def _by_row(path: Path, how: Dialect, text: Collection[str], names: Sequence[str] | None, left_out: LeftOut | None) -> pa.Table:
    """Raises DataError for the first bad row where none may be left out."""
    if names is not None:
        how = replace(how, width=len(names))
    rows = records_as(path, how, named=names is None)
    good, lines = io.StringIO(newline=""), array("q")
    writer = csv.writer(good)
    _, header = next(rows)
    for line, record in rows:
        if not isinstance(record, str):
            writer.writerow(record)
            lines.append(line)
        elif left_out is None:
            raise DataError(f"{path}:{line}: {record}")
        else:
            left_out.add(f"{path}:{line}: {record}")
    if left_out is not None:
        left_out.lines = np.array(lines, np.int64)
    if not lines:
        raise DataError(f"{path} has no rows" + (" that can be read" if left_out and left_out.count else ""))
    return _arrow(pa.BufferReader(good.getvalue().encode("utf-8")), text, names or header, newlines_in_values=True)


def read_json(path: Path, left_out: LeftOut | None = None) -> pa.Table:
    """By pyarrow where every line is good; else from the good lines."""
    import pyarrow.json

    if not path.stat().st_size:
        raise DataError(f"{path} is empty")
    try:
        return pyarrow.json.read_json(path)
    except pa.ArrowInvalid as error:
        good = _good_lines(path, left_out)
        if not good:
            why = left_out.reasons[0] if left_out and left_out.reasons else f"{path} cannot be read: {str(error).splitlines()[0]}"
            raise DataError(why) from error
        return pyarrow.json.read_json(pa.BufferReader(good))


def _good_lines(path: Path, left_out: LeftOut | None) -> bytes:
    """The lines that are JSON objects whose values are of the kinds that most lines have; the others are omitted.

    Raises:
        DataError: there are others, and none may be left out; names the first.
    """
    kinds: Counter[frozenset[tuple[str, str]]] = Counter()
    parsed: list[tuple[int, bytes, frozenset[tuple[str, str]]]] = []
    bad: list[tuple[int, str]] = []
    with io.BytesIO(dialect.content_of(path)) as file:
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
    if bad and left_out is None:
        raise DataError("{}:{}: {}".format(path, *min(bad)))
    left_out = left_out or LeftOut()
    for number, reason in sorted(bad):
        left_out.add(f"{path}:{number}: {reason}")
    kept = [(number, line) for number, line, some in parsed if not odd[some]]
    left_out.lines = np.array([number for number, _ in kept], np.int64)
    return b"".join(line for _, line in kept)


def _kind(value: Any) -> str:
    return {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}.get(type(value), "null")
