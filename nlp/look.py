"""What lies in a table or folder of labelled texts: which columns hold what, classes, counts, lengths, splits. Imports no TensorFlow."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from nlp import tables
from nlp.tables import split_files
from pipelines.config.new import label_column
from pipelines.config.wording import listed
from pipelines.data.divide import ALIASES
from pipelines.data.tables import PARQUET
from pipelines.data.walk import PassedOver, files_of, folders_in
from pipelines.errors import DataError

TEXTS = ("text", "sentence", "review", "content", "message", "body", "query", "utterance", "document", "comment", "tweet", "description")
TITLES = ("title", "subject", "headline", "summary")
LABELS = ("label", "labels", "class", "classes", "category", "categories", "target", "intent", "topic", "sentiment", "tags", "y")
TEXT_FILES = (".txt", ".text")
SEPARATORS = (";", "|", ",")
SAMPLE = 2000  # texts whose lengths are measured
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass
class Seen:
    """What there is, in the words of the experiment's data section.

    Attributes:
        source: "table" or "folder".
        counts: label -> texts in train.
        texts: of train.
        words: median and longest number of words and marks in a sample.
        settings: further settings of the data section, such as text_key and header.
        validation, test: the data's own splits, None where there are none.
        ascii: the share of letters in the sample that are plain Latin ones.
    """

    source: str
    counts: Counter[str]
    texts: int
    words: tuple[int, int]
    settings: dict[str, Any] = field(default_factory=dict)
    validation: str | None = None
    test: str | None = None
    ascii: float = 1.0


def look(path: Path) -> Seen:
    """Raises DataError for anything but a table of texts and labels, a folder of tables, or a folder of class folders of .txt files."""
    if path.is_dir():
        if any(child.suffix.lower() in tables.SUFFIXES and role(child.stem) == "train" for child in path.iterdir()):
            files = split_files(path)
            train = next(file for name, file in files.items() if role(name) == "train")
            seen = _table(train)
            names = {role(name): name for name in files}
            seen.validation, seen.test = names.get("validation"), names.get("test")
            return seen
        return _folder(path)
    if path.suffix.lower() in tables.SUFFIXES:
        return _table(path)
    raise DataError(f"{path}: not understood; give a table ({listed(('.csv', '.tsv', '.jsonl', '.parquet'))}), a folder with train.csv and "
                    "test.csv, or a folder with a folder of .txt files per class")


def role(name: str) -> str | None:
    """"train", "validation" or "test" for a split of such a name (val, dev, testing, ...)."""
    return next((part for part, names in ALIASES.items() if name.lower() in names), None)


def _folder(path: Path) -> Seen:
    splits = {role(folder.name): folder for folder in sorted(path.iterdir()) if folder.is_dir() and role(folder.name)}
    base = splits.get("train", path)
    files = {folder.name: _text_files(folder) for folder in folders_in(base, PassedOver())}
    files = {name: found for name, found in files.items() if found}
    if len(files) < 2:
        raise DataError(f"{path}: needs a folder of .txt files for each of two or more classes, or name a table (CSV) of texts and labels")
    every = [file for found in files.values() for file in found]
    some = every[:: max(1, len(every) // SAMPLE)]
    encodings = {tables.guessed_encoding(file) for file in some if b"\0" in (content := file.read_bytes()) or not content.isascii()}
    encoding = next(iter(encodings)) if len(encodings) == 1 else None
    sample = [tables.text_of(file, encoding, lenient=True) for file in some]
    return Seen("folder", Counter({name: len(found) for name, found in files.items()}), len(every), _lengths(sample),
                {"encoding": encoding} if encoding else {},
                validation=splits["validation"].name if "validation" in splits else None,
                test=splits["test"].name if "test" in splits else None, ascii=_ascii(sample))


def _text_files(folder: Path) -> list[Path]:
    return files_of(folder, TEXT_FILES)


def _table(path: Path) -> Seen:
    named = True
    encoding = tables.guessed_encoding(path) if path.suffix.lower() not in PARQUET else None
    found = list(tables.records(path, named=True, encoding=encoding))
    names, rows = found[0][1], [record for _, record in found[1:] if not isinstance(record, str)]
    bad = [(line, record) for line, record in found[1:] if isinstance(record, str)]
    if not rows:
        where = f" (line {bad[0][0]}: {bad[0][1]})" if bad else ""
        raise DataError(f"{path}: has no row that can be read{where}")
    delimited = path.suffix.lower() in tables.DELIMITED
    if delimited and not _is_header(names):
        named, rows = False, [names, *rows]
        names = [str(place) for place in range(len(names))]
    columns: dict[str, list[Any]] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    split = next((name for name, values in columns.items() if {role(str(value)) for value in set(map(str, values))} >= {"train"}
                  and all(role(part) for part in set(map(str, values)))), None)
    text = _text_columns(path, {name: values for name, values in columns.items() if name != split})
    rest = {name: [value for value in values if tables.title(value) is not None]
            for name, values in columns.items() if name not in (*text, split)}
    label = label_column(path, rest, len(rows), named=LABELS, most=1 / 3, what="label")
    keep = [place for place in range(len(rows)) if split is None or role(str(columns[split][place])) == "train"]
    labels = [columns[label][place] for place in keep]
    separator = _separator(labels)
    many = separator is not None or any(isinstance(value, (list, tuple)) for value in labels)
    counts: Counter[str] = Counter()
    for value in labels:
        parts = value if isinstance(value, (list, tuple)) else value.split(separator) if separator and isinstance(value, str) else [value]
        counts.update(one for one in map(tables.title, parts) if one is not None)
    key = (lambda name: name) if named else int
    settings: dict[str, Any] = {"text_key": [key(name) for name in text] if len(text) > 1 else key(text[0]), "label_key": key(label)}
    if split:
        settings["split_key"] = key(split)
    if not named:
        settings["header"] = "no"
    if encoding:
        settings["encoding"] = encoding
    if many:
        settings["labels"] = "many"
        if separator and separator != ";":
            settings["label_separator"] = separator
    if bad or (not many and any(tables.title(value) is None for value in labels)):
        settings["on_bad_example"] = "skip"
    own = {role(str(value)): str(value) for value in set(columns[split])} if split else {}
    sample = [" ".join(str(columns[name][place]) for name in text) for place in keep[:: max(1, len(keep) // SAMPLE)]]
    return Seen("table", counts, len(keep), _lengths(sample), settings, own.get("validation"), own.get("test"), _ascii(sample))


def _is_header(names: Sequence[str]) -> bool:
    """Whether the first line names columns: a usual name is among them, or all are short single words that are no numbers."""
    plain = [name.strip().lower() for name in names]
    if any(name in (*TEXTS, *TITLES, *LABELS, "id", "split") for name in plain):
        return True
    return all(re.fullmatch(r"[a-z_][\w-]{0,30}", name) for name in plain) and len(set(plain)) == len(plain)


def _text_columns(path: Path, columns: dict[str, list[Any]]) -> list[str]:
    """The column with the longest texts, and a title beside it."""
    def length(values: list[Any]) -> float:
        texts = [value for value in values[:SAMPLE] if isinstance(value, str)]
        distinct = len(set(texts)) / max(1, len(texts))
        return sum(map(len, texts)) / max(1, len(values[:SAMPLE])) * distinct

    named = [name for name in columns if name.lower() in TEXTS and length(columns[name]) > 0]
    best = named[0] if len(named) == 1 else max(columns, key=lambda name: length(columns[name]), default=None)
    if best is None or length(columns[best]) < 3:
        raise DataError(f"{path}: no column seems to hold texts; there are {listed(columns, 'and')}")
    title = next((name for name in columns if name.lower() in TITLES and name != best), None)
    return [title, best] if title else [best]


def _separator(labels: list[Any]) -> str | None:
    """What stands between several labels of one text, where a part of the texts has several and the parts repeat."""
    texts = [value for value in labels if isinstance(value, str)]
    for separator in SEPARATORS:
        several = [value for value in texts if separator in value]
        if len(several) < max(3, 0.02 * len(texts)):
            continue
        parts = {part.strip() for value in texts for part in value.split(separator)}
        if len(parts) < 0.7 * len(set(texts)):
            return separator
    return None


def _lengths(sample: list[str]) -> tuple[int, int]:
    sizes = [len(_TOKEN.findall(text)) for text in sample] or [0]
    return int(median(sizes)), max(sizes)


def _ascii(sample: list[str]) -> float:
    letters = [letter for text in sample for letter in text[:400] if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) / max(1, len(letters))
