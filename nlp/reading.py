"""What `predict` was given, as texts: arguments themselves, files with a text a line, tables, and standard input as it comes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nlp import tables
from nlp.settings import TextData, text_keys
from pipelines.config.wording import listed
from pipelines.errors import DataError

NAMED = 60  # characters of a text by which it is called

Read = tuple[str, dict[str, Any] | Exception] | tuple[str, dict[str, Any], dict[str, Any]]


def read_texts(inputs: list[str], data: TextData) -> Iterator[Read]:
    """(name, {"text": ...}) of each text, or why it cannot be read; with a table's own columns as the third where it has them.

    Args:
        inputs: `-` for standard input, a text a line; a file that is there: a table, or a text a line; anything else is a text itself,
            unless it looks like the name of a file.
    """
    for given in inputs:
        path = Path(given)
        if given == "-":
            yield from _lines(sys.stdin.buffer, "-")
        elif _there(path):
            if path.suffix.lower() in (".csv", ".tsv", ".tab", ".psv", *tables.JSON_LINES, *tables.PARQUET):
                yield from _table(path, data)
            else:
                with path.open("rb") as file:
                    yield from _lines(file, str(path), data.encoding)
        elif path.suffix.lower() in tables.SUFFIXES and " " not in given:
            yield given, FileNotFoundError(2, "No such file", given)
        else:
            yield _called(given), {"text": given.encode("utf-8", "replace")}


def _there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text too long to be a file's name
        return False


def _lines(file: Any, name: str, encoding: str | None = None) -> Iterator[Read]:
    codec = encoding or "utf-8"
    wide = encoding is not None and encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32"))
    if wide:  # lines of such files cannot be told from their bytes
        file = (line.encode("utf-8") for line in file.read().decode(codec, "replace").splitlines())
        codec = "utf-8"
    # readline, since iteration over a pipe reads ahead
    lines = iter(file.readline, b"") if hasattr(file, "readline") else file
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n").decode(codec, "replace").removeprefix("\ufeff" if number == 1 else "")
        yield _called(text) or f"{name}:{number}", {"text": text.encode()}


def _table(path: Path, data: TextData) -> Iterator[Read]:
    keys = text_keys(data)
    named = data.header == "yes" or (data.header == "auto" and any(isinstance(key, str) for key in (*keys, data.label_key)))
    found = iter(tables.records(path, named=named, delimiter=data.delimiter, encoding=data.encoding, lenient=True))
    _, names = next(found)
    places = []
    for key in keys:
        if isinstance(key, int) and key < len(names):
            places.append(key)
        elif key in names:
            places.append(names.index(key))
        elif len(keys) == 1 and "text" in names:
            places.append(names.index("text"))
        elif len(keys) == 1 and len(names) == 1:
            places.append(0)
        else:
            raise DataError(f"{path} has no column {key!r}, which the run reads as its text; there are {listed(names, 'and')}. "
                            "Rename the column that holds the text")
    for line, record in found:
        if isinstance(record, str):
            yield f"{path}:{line}", ValueError(record)
            continue
        parts = ["" if record[place] is None else str(record[place]) for place in places]
        text = data.join.join(parts)
        yield f"{path}:{line}", {"text": text.encode("utf-8", "replace")}, dict(zip(names, record))


def take_text(sent: Any, data: TextData) -> dict[str, Any]:
    """The raw example of what a client sent: UTF-8, a text, or an object of columns as a table's row has them. Raises DataError."""
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
        sent = data.join.join("" if sent[key] is None else str(sent[key]) for key in keys)
    if not isinstance(sent, str):
        raise DataError(f"{sent!r} is no text")
    return {"text": sent.encode("utf-8", "replace")}


def _called(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= NAMED else f"{flat[:NAMED - 3]}..."
