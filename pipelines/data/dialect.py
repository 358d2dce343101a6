"""The dialect of a text table: its delimiter, quotation mark, fields, header and encoding.

Detected by content, alike for `quartet new` and training; the ending of the name says less: `.csv` often uses semicolons. Files that make
one table (train.csv, test.csv) have one form, that of most of their rows.
Imports no TensorFlow and no pyarrow.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.data.columns import NAMES, fit, number_of
from pipelines.machine import memory

CANDIDATES = (",", "\t", ";", "|")
TEXT = (".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".data")
TABS = (".tsv", ".tab")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
SUFFIXES = (*TEXT, *JSON_LINES, *PARQUET)
DOUBLE = "::"  # of MovieLens' ratings.dat
UNIT = "\x1f"  # replaces it while such a file is read
FASTTEXT = "__label__"
APOSTROPHE = "'"
UNQUOTED = "none"  # data.quote: no field is in quotation marks
SAMPLE = 50  # lines from which fastText's form is detected
COMPARED = 1000  # records of a file from which its form is detected
ENCLOSED = 0.5  # share of records with a field in single quotation marks from which these are no apostrophes
WIDE = 1000  # columns by which a header is known
BEGINNING = 1_000_000  # bytes from which a dialect is detected
SPARSE = 0.2  # share of zero bytes from which a text is UTF-16, and of bytes beyond ASCII up to which it is in Latin letters
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
         (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Dialect:
    """How a text file holds a table.

    Attributes:
        delimiter: between fields: one character, or `::`.
        encoding: Python's name.
        header: whether the first line names the columns.
        fasttext: lines such as `__label__spam free prize`, without columns.
        width: fields of most records; of a table with a header those of the header.
        quote: around fields: `"`, `'` or "none".
    """

    delimiter: str
    encoding: str
    header: bool
    fasttext: bool = False
    width: int = 1
    quote: str = '"'


def ending(path: Path) -> str:
    """The ending that tells the format, in lower case, without `.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def content_of(path: Path, size: int = -1) -> bytes:
    """The (first) bytes of a regular file, unpacked where it ends in .gz. Raises DataError where that fails, OSError as usual."""
    check_regular(path)
    if path.suffix.lower() != ".gz":
        with open(path, "rb") as file:
            return file.read(size)
    most = memory.free() // 4
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(size if size >= 0 else most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}") from None
    if size < 0 and len(content) > most:
        raise DataError(f"{path}: unpacks to over a quarter of the free memory; give it in parts")
    return content


def find_dialect(path: Path, *, delimiter: str | None = None, quote: str | None = None, encoding: str | None = None,
                 beside: Iterable[Path] = ()) -> Dialect:
    """The dialect of a text file, from its beginning and from those of the files `beside` it that belong to the same table.

    Raises:
        DataError: no encoding is likely.
    """
    text, own = _beginning(path, encoding)
    if not delimiter and labelled(text):
        return Dialect(" ", own, False, True, quote=UNQUOTED)
    texts = [text, *(_beginning(other, encoding)[0] for other in beside if other != path)]
    delimiter, quote = find_form(texts, delimiter or ("\t" if ending(path) in TABS else None), quote)
    rows = first_records(text, delimiter, quote)
    header = is_header(rows)
    usual = Counter(len(row) for one in texts for row in (rows if one is text else first_records(one, delimiter, quote)))
    width = len(rows[0]) if rows and header else usual.most_common(1)[0][0] if usual else 1
    return Dialect(delimiter, own, header, width=width, quote=quote)


def _beginning(path: Path, encoding: str | None) -> tuple[str, str]:
    """(the first lines of a text file, its encoding)."""
    start = content_of(path, BEGINNING)
    encoding = mark_of(start) or encoding or guessed_encoding(path) or "utf-8"
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
    return (text[:text.rfind("\n") + 1] or text) if len(start) == BEGINNING else text, encoding


def first_records(text: str, delimiter: str, quote: str) -> list[list[str]]:
    """Up to `COMPARED` records that are not empty."""
    rows: list[list[str]] = []
    try:
        for row in split_records(io.StringIO(text, newline=""), delimiter, quote):
            rows += [row] if row else []
            if len(rows) == COMPARED:
                break
    except csv.Error:  # the reader of the table reports it
        pass
    return rows


def split_records(lines: Iterable[str], delimiter: str, quote: str) -> Iterator[list[str]]:
    """The fields of each record. Raises csv.Error."""
    if len(delimiter) > 1:
        return csv.reader((line.replace(delimiter, UNIT) for line in lines), delimiter=UNIT, quoting=csv.QUOTE_NONE)
    if quote == APOSTROPHE:
        return (split_apostrophes(line, delimiter) for line in lines)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if quote == UNQUOTED else csv.QUOTE_MINIMAL)


def split_apostrophes(line: str, delimiter: str) -> list[str]:
    """The fields of a line, some in single quotation marks: such a mark ends a field only before a delimiter or the end of the line, since
    within it may be an apostrophe, also doubled or after a backslash."""
    line = line.rstrip("\r\n")
    if not line:
        return []
    mark, fields, at = re.escape(delimiter), [], 0
    pattern = re.compile(rf"'((?:[^'\\]|\\.|'(?!{mark}|$))*)'(?={mark}|$)|[^{mark}]*")
    while at <= len(line):
        match = pattern.match(line, at)
        assert match is not None  # an empty field matches
        fields.append(match[0] if match[1] is None else match[1].replace("''", "'").replace("\\'", "'"))
        at = match.end() + 1
    return fields


def labelled(text: str) -> bool:
    """Whether all of the first lines are fastText's."""
    lines = [line for line in text.split("\n", SAMPLE)[:SAMPLE] if line.strip()]
    return bool(lines) and all(line.lstrip().startswith(FASTTEXT) for line in lines)


def find_form(texts: Sequence[str], delimiter: str | None, quote: str | None) -> tuple[str, str]:
    """(delimiter, quotation mark) by which most records of the texts have the same number of fields, more than one; a comma and `"` where
    none does. What is given is kept."""
    lines = [line for text in texts for line in text[:200_000].split("\n")[:SAMPLE] if line.strip()]
    if delimiter is None and len(lines) > 1 and len({line.count(DOUBLE) for line in lines}) == 1 and DOUBLE in lines[0]:
        return DOUBLE, UNQUOTED
    best, score = (delimiter or ",", quote or '"'), 0.0
    single = any(APOSTROPHE in line for line in lines)
    for mark in [quote] if quote else ['"', *([APOSTROPHE] if single else [])]:
        for candidate in [delimiter] if delimiter else CANDIDATES:
            records = [row for text in texts for row in first_records(text, candidate, mark)]
            width, count = Counter(map(len, records)).most_common(1)[0] if records else (1, 0)
            if mark == APOSTROPHE and not quote:
                closed = re.compile(rf"(?:^|{re.escape(candidate)})'.*'(?:{re.escape(candidate)}|$)")
                if sum(closed.search(line.rstrip()) is not None for line in lines) < ENCLOSED * len(lines):
                    continue
                count += 1  # of equals the one that takes the marks off
            if width > 1 and count > score * len(records):
                best, score = (candidate, mark), count / len(records)
    return best


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some records names columns: it differs in kind from those below, or has usual names."""
    if not rows:
        return True
    rows = [row[:WIDE] for row in rows]
    names = [name.strip() for name in rows[0]]
    if any(number_of(name) is not None for name in names if name) or len(set(names)) < len(names):
        return False
    if any(re.search(r"\w\.[a-z][a-z0-9]{2,3}$", name.lower()) for name in names):  # the name of a file
        return False
    below = [row for row in rows[1:] if len(row) == len(names)]
    for place in range(len(names)):  # a word over numbers names them
        values = [row[place] for row in below if row[place].strip()]
        if values and names[place] and all(number_of(value) is not None for value in values):
            return True
    if any(fit(name, role) is not None and len(name) <= 30 for name in names for role in NAMES):
        # a label called `text` or `class` is rare; the same word below is rather a value
        repeated = sum(any(row[place].strip() == names[place] for row in below) for place in range(len(names)))
        return repeated == 0
    if not all(re.fullmatch(r"[^\W\d][\w-]{0,30}", name) for name in names):
        return False
    return not any(row[place].strip() == names[place] for row in below for place in range(len(names)))


