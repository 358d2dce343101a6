"""The inputs of `predict` as texts: arguments, files with a text a line, tables, and standard input as it arrives; and as pairs of texts.

The encoding is the byte order mark's, else UTF-8, else that of the run's own data; a text that fits none gets an error as its answer.
"""

import codecs
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nlp.settings import TextData, text_keys
from pipelines.base.errors import DataError
from pipelines.base.inside import other_kind
from pipelines.base.json_text import parse_json
from pipelines.config.messages import listed
from pipelines.data import text_rows
from pipelines.data.dialect import ending, mark_of
from pipelines.task.contract import Read

NAMED = 60  # characters of a text that name it
SEVEN_BIT = ("iso2022", "hz", "utf-7")  # encodings whose bytes are UTF-8 too, with another meaning


def read_texts(inputs: list[str], data: TextData) -> Iterator[Read]:
    """(name, {"text": ...}, columns) of each text, or (name, why it cannot be read); where a row of a table cannot be read, the third has
    the names of its columns. A text is named by its beginning; its column `input` holds all of it.

    Args:
        inputs: `-` for standard input, a text a line; an existing file: a table, or a text a line; anything else is a text itself,
            unless it looks like the name of a file.
    """
    for given in inputs:
        path = Path(given)
        if given == "-":
            yield from _lines(sys.stdin.buffer, "-", data)
        elif _is_file(path):
            if ending(path) in text_rows.SUFFIXES and ending(path) != ".txt":
                yield from _table(path, data)
            else:
                with path.open("rb") as file:
                    yield from _lines(file, str(path), data)
        elif (kind := other_kind(path)) and kind != "a folder":
            yield given, DataError(f"is {kind}; only regular files are read, and - is standard input")
        elif ending(path) in text_rows.SUFFIXES and " " not in given:
            yield given, FileNotFoundError(2, "No such file", given)
        else:
            yield _text(given, given, data)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text too long to be a file's name
        return False


def _text(text: str, place: str, data: TextData) -> Read:
    """A text by itself, or a pair; a blank one is named by its place."""
    flat = " ".join(text.split())
    name = flat if len(flat) <= NAMED else f"{flat[:NAMED - 3]}..."
    try:
        example = pair_example(_json_or_text(text), data) if data.pairs else request_example(text, data)
    except DataError as error:
        return name or place, error
    return name or place, example, {"input": text if flat else place}


def _json_or_text(text: str) -> Any:
    """What a person wrote for a pair: a list or an object in JSON, or a text with a tab."""
    try:
        return parse_json(text) if text.lstrip()[:1] in ("[", "{") and "\t" not in text else text
    except ValueError:
        return text


def _lines(file: BinaryIO, name: str, data: TextData) -> Iterator[Read]:
    """A text a line, each as soon as it arrives."""
    encoding = data.encoding
    first = file.readline()
    mark = mark_of(first)
    wide = mark if mark and mark != "utf-8-sig" else encoding if encoding and text_rows.is_wide(encoding) and b"\0" in first else None
    if wide:  # such files cannot be split into lines by their bytes
        try:
            lines = (first + file.read()).decode(wide).split("\n")
        except UnicodeDecodeError as error:
            yield name, ValueError(f"byte {error.start} and what follows is not {wide.upper()}")
            return
        for number, text in enumerate(lines[:-1] if not lines[-1] else lines, 1):
            yield _text(text.rstrip("\r"), f"{name}:{number}", data)
        return
    codecs_ = ["utf-8", *([encoding] if encoding and not text_rows.is_wide(encoding) else [])]
    if encoding and codecs.lookup(encoding).name.startswith(SEVEN_BIT):
        codecs_.reverse()
    # readline, since iteration over a pipe reads ahead
    for number, line in enumerate(_from(first.removeprefix(codecs.BOM_UTF8), file), 1):
        decoded = _decoded(line.rstrip(b"\r\n"), codecs_)
        if isinstance(decoded, Exception):
            yield f"{name}:{number}", decoded
        else:
            yield _text(decoded, f"{name}:{number}", data)


def _from(line: bytes, file: BinaryIO) -> Iterator[bytes]:
    while line:
        yield line
        line = file.readline()


