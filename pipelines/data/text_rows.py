"""Tables - CSV, TSV, JSON lines, Parquet - read row by row, so that every bad row is reported with its line.

Encoding and delimiter are set, or detected: a byte order mark, else UTF-8; the delimiter that divides the first lines most evenly.
"""

import codecs
import csv
import io
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.base.json_text import parse_json
from pipelines.config.messages import did_you_mean, listed, show
from pipelines.data.dialect import (
    FASTTEXT,
    JSON_LINES,
    PARQUET,
    SUFFIXES,
    Dialect,
    content_of,
    ending,
    find_dialect,
    mark_of,
    split_records,
)
from pipelines.data.dialect import TEXT as DELIMITED
from pipelines.data.divide import ALIASES

Column = str | int  # by name, or by position from 0


@dataclass
class Table:
    """The requested columns of a table.

    Attributes:
        path: the file.
        lines: of each row its line in the file (the row's number from 1 in Parquet).
        values: for each requested column a value a row: text, or as JSON and Parquet have it; None where missing.
        bad: (line, reason) of the omitted rows.
        columns: the names of all columns, or their positions.
        rows: all fields of the rows, where `keep` asked for them.
    """

    path: Path
    lines: list[int] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)

    def place(self, number: int) -> str:
        """`file:line` of row `number`."""
        return f"{self.path}:{self.lines[number]}"


def read(path: Path, wanted: Sequence[Column], *, settings: Sequence[str] = (), header: str = "auto", delimiter: str | None = None,
         encoding: str | None = None, lenient: bool = False, names: Sequence[str] | None = None, quote: str | None = None,
         beside: Sequence[Path] = ()) -> Table:
    """The wanted columns of every row.

    Args:
        path: .csv, .tsv, .jsonl or .parquet.
        wanted: names or positions from 0.
        settings: of each wanted column the setting that names it, for messages.
        header: "yes", "no", or "auto": there is a header where a column is named.
        delimiter, encoding, quote: None to detect them.
        beside: further files of the same table, by whose rows the form is detected, too.
        lenient: bytes that do not fit the encoding make a bad row, not an error.
        names: of the columns of a CSV or TSV file that has no header row.

    Raises:
        DataError: no such file or column, an encoding that does not fit (with the line), or nothing in it.
    """
    asked = list(settings) or ["data"] * len(wanted)
    table = Table(path)
    by_name = not wanted or any(isinstance(key, str) for key in wanted)
    rows = iter(records(path, named=names is None and (header == "yes" or (header == "auto" and by_name)),
                         delimiter=delimiter, encoding=encoding, lenient=lenient, quote=quote, beside=beside))
    _, first = next(rows)
    table.columns = list(names if names and len(names) == len(first) else first)
    places = [_place(path, table.columns, key, setting) for key, setting in zip(wanted, asked)]
    table.values = [[] for _ in wanted]
    for line, record in rows:
        if isinstance(record, str):
            table.bad.append((line, record))
            continue
        table.lines.append(line)
        for column, place in zip(table.values, places):
            column.append(record[place])
    if not table.lines and not table.bad:
        raise DataError(f"{path} has no rows")
    return table


def records(path: Path, *, named: bool, delimiter: str | None = None, encoding: str | None = None, lenient: bool = False,
            quote: str | None = None, beside: Sequence[Path] = ()) -> Iterator[tuple[int, Any]]:
    """(0, names of the columns) first, then (line, list of fields) of each row; for a bad row (line, the reason, as text)."""
    suffix = ending(path)
    if not path.is_file():
        check_regular(path)
        raise DataError(f"{path} does not exist")
    if suffix in PARQUET:
        yield from _parquet(path)
    elif suffix in JSON_LINES:
        yield from _json(path, text_of(path, encoding, lenient))
    elif suffix in DELIMITED:
        text = text_of(path, encoding, lenient)
        if not text.strip():
            raise DataError(f"{path} is empty")
        yield from _delimited(path, text, named, find_dialect(path, delimiter=delimiter, quote=quote, encoding=encoding or "utf-8",
                                                              beside=beside))
    else:
        raise DataError(f"{path}: a table is .csv, .tsv, .jsonl or .parquet, not {path.suffix or 'a file without ending'}")


def records_as(path: Path, how: Dialect, *, named: bool, lenient: bool = False) -> Iterator[tuple[int, Any]]:
    """`records` of a text table in a dialect that is known."""
    text = text_of(path, None if how.encoding.startswith("utf-8") else how.encoding, lenient)
    if not text.strip():
        raise DataError(f"{path} is empty")
    yield from _delimited(path, text, named, how)


