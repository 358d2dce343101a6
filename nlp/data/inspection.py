"""What lies in a table or folder of labelled texts: which columns hold what, classes, counts, lengths, splits. Imports no TensorFlow."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from nlp.data.ngrams import WORD
from nlp.data.other_forms import other_form
from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.config.messages import listed
from pipelines.data import text_rows
from pipelines.data.columns import LOOKED_AT, Facts, by_name, number_of, plain, role_in, role_of
from pipelines.data.dialect import JSON_LINES, PARQUET, ending, find_dialect, guessed_encoding
from pipelines.data.frame import Frame, check_width, label_column, split_column
from pipelines.data.kinds import labels_in, not_used, pair_in, separator_in
from pipelines.data.tables import LeftOut
from pipelines.data.walk import PassedOver, files_of, folders_in, other_folders

ROLES = ("text", "label", "split", "group")
TEXT_FILES = (".txt", ".text")
SPEAKERS = ("speaker", "speaker_id", "author", "author_id", "participant", "participant_id", "patient", "patient_id", "person", "person_id")
NEGATIVES = ("negative", "negatives", "hard_negative", "text_negative", "negative_text", "negative_passage")
FEWEST_SPEAKERS = 6  # with fewer nothing can be held out
SAMPLE = 2000  # texts whose lengths are measured


@dataclass
class Seen:
    """What the data hold, as settings of the experiment's data section.

    Attributes:
        source: "table" or "folder".
        counts: label -> texts in train.
        texts: of train.
        words: median and longest number of words and marks in a sample.
        settings: further settings of the data section, such as text_key and header.
        validation, test: the data's own splits, None where there are none.
        sample: some texts of train.
        path: the table, where it lies in the folder that was named.
        label: the column of the labels, where it is one.
        notes: further remarks, a line each.
        pairs: examples are pairs of texts, in the two columns of text_key.
    """

    source: str
    counts: Counter[str]
    texts: int
    words: tuple[int, int]
    settings: dict[str, Any] = field(default_factory=dict)
    validation: str | None = None
    test: str | None = None
    path: Path | None = None
    label: str | list[str] | None = None
    sample: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pairs: bool = False


def look(path: Path, asked: Asked | None = None) -> Seen:
    """Raises DataError for anything but a table of texts and labels, a folder of tables, or a folder of class folders of .txt files."""
    try:
        return _look(path, asked or Asked())
    except DataError as error:
        if form := other_form(path):
            raise DataError(form) from error
        raise


def _look(path: Path, asked: Asked) -> Seen:
    if path.is_dir():
        candidates = [child for child in sorted(path.iterdir()) if child.is_file() and ending(child) in text_rows.SUFFIXES]
        if any(role_of(child.stem) == "train" for child in candidates):
            files = text_rows.split_files(path)
            train = next(file for name, file in files.items() if role_of(name) == "train")
            seen = _table(train, asked, list(files.values()))
            for file in files.values():
                if file != train and (note := _frame(file, list(files.values())).passed_over()):
                    seen.settings["on_bad_example"] = "skip"
                    seen.notes.append(note)
            names = {role_of(name): name for name in files}
            seen.validation, seen.test = names.get("validation"), names.get("test")
            others = [child.name for child in candidates if child not in files.values() and child.suffix.lower() != ".txt"]
            seen.notes += [f"Not used: {', '.join(others)}."] if others else []
            return seen
        alone = [child for child in candidates if child.suffix.lower() != ".txt"] or [child for child in candidates if _holds_many(child)]
        if len(alone) == 1 and not any(_text_files(child) for child in path.iterdir() if child.is_dir()):
            seen = _table(alone[0], asked)
            seen.path = alone[0]
            return seen
        return _folder(path)
    if ending(path) in text_rows.SUFFIXES:
        return _table(path, asked)
    raise DataError(f"{path}: not understood; give a table ({listed(('.csv', '.tsv', '.jsonl', '.parquet'))}), a folder with train.csv and "
                    "test.csv, or a folder with a folder of .txt files per class")


def _holds_many(path: Path) -> bool:
    """Whether a .txt file is a table: many lines, of several fields or with fastText's labels."""
    try:
        how = find_dialect(path)
    except DataError:
        return False
    return how.fasttext or (how.width > 1 and how.delimiter in ("\t", ";", "|", "::"))