def _decoded(line: bytes, names: Sequence[str]) -> str | Exception:
    """The text in the first of the encodings that it fits."""
    if b"\0" in line:
        return ValueError("NUL bytes: the file is damaged, or UTF-16 without a byte order mark; save it as UTF-8")
    for name in names:
        try:
            return line.decode(name)
        except UnicodeDecodeError as error:
            last = error
    return ValueError(f"byte {last.object[last.start]:#04x} is not {' or '.join(name.upper() for name in names)}; save the file as UTF-8")


def _table(path: Path, data: TextData) -> Iterator[Read]:
    keys = text_keys(data)
    named = data.header == "yes" or (data.header == "auto" and any(isinstance(key, str) for key in (*keys, data.label_key)))
    encoding = None if data.encoding and text_rows.is_utf8(path) else data.encoding

    def opened(named: bool) -> tuple[list[str], Iterator[tuple[int, Any]]]:
        records = iter(text_rows.records(path, named=named, delimiter=data.delimiter, quote=data.quote,
                                         encoding=encoding, lenient=True))
        return next(records)[1], records

    names, records = opened(named)
    delimited = ending(path) in text_rows.DELIMITED
    if named and data.header == "auto" and delimited and len(names) == 1 and names[0] not in ("text", *keys):
        names, records = opened(named=False)  # the one column's first line is a text like the others
    places = []
    for key in keys:
        if isinstance(key, int) and key < len(names):
            places.append(key)
        elif isinstance(key, str) and names.count(key) > 1:
            raise DataError(f"{path} has more than one column named {key!r}, which is read as the text; rename the others")
        elif key in names:
            places.append(names.index(key))
        elif len(keys) == 1 and "text" in names:
            places.append(names.index("text"))
        elif len(keys) == 1 and len(names) == 1:
            places.append(0)
        else:
            raise DataError(f"{path} has no column {key!r}, which is read as the text; there are {listed(names, 'and')}. "
                            "Name the column that holds the text: --set data.text_key=COLUMN")
    columns = _unique(names)
    for line, record in records:
        if isinstance(record, str):
            yield f"{path}:{line}", ValueError(record), dict.fromkeys(columns)
            continue
        yield f"{path}:{line}", _example([record[place] for place in places], data), dict(zip(columns, record))


def request_example(sent: Any, data: TextData) -> dict[str, Any]:
    """The raw example of a request: UTF-8, a text, or an object of columns as a table's row has them. Raises DataError."""
    if isinstance(sent, bytes):
        try:
            sent = sent.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataError("the text is not UTF-8") from None
    if isinstance(sent, dict):
        keys = [str(key) for key in text_keys(data)]
        keys = keys if len(keys) > 1 or keys[0] in sent else ["text"]
        missing = next((key for key in keys if key not in sent), None)
        if missing is not None:
            raise DataError(f"there is no {missing!r}; a text of this run is made of {listed(keys, 'and')}")
        return _example([sent[key] for key in keys], data)
    if not isinstance(sent, str):
        raise DataError(f"{sent!r} is not a text")
    return {"text": sent.encode("utf-8", "replace")}


def pair_example(sent: Any, data: TextData) -> dict[str, Any]:
    """As `request_example`, of a pair: a list of two texts, an object of columns, or both with a tab between them. Raises DataError."""
    names = [str(key) for key in text_keys(data)]
    if isinstance(sent, bytes):
        sent = request_example(sent, data)["text"].decode()
    if isinstance(sent, dict):
        if set(sent) == {"text", "text_pair"} != set(names):
            sent = {name: sent[key] for name, key in zip(names, ("text", "text_pair"))}
        return request_example(sent, data)
    parts = sent.split("\t") if isinstance(sent, str) else sent
    if not isinstance(parts, (list, tuple)) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise DataError(f"{sent!r:.100} is no pair: give two texts in a list, an object with {listed(names, 'and')}, or both with a tab "
                        "between them")
    return _example(parts, data)


def _example(parts: Sequence[Any], data: TextData) -> dict[str, Any]:
    """The raw example of the columns of text_key."""
    texts = ["" if part is None else str(part) for part in parts]
    names = ("text", "text_pair") if data.pairs else ("text",)
    return {name: text.encode("utf-8", "replace") for name, text in zip(names, texts if data.pairs else [data.join.join(texts)])}


def _unique(names: Sequence[str]) -> list[str]:
    """The names; a second of the same name becomes name_2, and so on."""
    uniques: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in uniques or (number > 1 and unique in names):
            number += 1
            unique = f"{name}_{number}"
        uniques.append(unique)
    return uniques
