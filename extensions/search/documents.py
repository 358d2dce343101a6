"""The passages of a folder of documents. Imports no TensorFlow."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.data import text_rows
from pipelines.data.walk import files_of
from pipelines.task.requests import Read

SUFFIXES = {".txt", ".md", ".rst", ".text"}
WORDS = 120  # of a passage, which most encoders read whole
_PARAGRAPHS, _SENTENCES = re.compile(r"\n\s*\n"), re.compile(r"(?<=[.!?。！？])\s+")


def read_documents(folder: Path, take: Callable[[str], dict[str, Any]]) -> Iterator[Read]:
    """(name, raw example or why it cannot be read, {"file", "passage", "text"}) of each passage of the text files below a folder, in the
    order of their names.

    Args:
        take: a text -> its raw example.

    Raises:
        DataError: there are none.
    """
    files = files_of(folder, SUFFIXES)
    if not files:
        raise DataError(f"{folder}: holds no texts ({', '.join(sorted(SUFFIXES))}); name tables themselves, as {folder}/*.csv")
    for file in files:
        name = str(file.relative_to(folder))
        try:
            text = text_rows.text_of(file, None)
        except (DataError, OSError) as error:
            yield name, error
            continue
        for number, passage in enumerate(passages(text), 1):
            yield f"{name}:{number}", take(passage), {"file": name, "passage": number, "text": passage}


def passages(text: str) -> Iterator[str]:
    """The paragraphs of a text; longer ones in parts of at most WORDS words, divided between sentences where that is possible."""
    for paragraph in _PARAGRAPHS.split(text.replace("\r\n", "\n")):
        part: list[str] = []
        for sentence in _SENTENCES.split(paragraph.strip()):
            words = sentence.split()
            if part and len(part) + len(words) > WORDS:
                yield " ".join(part)
                part = []
            while len(words) > WORDS:
                yield " ".join(words[:WORDS])
                words = words[WORDS:]
            part += words
        if part:
            yield " ".join(part)
