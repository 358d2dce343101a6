"""Questions with their passages and the answers in them, from JSON as SQuAD has it and from tables. Imports no TensorFlow by itself."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp.data.rows import Rows
from nlp.settings import AnswerData
from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.messages import listed, show
from pipelines.data import text_rows
from pipelines.data.columns import plain, role_of
from pipelines.data.tables import split_names

PASSAGE, TITLE = "passage", "title"
Place = tuple[int, int]  # first character, the one behind the last


@dataclass
class Reading:
    """What the answers of files are like, beside the rows.

    Attributes:
        moved: answers that stand elsewhere in their passage than their file says.
        sought: answers without a place, of which all occurrences count.
    """

    moved: int = 0
    sought: int = 0
    rows: dict[str, Rows] = field(default_factory=dict)

    def notes(self) -> list[str]:
        moved = f"{self.moved:,} answers stand elsewhere in their passage than is said; the nearest place counts"
        sought = f"{self.sought:,} answers have no place: wherever their text stands in the passage is right"
        return [note for count, note in ((self.moved, moved), (self.sought, sought)) if count]


def split_files(place: Path, data: AnswerData) -> dict[str, list[Path]]:
    """The files of a folder by the split that a word of their names says, or the one file."""
    if not place.is_dir():
        if not place.is_file():
            raise DataError(f"{place} does not exist (data.path)")
        return {"all": [place]}
    suffixes = (".json",) if data.source == "squad" else text_rows.SUFFIXES
    found: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        role = next(filter(None, map(role_of, plain(path.stem).split("_"))), None)
        if role and path.is_file() and path.suffix.lower() in suffixes:
            found.setdefault(role, []).append(path)
    if "train" not in found:
        raise DataError(f"{place} has no {listed(list(suffixes))} file whose name has the word train, such as train{suffixes[0]} "
                        "(data.path)")
    return found


def read(files: Mapping[str, Sequence[Path]], data: AnswerData) -> Reading:
    """The rows of each split: texts are (question, passage), labels the places of answers."""
    result = Reading()
    for name, paths in files.items():
        if data.split_key is not None and list(files) != ["all"]:
            raise DataError(f"data.split_key: {paths[0].parent} has files for each split already; leave one of both out")
        rows = _rows(paths, data, result)
        parts = {name: rows} if data.split_key is None else _by_split(rows, data)
        result.rows |= {split: _gathered(found, paths, data) for split, found in parts.items()}
    return result


@dataclass
class _Row:
    place: str
    text: tuple[Any, Any]
    answers: list[Place]
    group: str
    split: str = ""
    wrong: str | None = None


def _by_split(rows: list[_Row], data: AnswerData) -> dict[str, list[_Row]]:
    """Raises DataError for a row without a split."""
    bare = next((row for row in rows if not row.split and row.wrong is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: no value in column {data.split_key} (data.split_key)")
    parts = split_names([row.split for row in rows], data)
    return {part: [row for row, own in zip(rows, parts) if own == part] for part in sorted(set(parts))}


def _gathered(rows: list[_Row], paths: Sequence[Path], data: AnswerData) -> Rows:
    from pipelines.data.fingerprint import of_files  # starts TensorFlow

    good = [row for row in rows if row.wrong is None]
    places = [row.place for row in good]
    digest = hashlib.sha256(f"{len(good)} {of_files(list(paths), paths[0].parent, whole=True)} {data.text_key} {data.answer_key}".encode())
    return Rows([row.text for row in good], [row.answers for row in good], places.__getitem__,
                [row.group for row in good] if data.group_by else None, [(row.place, row.wrong) for row in rows if row.wrong],
                digest.hexdigest()[:16])


def _rows(paths: Sequence[Path], data: AnswerData, reading: Reading) -> list[_Row]:
    rows = []
    for path in paths:
        for place, question, passage, stored, group, split in (_squad(path, data) if data.source == "squad" else _table(path, data)):
            row = _Row(place, (question, passage), [], group, split)
            try:
                if isinstance(stored, DataError):
                    raise stored
                if isinstance(question, str) and isinstance(passage, str):
                    row.answers = _places(stored, passage, reading)
            except DataError as error:
                row.wrong = str(error)
            rows.append(row)
    return rows


_Found = tuple[str, Any, Any, Any, str, str]  # place, question, passage, answers as they are stored, group, split


def _squad(path: Path, data: AnswerData) -> Iterator[_Found]:
    try:
        stored = parse_json(text_rows.text_of(path, data.encoding))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    articles = stored.get("data") if isinstance(stored, dict) else stored
    if not isinstance(articles, list) or any(not isinstance(one, dict) or not isinstance(one.get("paragraphs"), list) for one in articles):
        form = '{"data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [...]}]}]}'
        raise DataError(f"{path}: not as SQuAD has it: {form}")
    for number, article in enumerate(articles):
        title = str(article.get("title", number))
        for count, paragraph in enumerate(article["paragraphs"], 1):
            where = f"{path}: {title}, paragraph {count}"
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
                yield where, "", "", DataError(f"{show(paragraph)} has no list qas of questions"), "", ""
                continue
            passage = paragraph.get("context")
            for asked in paragraph["qas"]:
                known = isinstance(asked, dict)
                none = known and asked.get("is_impossible")
                answers = [] if none else asked.get("answers", DataError("no answers; [] where the passage has none")) if known else None
                yield (f"{path}: {asked.get('id', where) if known else where}", asked.get("question") if known else None, passage, answers,
                       title if data.group_by == TITLE else _print(passage), "")


def _table(path: Path, data: AnswerData) -> Iterator[_Found]:
    group = data.group_by if data.group_by not in (None, PASSAGE) else None
    extra = [(key, name) for key, name in ((group, "data.group_by"), (data.split_key, "data.split_key")) if key is not None]
    wanted = [*data.text_key, data.answer_key, *(key for key, _ in extra)]
    table = text_rows.read(path, wanted, settings=["data.text_key"] * 2 + ["data.answer_key", *(name for _, name in extra)],
                           header=data.header, delimiter=data.delimiter, encoding=data.encoding, quote=data.quote,
                           lenient=data.on_bad_example == "skip", names=data.columns)
    for line, reason in table.bad:
        yield f"{path}:{line}", "", "", DataError(reason), "", ""
    for number, (question, passage, answers, *rest) in enumerate(zip(*table.values)):
        more = dict(zip((name for _, name in extra), (text_rows.title(value) or "" for value in rest)))
        yield (table.place(number), question, passage, answers, more.get("data.group_by", _print(passage)), more.get("data.split_key", ""))


def _print(passage: Any) -> str:
    return hashlib.blake2b(str(passage).encode("utf-8", "replace"), digest_size=8).hexdigest()


def answers_of(stored: Any) -> list[tuple[str, int | None]]:
    """(text, its first character or None where that is not said) of each answer as a file has them. Raises DataError."""
    if isinstance(stored, str) and stored.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError):  # else a text that begins with a bracket
            stored = parse_json(stored)
    if stored is None or stored == "":
        return []
    if isinstance(stored, dict) and isinstance(stored.get("text"), list):
        starts = stored.get("answer_start") or [None] * len(stored["text"])
        stored = [{"text": text, "answer_start": start} for text, start in zip(stored["text"], starts)]
    found = []
    for one in stored if isinstance(stored, list) else [stored]:
        text, start = (one.get("text"), one.get("answer_start", one.get("start"))) if isinstance(one, dict) else (one, None)
        if not isinstance(text, str) or isinstance(start, bool) or not (start is None or isinstance(start, int)):
            raise DataError(f'{show(one)} is no answer: a text of the passage, or {{"text": "...", "answer_start": 0}} in characters')
        if text.strip():
            found.append((text, None if start is None or start < 0 else start))
    return found


def _places(stored: Any, passage: str, reading: Reading) -> list[Place]:
    """The places of answers, those of several people as often as they gave them. Raises DataError for one that is not in the passage."""
    found: list[Place] = []
    for text, start in answers_of(stored):
        inner = text.strip()
        start = None if start is None else start + text.index(inner)
        if start is not None and passage[start:start + len(inner)] == inner:
            found.append((start, start + len(inner)))
            continue
        every = occurrences(inner, passage)
        if not every:
            raise DataError(f"answer {show(text)} is not in the passage" + ("" if start is None else
                            f"; at character {start} stands {show(passage[start:start + len(inner)])}"))
        if start is None:
            reading.sought += 1
            found += every
        else:
            reading.moved += 1
            found.append(min(every, key=lambda place: abs(place[0] - start)))
    return found


def occurrences(text: str, passage: str) -> list[Place]:
    """Where a text stands in a passage as whole words; where it stands at all, if nowhere as that."""
    every, at = [], passage.find(text)
    while at >= 0:
        every.append((at, at + len(text)))
        at = passage.find(text, at + 1)
    whole = [(start, end) for start, end in every if not (passage[start - 1:start] + text[0]).isalnum() or start == 0]
    whole = [(start, end) for start, end in whole if end == len(passage) or not (text[-1] + passage[end]).isalnum()]
    return whole or every