def is_wide(encoding: str) -> bool:
    """Whether its characters are of two or four bytes each, so that a line does not end in a single byte."""
    return codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def is_utf8(path: Path) -> bool:
    """Whether all of a file is UTF-8, without NUL bytes."""
    content = content_of(path)
    try:
        return b"\0" not in content and content.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def text_of(path: Path, encoding: str | None, lenient: bool = False) -> str:
    """A file as text, line ends as they are. A byte order mark overrides `encoding`. Where lenient, bytes that do not fit become
    lone surrogates, as os.fsdecode has them.

    Raises:
        DataError: the bytes are not of that encoding; names the line and likely encodings.
    """
    content = content_of(path)
    try:
        name = mark_of(content) or codecs.lookup(encoding or "utf-8").name
    except LookupError:
        raise DataError(f"data.encoding: {encoding!r} is not an encoding that Python knows, such as utf-8, cp1252, shift_jis") from None
    try:
        return content.decode(name, "surrogateescape" if lenient and "32" not in name and "16" not in name else "strict")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = "set data.encoding, such as cp1252 (Western Windows), cp1251 (Cyrillic), gb18030 or shift_jis" if not encoding else (
            "set another data.encoding, or none")
        if not encoding and content[:200].count(0) > 20:
            hint = "it looks like UTF-16 without its mark: set data.encoding: utf-16-le"
        raise DataError(f"{path}:{line}: byte {content[error.start]:#04x} is not {name.upper()}; {hint}") from None


def title(value: Any) -> str | None:
    """A label as text, None for none: whole floats lose their point."""
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value).strip()


def split_files(folder: Path, beside: str | None = None, asked: Iterable[Any] = ()) -> dict[str, Path]:
    """Split -> file, of a folder with train.csv, test.csv, ..., and of those named by `beside` where it is given: `{split}_oos`.

    Args:
        asked: names of further splits, such as test2016; what is no name of a file is ignored.

    Raises:
        DataError: there is no train.
    """
    known = [alias for names in ALIASES.values() for alias in names]
    every = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES}
    files = {name: every[name] for name in sorted((name for name in every if name.lower() in known),
                                                  key=lambda name: known.index(name.lower()))}  # in the order of time, train first
    files |= {name: every[name] for name in [beside.format(split=name) for name in files] if name in every} if beside else {}
    files |= {name: every[name] for name in asked if isinstance(name, str) and name in every}
    if not any(name.lower() in ALIASES["train"] for name in files):
        raise DataError(f"{folder}: has no train.csv (.tsv, .jsonl, .parquet); name the table itself, or call its files train, validation "
                        "and test. For a folder of .txt files per class: source: folder")
    return files


def _delimited(path: Path, text: str, named: bool, how: Dialect) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(sys.maxsize)  # data.longest limits texts, not the csv module
    if how.fasttext:
        yield from _fasttext(text)
        return
    lines = io.StringIO(text, newline="")
    records: Iterable[tuple[int, Any]]
    if len(how.delimiter) > 1:
        records = ((number, line.rstrip("\r\n").split(how.delimiter)) for number, line in enumerate(lines, 1) if line.strip())
    elif how.quote == '"' and '"' in text:
        records = _unfolded(lines, how.delimiter, 0 if named else how.width)
    else:
        unquoted = split_records(lines, how.delimiter, how.quote)
        records = ((number, record) for number, record in enumerate(unquoted, 1) if record)
    width, first, plain = 0 if named else how.width, True, text.isascii()
    for line, record in records:
        if isinstance(record, str):
            if first:
                raise DataError(f"{path}:{line}: {record}")
            yield line, record
            continue
        if first:
            first, width = False, width or len(record)
            yield 0, [name.strip() for name in record] if named else [str(place) for place in range(width)]
            if named:
                continue
        if len(record) != width:
            fields = f"{len(record)} field{'s' if len(record) != 1 else ''}"
            yield line, (f"{fields} where {'the header has' if named else 'most rows have'} {width}"
                         + ("; a text with the delimiter in it needs quotation marks" if len(record) > (width or 0) else ""))
        else:
            yield line, record if plain or all(map(_fits, record)) else "bytes that do not fit the encoding (data.encoding)"