def _folder(path: Path) -> Seen:
    splits = {role_of(folder.name): folder for folder in sorted(path.iterdir()) if folder.is_dir() and role_of(folder.name)}
    base = splits.get("train", path)
    files = {folder.name: _text_files(folder) for folder in folders_in(base, PassedOver())}
    files = {name: paths for name, paths in files.items() if paths}
    if len(files) < 2:
        raise DataError(f"{path}: needs a folder of .txt files for each of two or more classes, or name a table (CSV) of texts and labels")
    every = [file for paths in files.values() for file in paths]
    some = every[:: max(1, len(every) // SAMPLE)]
    encodings = {guessed_encoding(file) for file in some if b"\0" in (content := file.read_bytes()) or not content.isascii()}
    encoding = next(iter(encodings)) if len(encodings) == 1 else None
    sample = [text_rows.text_of(file, encoding, lenient=True)[:LOOKED_AT] for file in some]
    return Seen("folder", Counter({name: len(paths) for name, paths in files.items()}), len(every), _lengths(sample),
                {"encoding": encoding} if encoding else {},
                validation=splits["validation"].name if "validation" in splits else None,
                test=splits["test"].name if "test" in splits else None, sample=sample,
                notes=other_folders(path, list(splits.values()), lambda folder: len(_text_files(folder))) if "train" in splits else [])


def _text_files(folder: Path) -> list[Path]:
    return files_of(folder, TEXT_FILES)


def _frame(path: Path, beside: Sequence[Path] = ()) -> Frame:
    """All rows, by the reader that training uses, in the form of this file and of those `beside` it."""
    text = ending(path) not in (*PARQUET, *JSON_LINES)
    encoding = guessed_encoding(path) if ending(path) not in PARQUET else None
    if text:
        check_width(path, (how := find_dialect(path, beside=beside)).width)
    header = not text or how.header or how.fasttext
    records = text_rows.records(path, named=header, encoding=encoding, beside=beside)
    _, names = next(records)
    lost, rows = LeftOut(), []
    for line, record in records:
        if isinstance(record, str):
            lost.add(f"{path}:{line}: {record}")
        else:
            rows.append(record)
    if not rows:
        where = f" (line {lost.reasons[0].removeprefix(f'{path}:')})" if lost.count else ""
        raise DataError(f"{path}: has no row that can be read{where}")
    columns: dict[str, Sequence[Any]] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return Frame(path, columns, header, {"encoding": encoding} if encoding else {}, lost)


def _table(path: Path, asked: Asked, beside: Sequence[Path] = ()) -> Seen:
    frame = _frame(path, beside)
    columns, facts = frame.values, frame.facts
    given = asked.roles(columns, path, ("split", "group"))
    split, parts = split_column(columns, given.get("split"), path, asked)
    group = given.get("group")
    used = [name for name in (split, group) if name]
    marked = asked.several("label", columns, path)
    free = {name: one for name, one in facts.items() if name not in (*used, *(marked or ()))}
    text = asked.several("text", columns, path)
    pairs = (asked.task or "").startswith("pair_")
    if text is None and (pair := pair_in(free)):
        negative = _negative(free)
        said = "label" in asked.columns or _said({name: one for name, one in facts.items() if name not in (*pair, *used, negative)})
        if not said and asked.task is None and negative:
            asked.task = "pair_ranking"  # texts that belong, and texts that do not
        if not said and asked.task != "pair_ranking":
            raise DataError(_unlabelled(path, pair))
        text, pairs = list(pair), True
    if pairs and (text is None or len(text) != 2):
        raise DataError(f"{path}: no two columns seem to hold the texts of pairs; name both with --text FIRST,SECOND")
    text = text or _text_columns(path, free)
    label: str | list[str] = [] if asked.task == "pair_ranking" else label_column(
        path, {name: one for name, one in facts.items() if name not in (*text, *used)}, columns, most=1 / 3, what="label", asked=asked,
        roles=("label", "rating"))
    if group is None and split is None and not asked.absent("group"):
        taken = (*text, *([label] if isinstance(label, str) else label))
        group = _speaker({name: one for name, one in facts.items() if name not in taken})
    negative = _negative(free) if asked.task == "pair_ranking" else None
    train = [place for place in range(frame.rows) if split is None or role_in(parts, columns[split][place]) == "train"]
    counts, many, separator = _labels(frame, label, train) if label else (Counter[str](), False, None)
    key = (lambda name: name) if frame.header else int
    settings: dict[str, Any] = {"text_key": [key(name) for name in text] if len(text) > 1 else key(text[0]),
                                "label_key": key(label) if isinstance(label, str) else [key(name) for name in label]}
    settings = settings if label else {"text_key": settings["text_key"]}
    settings |= {"negative_key": key(negative)} if negative else {}
    settings |= {"split_key": key(split)} if split else {}
    settings |= {"header": "no"} if not frame.header else {}
    settings |= frame.settings | ({"labels": "many"} if many else {})
    settings |= {"label_separator": separator} if separator and separator not in (";", "[") else {}
    settings |= {"group_by": key(group)} if group else {}
    unlabelled = isinstance(label, str) and not many and any(text_rows.title(columns[label][place]) is None for place in train)
    if frame.lost.count or unlabelled:
        settings["on_bad_example"] = "skip"
    sample = [" ".join(str(columns[name][place])[:LOOKED_AT] for name in text) for place in train[:: max(1, len(train) // SAMPLE)]]
    notes = [note] if (note := frame.passed_over()) else []
    notes += not_used(frame.names, [*text, *([label] if isinstance(label, str) else label), *used, group, negative])
    return Seen("table", counts, len(train), _lengths(sample), settings, parts.get("validation"), parts.get("test"),
                label=label, notes=notes, sample=sample, pairs=pairs)


def _speaker(facts: dict[str, Facts]) -> str | None:
    """A column that says whose texts they are, where many are of the same."""
    return next((name for name, one in facts.items() if FEWEST_SPEAKERS <= one.distinct <= one.present / 2
                 and plain(name) in SPEAKERS), None)


def _negative(facts: dict[str, Facts]) -> str | None:
    """A column of texts that do not belong to the first ones."""
    return next((name for name, one in facts.items() if one.kind == "text" and plain(name) in NEGATIVES), None)


def _said(facts: dict[str, Facts]) -> str | None:
    """A column with what is said of pairs: classes, or numbers."""
    roles = by_name(facts, ["label", "rating"])
    return roles.get("label") or roles.get("rating") or next((name for name, one in facts.items() if one.few(1 / 3)), None)


def _unlabelled(path: Path, pair: tuple[str, str]) -> str:
    """What is said of pairs of texts of which nothing is said."""
    return (f"{path}: columns {pair[0]} and {pair[1]} are pairs of texts without labels: --task pair_ranking finds the one by the other, "
            "as answers by questions, --task translation writes the second from the first; or name a column of classes or numbers with "
            "--label")


def _labels(frame: Frame, label: str | list[str], train: list[int]) -> tuple[Counter[str], bool, str | None]:
    """(label -> texts of train, whether a text may have several, the separator between them in one column)."""
    if isinstance(label, list):
        sets = [[name for name in label if number_of(frame.values[name][place]) == 1] for place in train]
        return Counter(name for names in sets for name in names), any(len(names) != 1 for names in sets), None
    labels = [frame.values[label][place] for place in train]
    separator = separator_in(Counter(value for value in labels if isinstance(value, str)))
    counts: Counter[str] = Counter()
    for value in labels:
        parts = labels_in(value, separator or ",") if separator or isinstance(value, (list, tuple)) else [value]
        counts.update(one for one in map(text_rows.title, parts) if one is not None)
    return counts, separator is not None or any(isinstance(value, (list, tuple)) for value in labels), separator


def _text_columns(path: Path, facts: dict[str, Facts]) -> list[str]:
    """The column with the longest texts, and a title beside it."""
    def length(one: Facts) -> float:
        return one.length * (one.distinct / max(1, one.present)) * (one.present / max(1, one.rows)) if one.kind == "text" else 0.0

    longest = max((length(one) for one in facts.values()), default=0.0)
    if longest < 3:
        raise DataError(f"{path}: no column seems to hold texts; there are {listed(facts, 'and')}. Name it with --text")
    # a column named text counts unless it is much shorter than the longest: one with codes does not
    best = by_name([name for name, one in facts.items() if length(one) > 0.2 * longest], ["text"]).get("text") or max(
        facts, key=lambda name: length(facts[name]))
    title = by_name([name for name, one in facts.items() if name != best and one.kind == "text" and one.words > 1.2
                     and one.distinct > 0.3 * one.present], ["title"]).get("title")
    return [title, best] if title else [best]


def _lengths(sample: list[str]) -> tuple[int, int]:
    sizes = [len(WORD.findall(text)) for text in sample] or [0]
    return int(median(sizes)), max(sizes)
