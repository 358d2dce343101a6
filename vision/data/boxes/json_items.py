"""A large JSON object read piece by piece: one item of its lists at a time, so that a file of a gigabyte does not lie in memory whole.
Imports no TensorFlow."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular

CHUNK = 1 << 20  # characters read at a time
LARGEST = 64 << 20  # characters of one item: a polygon of a million points has 20 MB
_DECODER = json.JSONDecoder()


def items(path: Path) -> Iterator[tuple[str, Any]]:
    """(name, item) of each item of the lists of a JSON object, and (name, value) of its other values, in the order of the file.

    Raises:
        DataError: no such JSON, with the place, or an item larger than LARGEST.
    """
    check_regular(path)
    with path.open(encoding="utf-8-sig") as file:
        stream = _Stream(file, path)
        try:
            yield from _of_object(stream)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: no JSON object at character {stream.passed + stream.at:,}: "
                            f"{str(error).partition(': line')[0]}") from error
        except UnicodeError as error:
            raise DataError(f"{path}: is not UTF-8") from error


def _of_object(stream: "_Stream") -> Iterator[tuple[str, Any]]:
    stream.expect("{")
    while stream.next() != "}":
        name = stream.value()
        stream.expect(":")
        if stream.next() != "[":
            yield str(name), stream.value()
        else:
            stream.expect("[")
            while stream.next() != "]":
                yield str(name), stream.value()
                if stream.next() != "]":
                    stream.expect(",")
            stream.expect("]")
        if stream.next() != "}":
            stream.expect(",")


class _Stream:
    """The part of a text that has been read and not yet used."""

    def __init__(self, file: TextIO, path: Path):
        self.file, self.path, self.text, self.at, self.passed, self.ended = file, path, "", 0, 0, False

    def fill(self) -> None:
        """Reads on; more the longer the item is, so that it is tried few times."""
        more = self.file.read(max(CHUNK, len(self.text) - self.at))
        self.ended = not more
        self.passed += self.at
        self.text, self.at = self.text[self.at:] + more, 0

    def next(self) -> str:
        """The next sign that is no blank; "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text) or self.ended:
                return self.text[self.at:self.at + 1]
            self.fill()

    def expect(self, sign: str) -> None:
        if self.next() != sign:
            raise ValueError(f"{sign!r} expected")
        self.at += 1

    def value(self) -> Any:
        self.next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
                if end < len(self.text) or self.ended:  # else a number may go on
                    self.at = end
                    return value
            except ValueError:
                if self.ended:
                    raise
            if len(self.text) - self.at > LARGEST:
                raise DataError(f"{self.path}: at character {self.passed + self.at:,} begins an item of more than {LARGEST:,} characters, "
                                "or one that does not end")
            self.fill()