def _fasttext(text: str) -> Iterator[tuple[int, Any]]:
    """Lines such as `__label__spam free prize`, with the columns label (a list where a line has several) and text."""
    yield 0, ["label", "text"]
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        labels = list(takewhile(lambda word: word.startswith(FASTTEXT), words))
        if not words:
            continue
        names = [word.removeprefix(FASTTEXT).strip(",") for word in labels]
        rest = re.sub(rf"^\s*({FASTTEXT}\S*[\s,]*)*", "", line).strip()
        yield number, [names[0] if len(names) == 1 else names or None, rest]


def _unfolded(lines: Iterator[str], delimiter: str, width: int) -> Iterator[tuple[int, Any]]:
    """(line, fields) of each record that is not empty, or (line, the reason why it is bad).

    An unclosed quotation mark would make one record of all lines up to the next mark. It costs its own line only: with tabs, where
    many programs write texts without quoting, each line that has all fields is read as it is; otherwise the line is bad. `width` is the
    number of all fields, 0 for those of the first record.
    """
    again, taken, line = deque[str](), list[str](), 1  # lines to be read once more, those of this record, the number of its first

    def following() -> Iterator[str]:
        while (text := again.popleft() if again else next(lines, None)) is not None:
            taken.append(text)
            yield text

    reader = csv.reader(following(), delimiter=delimiter)
    while True:
        taken.clear()
        try:
            record: Any = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            record = str(error)
            reader = csv.reader(following(), delimiter=delimiter)
        bare = _unquoted(taken[0], delimiter) if delimiter == "\t" else None
        if len(taken) > 1 and not isinstance(record, str) and _run_together(taken, delimiter, width):
            record = bare or "a quotation mark that is not closed (or a mark within a quoted text that is not doubled)"
            again.extendleft(reversed(taken[1:]))  # the following lines are records of their own
            del taken[1:]
            reader = csv.reader(following(), delimiter=delimiter)
            width = width or len(bare or ())
        elif bare is not None and len(taken) == 1 and record and not isinstance(record, str) and len(bare) == (width or len(record)):
            record = bare
        if record:
            yield line, record
            width = width or (0 if isinstance(record, str) else len(record))
        line += len(taken)


def _run_together(lines: list[str], delimiter: str, width: int) -> bool:
    """Whether several lines that were read as one record are records: their quotation marks do not fit together, or, with tabs, each has
    all fields by itself."""
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return delimiter == "\t" and width > 1 and all(line.count(delimiter) == width - 1 for line in lines)


def _unquoted(line: str, delimiter: str) -> list[str]:
    """The fields of a line; quotation marks count only around a whole field in which all others are doubled."""
    fields = line.rstrip("\r\n").split(delimiter)
    return [field[1:-1].replace('""', '"') if re.fullmatch(r'"([^"]|"")*"', field) else field for field in fields]


def _fits(text: str) -> bool:
    """Whether decoding left no lone surrogate for a byte."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return False
    return True


def _json(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    names: dict[str, None] = {}
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            value = parse_json(content)
        except ValueError as error:
            rows.append((line, f"not JSON: {error}"))
            continue
        if not isinstance(value, dict):
            rows.append((line, f'{show(value)} where an object such as {{"text": "...", "label": "..."}} is needed'))
            continue
        names.update(dict.fromkeys(value))
        rows.append((line, value))
    yield 0, list(names)
    for line, value in rows:
        yield line, value if isinstance(value, str) else [value.get(name) for name in names]


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: is not a Parquet file: {str(error).splitlines()[0]}") from error
    yield 0, table.column_names
    for number, row in enumerate(zip(*(column.to_pylist() for column in table.columns)), 1):
        yield number, list(row)


def _place(path: Path, names: Sequence[str], key: Column, setting: str) -> int:
    if isinstance(key, int):
        if key >= len(names):
            raise DataError(f"{path} has no column {key} ({setting}): it has {len(names)}, counted from 0")
        return key
    if key not in names:
        plain = all(name.isdigit() for name in names)
        remedy = (f"; with data.header: no columns are given by position, such as {setting}: 0" if plain else
                  "; if its first line is not a header, give columns by position, such as "
                  f"{setting}: 0" if not did_you_mean(key, names) else "")
        shown = [name if len(name) < 40 else name[:37] + "..." for name in names]
        raise DataError(f"{path} has no column {key!r} ({setting}); there are {listed(shown, 'and')}{did_you_mean(key, names)}{remedy}")
    if list(names).count(key) > 1:
        raise DataError(f"{path} has more than one column named {key!r} ({setting}); give its position")
    return list(names).index(key)
