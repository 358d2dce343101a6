"""Named things in texts, read from CoNLL columns and from JSON lines: the text and its spans, in characters.

Tags of tokens are IOB1, IOB2 (BIO) or BILOU (also called BIOES, IOBES): which of them a data set uses is seen by its tags. Imports no
TensorFlow by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from nlp.data.rows import Rows
from nlp.settings import TagData
from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.messages import show
from pipelines.data import text_rows
from pipelines.data.divide import ALIASES

DOCUMENT = "-DOCSTART-"
SPAN_KEYS = ("spans", "entities", "label", "labels")
LAST, ALONE = "LE", "US"  # prefixes of BILOU and BIOES
Scheme = Literal["IOB1", "IOB2", "BILOU"]
Span = tuple[int, int, str]  # first character, the one behind the last, type


class BadTag(ValueError):
    """A tag that cannot be read.

    Attributes:
        number: of its token in the sentence.
    """

    def __init__(self, number: int, reason: str):
        super().__init__(reason)
        self.number = number


@dataclass
class Sentence:
    """Tokens and tags of a sentence, with the line of each; or why it cannot be read."""

    path: Path
    document: int = 0
    lines: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    wrong: tuple[int, str] | None = None


def sentences(path: Path, data: TagData) -> Iterator[Sentence]:
    """The sentences of a CoNLL file; what is wrong with a line is said of its sentence."""
    document, current = 0, Sentence(path)
    label = -1 if data.label_column is None else data.label_column
    for number, line in enumerate(text_rows.text_of(path, data.encoding).split("\n"), 1):
        columns = [column.strip() for column in line.rstrip("\r").split("\t")] if "\t" in line else line.split()
        begins = bool(columns) and columns[0] == DOCUMENT
        if not any(columns) or begins:
            if current.lines:
                yield current
            document += begins
            current = Sentence(path, document)
            continue
        current.lines.append(number)
        if len(columns) < 2 or not -len(columns) <= label < len(columns) or not columns[data.token_column:data.token_column + 1]:
            current.wrong = current.wrong or (number, f"{len(columns)} column{'s' * (len(columns) > 1)}, {show(line[:40])}: a token "
                                              "and its tag are wanted, with tabs or blanks between (data.token_column, data.label_column)")
            continue
        token, tag = columns[data.token_column], columns[label]
        if not token or not tag:
            current.wrong = current.wrong or (number, f"no {'tag' if token else 'token'}")
        current.tokens.append(token)
        current.tags.append(tag)
    if current.lines:
        yield current


def scheme_of(tags: Iterable[Sequence[str]]) -> Scheme:
    """By which scheme sentences are tagged: BILOU where a thing ends or stands alone by its tag; IOB1 where none begins with a B but
    behind another of its type."""
    begun = inside = False
    for sentence in tags:
        for before, tag in zip(["O", *sentence], sentence):
            if tag[:2] in [f"{mark}-" for mark in LAST + ALONE]:
                return "BILOU"
            inside |= tag[:2] == "I-"
            begun |= tag[:2] == "B-" and (before == "O" or before[2:] != tag[2:])
    return "IOB1" if inside and not begun else "IOB2"


def runs(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """The things in a sentence as (first token, the one behind the last, type).

    Raises:
        BadTag: names the token and what is wrong with its tag.
    """
    found: list[Span] = []
    begun: tuple[int, str] | None = None  # the thing that goes on

    def close(end: int) -> None:
        nonlocal begun
        if begun is not None:
            found.append((begun[0], end, begun[1]))
        begun = None

    for number, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        allowed = {"IOB1": "BI", "IOB2": "BI", "BILOU": "BI" + LAST + ALONE}[scheme]
        if tag != "O" and (len(mark) != 1 or mark not in allowed or not kind):
            raise BadTag(number, f"tag {show(tag)}: tags are O and {', '.join(one + '-TYPE' for one in allowed)}")
        goes_on = tag != "O" and mark in "I" + LAST
        if goes_on and (begun is None or begun[1] != kind) and scheme != "IOB1":
            raise BadTag(number, f"tag {tag} out of nothing: it goes on with {kind}, and "
                            + ("no thing stands before it" if begun is None else f"{begun[1]} stands before it") + f" ({scheme})")
        if scheme == "BILOU" and begun is not None and not goes_on:
            raise BadTag(number, f"tag {tag}: the {begun[1]} before it does not end, with L- or E- (BILOU)")
        if not goes_on or begun is None or begun[1] != kind:
            close(number)
            begun = None if tag == "O" else (number, kind)
        if tag != "O" and mark in LAST + ALONE:
            close(number + 1)
    if scheme == "BILOU" and begun is not None:
        raise BadTag(len(tags) - 1, f"tag {tags[-1]}: the sentence ends, and the {begun[1]} does not, with L- or E- (BILOU)")
    close(len(tags))
    return found


def joined(tokens: Sequence[str], found: Sequence[Span]) -> tuple[str, list[Span]]:
    """Tokens with a blank between them, and things in characters of that text."""
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token) + 1)
    return " ".join(tokens), [(starts[begin], starts[end] - 1, kind) for begin, end, kind in found]


def spans_of(stored: Any, text: str) -> list[Span]:
    """The spans of a line of JSON: a list of [start, end, label] or {"start", "end", "label"}, in their order in the text and without
    blanks around them. Raises DataError."""
    if not isinstance(stored, list):
        raise DataError(f"{show(stored)} is no list of spans such as [0, 5, \"person\"]")
    found: list[Span] = []
    for one in stored:
        values = [one.get("start"), one.get("end"), one.get("label", _only(one.get("labels")))] if isinstance(one, dict) else one
        if not isinstance(values, list) or len(values) != 3 or not isinstance(values[2], str) or not values[2].strip() or any(
                not isinstance(place, int) or isinstance(place, bool) for place in values[:2]):
            raise DataError(f"{show(one)} is no span: [start, end, \"label\"] or {{\"start\", \"end\", \"label\"}} in characters from 0")
        start, end, kind = values
        if not 0 <= start < end <= len(text):
            raise DataError(f"span [{start}, {end}] {kind} " + ("ends before it begins" if end <= start else
                                                                f"lies beyond the text of {len(text):,} characters"))
        inner = text[start:end]
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
        if start >= end:
            raise DataError(f"span [{values[0]}, {values[1]}] {kind} holds blanks alone")
        found.append((start, end, kind.strip()))
    found.sort()
    for first, second in pairwise(found):
        if second[0] < first[1]:
            raise DataError(f"spans [{first[0]}, {first[1]}] {first[2]} and [{second[0]}, {second[1]}] {second[2]} overlap; of each "
                            "character one type can be told: leave one of them out")
    return found


def _only(labels: Any) -> Any:
    """The one label of a list, as Label Studio has them; the list itself where it has several."""
    return labels[0] if isinstance(labels, list) and len(labels) == 1 else labels


def split_files(place: Path, data: TagData) -> dict[str, Path]:
    """The files of a folder by the split that their names say (train.*, dev.*, validation.*, test.*), or the one file."""
    if not place.is_dir():
        if not place.is_file():
            raise DataError(f"{place} does not exist (data.path)")
        return {"all": place}
    found: dict[str, Path] = {}
    for path in sorted(place.iterdir()):
        name = path.name.partition(".")[0].lower()
        if not path.is_file() or not any(name in names for names in ALIASES.values()):
            continue
        if name in found:
            raise DataError(f"{place}: {found[name].name} and {path.name} are both {name}; name one of them in data.path, or move one away")
        found[name] = path
    if not found:
        raise DataError(f"{place} has no file that is called train, such as train.conll or train.jsonl (data.path)")
    return found


def read_conll(files: dict[str, Path], data: TagData) -> tuple[dict[str, Rows], str]:
    """Rows whose labels are lists of spans, of each file; and a note on how they are tagged."""
    parts = {name: list(sentences(path, data)) for name, path in files.items()}
    scheme = scheme_of(one.tags for part in parts.values() for one in part if one.wrong is None)
    found = {}
    for name, part in parts.items():
        texts, labels, places, groups = list[str](), list[Any](), list[str](), list[str]()
        bad: list[tuple[str, str]] = []
        for one in part:
            try:
                if one.wrong:
                    raise BadTag(one.lines.index(one.wrong[0]), one.wrong[1])
                text, spans = joined(one.tokens, runs(one.tags, scheme))
            except BadTag as error:
                bad.append((f"{one.path}:{one.lines[error.number]}", str(error)))
                continue
            texts.append(text)
            labels.append(spans)
            places.append(f"{one.path}:{one.lines[0]}")
            groups.append(f"{one.path.name} {one.document}")
        documents = data.group_by is not None
        if documents and not any(one.document for one in part):
            raise DataError(f"data.group_by: {data.group_by}: {files[name]} has no lines {DOCUMENT}, by which documents "
                            "begin; leave it out")
        found[name] = Rows(texts, labels, places.__getitem__, groups if documents else None, bad, _fingerprint(files[name], data))
    unused = data.group_by is None and any(one.document for part in parts.values() for one in part)
    hint = f"; lines {DOCUMENT} begin documents, which data.group_by: document keeps on one side of a split" if unused else ""
    return found, f"tags are read as {scheme}{hint}"


def read_json(files: dict[str, Path], data: TagData) -> dict[str, Rows]:
    """Rows whose labels are lists of spans, of each file of JSON: of lines, or one list."""
    found = {}
    for name, path in files.items():
        texts, labels, lines, groups = list[str](), list[Any](), list[int](), list[str]()
        bad: list[tuple[str, str]] = []
        for number, item in items(text_rows.text_of(path, data.encoding)):
            try:
                text, spans, group = object_of(parse_json(item) if isinstance(item, str) else item, data)
            except (DataError, ValueError) as error:
                bad.append((f"{path}:{number}", str(error)))
                continue
            texts.append(text)
            labels.append(spans)
            lines.append(number)
            groups.append(group)
        place = [f"{path}:{number}" for number in lines]
        found[name] = Rows(texts, labels, place.__getitem__, groups if data.group_by else None, bad, _fingerprint(path, data))
    return found


def items(text: str) -> Iterator[tuple[int, Any]]:
    """(number, item) of a JSON list of objects or pairs, from 1; else (number, line) of the lines that are not empty."""
    if text.lstrip().startswith("["):
        try:
            whole = parse_json(text)
        except ValueError:
            whole = None
        if isinstance(whole, list) and all(isinstance(one, (dict, list)) for one in whole):
            yield from enumerate(whole, 1)
            return
    yield from ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _plain(stored: Any, data: TagData) -> Any:
    """An object with a text and its spans, of spaCy's pair of a text and {"entities"}, or of Label Studio's task with its annotations, of
    which the first that was not cancelled counts. Raises DataError."""
    if isinstance(stored, list) and len(stored) == 2 and isinstance(stored[0], str) and isinstance(stored[1], dict):
        return {data.text_key: stored[0], **stored[1]}
    if not isinstance(stored, dict) or not isinstance(stored.get("data"), dict):
        return stored
    made = next((one for one in stored.get("annotations") or () if isinstance(one, dict) and not one.get("was_cancelled")), None)
    if made is None:
        raise DataError("nobody has annotated it")
    values = [one.get("value") for one in made.get("result") or () if isinstance(one, dict)]
    return {**stored["data"], SPAN_KEYS[0]: [value for value in values if isinstance(value, dict) and "labels" in value]}


def object_of(given: Any, data: TagData) -> tuple[str, list[Span], str]:
    """Text, spans and group of a line."""
    stored = _plain(given, data)
    if not isinstance(stored, dict):
        raise DataError(f"{show(stored)} is no object with a text and its spans")
    key = data.spans_key or next((name for name in SPAN_KEYS if name in stored), SPAN_KEYS[0])
    missing = next((name for name in (data.text_key, key, *([data.group_by] if data.group_by else [])) if name not in stored), None)
    if missing:
        raise DataError(f"there is no {missing!r}; there are {', '.join(stored)} (data.text_key, data.spans_key, data.group_by)")
    if not isinstance(stored[data.text_key], str):
        raise DataError(f"{show(stored[data.text_key])} is no text ({data.text_key})")
    return stored[data.text_key], spans_of(stored[key], stored[data.text_key]), str(stored[data.group_by]) if data.group_by else ""


def _fingerprint(path: Path, data: TagData) -> str:
    from pipelines.data.fingerprint import of_files  # starts TensorFlow

    return f"{of_files([path], path.parent, whole=True)}-{data.text_key}-{data.spans_key}-{data.token_column}-{data.label_column}"