def mark_of(content: bytes) -> str | None:
    """The encoding of a byte order mark at the beginning."""
    return next((name for mark, name in MARKS if content.startswith(mark)), None)


def guessed_encoding(path: Path) -> str | None:
    """The likely encoding of a text file without byte order mark; None for UTF-8, Python's default.

    Raises:
        DataError: it is not UTF-8, and no other encoding is likely.
    """
    content = content_of(path)
    if mark_of(content):
        return None
    start = content[:4096]
    if start.count(0) > SPARSE * len(start):
        return "utf-16-le" if start[1::2].count(0) >= start[::2].count(0) else "utf-16-be"
    try:
        if b"\0" not in content and content.decode("utf-8") is not None:
            return None
    except UnicodeDecodeError:
        pass
    high = sum(byte >= 0x80 for byte in content[:BEGINNING])
    plain = sum(byte < 0x80 and chr(byte).isalpha() for byte in content[:BEGINNING])
    if high < SPARSE * (high + plain):  # accents among plain letters; in other scripts most letters are such bytes
        try:
            content.decode("cp1252")
            return "cp1252"
        except UnicodeDecodeError:
            pass
    raise not_utf8(path, content)


def not_utf8(path: Path, content: bytes) -> DataError:
    """The error that names the first line that is not UTF-8."""
    try:
        content.decode("utf-8")
        return DataError(f"{path}: NUL bytes: the file is damaged, or UTF-16 without a byte order mark")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return DataError(f"{path}:{line}: byte {content[error.start]:#04x} is not UTF-8; set data.encoding, such as cp1252 (Western "
                         "Windows), cp1251 (Cyrillic), gb18030 or shift_jis, or save the table as UTF-8")
