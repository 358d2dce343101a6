"""Where texts and labels lie - embedded, TFDS, tables, folders - opened as the data's own splits, nothing divided yet.

All texts of a split are in memory. A bad example (no text, no label, NUL bytes, too long, a broken row) is named by its place, and
stops or is skipped as data.on_bad_example says.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data import quickstart
from nlp.data.rows import Rows as Rows
from nlp.settings import SOURCES, AnswerData, Reject, TagData, TextData, text_keys
from pipelines.base.errors import DataError
from pipelines.config.messages import show
from pipelines.data import folders, text_rows
from pipelines.data.files import TensorSource
from pipelines.data.fingerprint import of_files
from pipelines.data.label_sets import labels_of_cell, labels_of_ones, named, one_example_each
from pipelines.data.number_columns import TARGET, NumberColumns
from pipelines.data.opened import Opened, check_columns, check_skipped
from pipelines.data.records import tfds_source
from pipelines.data.source import Source, Tensors
from pipelines.data.tables import class_names, one_hot, split_names
from pipelines.data.tfds import features, prepared
from pipelines.stores.remote import local

MISSING = NO_TEXT, NO_LABEL = "no text", "no label"
NEGATIVE = "text_negative"  # of pairs: a text that does not belong to the first one
OUTSIDE = -1  # label of a text that fits no class, while the data are divided
SUFFIXES = {".txt", ".text"}


class TextSource(TensorSource):
    """Texts in memory: examples {"text": string, "label": int64 or [classes] float32, "weight": float32}; of pairs also "text_pair".

    Args:
        texts: [n] string, or [n, 2] pairs.
        values: further entries.
        names: the name of example i in messages.
    """

    def __init__(self, texts: tf.Tensor, values: Tensors, names: Callable[[int], str], *, fingerprint: str,
                 labels: np.ndarray | None = None, groups: np.ndarray | None = None):
        own = {"text": texts} if texts.shape.rank == 1 else dict(zip(("text", "text_pair"), tf.unstack(texts, 2, axis=1)))
        super().__init__({**own, **values}, title="", fingerprint=fingerprint, labels=labels, groups=groups)
        self.texts = texts
        self._names = names

    def name(self, number: int) -> str:
        return self._names(number)


class Loaded(TextSource):
    """A split as loaded: `label_sets` [n] tuples of class numbers where texts have several labels."""

    label_sets: list[tuple[int, ...]] | None = None


def open_data(data: TextData, reject: Reject | None = None, *, elsewhere: bool = False, numbers: NumberColumns | None = None) -> Opened:
    """The data set. Raises DataError that names file, row or feature and the remedy.

    Args:
        numbers: that are to be predicted, in the place of classes; they stand in the examples as `target`.
        elsewhere: the data need not be those of the training, so they need not have the splits that `reject.splits` names.
    """
    pattern = reject.splits if reject else None
    found = SOURCES.build(data, pattern=pattern, numbers=numbers)
    place, names, read, classes = found if isinstance(found, tuple) else _own(found, data, numbers)
    apart = {name: pattern.format(split=name) for name in names if pattern.format(split=name) in names} if pattern else {}
    if pattern and not apart and not elsewhere:
        raise DataError(f"reject.splits: {pattern}: {place} has no such split beside {', '.join(sorted(names))}")

    def load(split: str) -> Source:
        kept = usable(read(split, True), data, opened, f"{place}: split {split}")
        marked = [reject is not None and reject.label is not None and label == reject.label for label in kept.labels]
        if split in apart:
            more = usable(read(apart[split], False), data, opened, f"{place}: split {apart[split]}", labelled=False)
            kept, own = _appended(kept, more), len(kept.labels)
            marked += [True] * (len(kept.labels) - own)
        return _with_numbers(kept) if numbers else _numbered(kept, marked, data, opened)

    opened = Opened(place, [name for name in names if name not in apart.values()], load, classes)
    return opened


def open_unlabelled(data: TextData) -> Opened:
    """The data set of texts of which nothing is said; with data.negative_key examples have `text_negative`. Raises as `open_data`."""
    found = SOURCES.build(data, pattern=None, numbers=None)
    place, names, read, _ = found if isinstance(found, tuple) else _own(found, data, None)

    def load(split: str) -> Source:
        kept = usable(read(split, False), data, opened, f"{place}: split {split}", labelled=False)
        values = {NEGATIVE: tensor_of(kept.labels)} if any(label is not None for label in kept.labels) else {}
        return Loaded(tensor_of(kept.texts), values, kept.places, fingerprint=kept.fingerprint,
                      groups=None if kept.groups is None else np.array(kept.groups))

    opened = Opened(place, names, load, [])
    return opened


def usable(rows: Rows, data: TextData | TagData | AnswerData, opened: Opened, place: str, *, labelled: bool = True) -> Rows:
    """The rows without bad ones. Raises DataError for the first where data.on_bad_example is stop."""
    bad, keep = list(rows.bad), []
    tensor = isinstance(rows.texts, tf.Tensor)
    stored: Any = rows.texts.numpy().tolist() if tensor else rows.texts
    for number, label in enumerate(rows.labels):
        texts = stored[number] if data.pairs else (stored[number],)
        reason = next(filter(None, (_wrong(text, data) for text in texts)), None)
        if reason is None and label is None and data.labels == "one" and labelled:
            reason = NO_LABEL
        if reason:
            bad.append((rows.places(number), reason))
        else:
            keep.append(number)
    if bad and data.on_bad_example == "stop":
        place, reason = bad[0]
        more = f" (and {len(bad) - 1:,} more such examples)" if len(bad) > 1 else ""
        raise DataError(f"{place}: {reason}{more}. Repair or remove it, or set data.on_bad_example: skip; `quartet check` lists them all.")
    reasons = [f"{place}: {reason}" for place, reason in bad]
    opened.skipped.extend(reasons)
    check_skipped([reason for reason, (_, why) in zip(reasons, bad) if why not in MISSING], len(keep) + len(bad), data,
                  place)
    if len(keep) == len(rows.labels):
        return rows
    if not keep:
        raise DataError(f"{opened.place}: not one example can be used; the first: {bad[0][0]}: {bad[0][1]}")
    texts = tf.gather(rows.texts, keep) if tensor else [rows.texts[number] for number in keep]
    places = rows.places
    return Rows(texts, [rows.labels[number] for number in keep], lambda number: places(keep[number]),
                None if rows.groups is None else [rows.groups[number] for number in keep], [], rows.fingerprint)


def _wrong(text: Any, data: TextData | TagData | AnswerData) -> str | None:
    """Why a text cannot be used; None where it can."""
    if not isinstance(text, (str, bytes)):
        return NO_TEXT if text is None else f"{show(text)} is not a text"
    if len(text) > data.longest:
        return f"a text of {len(text):,} characters (data.longest is {data.longest:,}); usually a quotation mark that is not closed"
    if isinstance(text, str) and "\0" in text:
        return "NUL bytes in the text: the file is damaged, or has another encoding (data.encoding)"
    return None


def _appended(rows: Rows, more: Rows) -> Rows:
    own, others = len(rows.labels), len(more.labels)
    texts = tf.concat([tensor_of(rows.texts), tensor_of(more.texts)], 0)
    groups = None if rows.groups is None or more.groups is None else rows.groups + more.groups
    first, second = rows.places, more.places
    return Rows(texts, rows.labels + [None] * others, lambda number: first(number) if number < own else second(number - own), groups, [],
                hashlib.sha256(f"{rows.fingerprint} {more.fingerprint}".encode()).hexdigest()[:16])


def tensor_of(texts: Any) -> tf.Tensor:
    if isinstance(texts, tf.Tensor):
        return texts
    with tf.device("CPU:0"):
        return tf.constant([[one.encode("utf-8", "replace") for one in text] if isinstance(text, tuple) else
                            text.encode("utf-8", "replace") for text in texts], tf.string)


def _numbered(rows: Rows, marked: Sequence[bool], data: TextData, opened: Opened) -> Source:
    """Labels as numbers of opened.classes, to which new ones are appended."""
    many = data.labels == "many"
    seen = {title for label in rows.labels for title in (label if many else (label,))} if many else {
        label for label, outside in zip(rows.labels, marked) if not outside}
    opened.classes.extend(class_names(list(seen - set(opened.classes))))
    numbers = {title: number for number, title in enumerate(opened.classes)}
    labels = None if many else np.array([OUTSIDE if outside else numbers[label] for label, outside in zip(rows.labels, marked)], np.int64)
    source = Loaded(tensor_of(rows.texts), {}, rows.places, fingerprint=rows.fingerprint, labels=labels,
                    groups=None if rows.groups is None else np.array(rows.groups))
    if many:
        source.label_sets = [tuple(sorted({numbers[title] for title in label})) for label in rows.labels]
    return source


def _with_numbers(rows: Rows) -> Source:
    """Rows whose labels are tuples of numbers."""
    with tf.device("CPU:0"):
        targets = tf.constant(np.array(rows.labels, np.float32))
    return Loaded(tensor_of(rows.texts), {TARGET: targets}, rows.places, fingerprint=rows.fingerprint,
                  groups=None if rows.groups is None else np.array(rows.groups))


# place, splits, one of them (with labels, or of texts that need none), classes known from the start
Read = tuple[str, list[str], Callable[[str, bool], Rows], list[str]]


def read_shipped(data: TextData, pattern: str | None, numbers: NumberColumns | None) -> Read:
    """The data of the sources that ship with Quartet."""
    if data.source in ("quick", "folder"):
        return {"quick": _quick, "folder": _folder}[data.source](data, pattern)
    return {"tfds": _tfds, "table": _table}[data.source](data, pattern, numbers)


def read_shipped_tables(data: TextData) -> Read:
    """Tables of texts alone."""
    return _table(data, None, None)


def _own(splits: Mapping[str, Mapping[str, Any]], data: TextData, numbers: NumberColumns | None) -> Read:
    """A registered source: split -> {"text": [n], of pairs "text_pair": [n], "label": [n], "group": [n] where data.group_by asks}; with
    labels: many a label may be a list, and where numbers are predicted it is [n] or [n, columns]."""
    place, groups = f"source {data.source}", ("group",) if data.group_by else ()
    keys = ("text", "text_pair") if data.pairs else ("text",)
    check_columns(splits, (*keys, *groups), data.source)

    def read(split: str, labelled: bool) -> Rows:
        columns = splits[split]
        check_columns({split: columns}, (*keys, *(("label",) if labelled else ()), *groups), data.source)
        parts = [[str(text) if isinstance(text, str) else text for text in columns[key]] for key in keys]
        texts = list(zip(*parts)) if data.pairs else parts[0]
        stored = columns["label"] if labelled else [None] * len(texts)
        labels: list[Any] = [labels_of_cell(value, data.label_separator) if data.labels == "many" else text_rows.title(value)
                             for value in stored] if numbers is None else _rows_of(numbers.in_array(stored, f"{place} {split}"))
        own = [str(group) for group in columns["group"]] if groups else None
        digest = hashlib.sha256(json.dumps([texts, labels, own], default=str).encode()).hexdigest()[:16]
        return Rows(texts, labels, lambda number: f"{place} {split}[{number}]", own, [], digest)

    return place, sorted(splits), read, []


def _quick(data: TextData, _: str | None) -> Read:
    texts, labels, groups = quickstart.sentences()
    by = {"pattern": groups, None: None}
    if data.group_by not in by:
        raise DataError(f"data.group_by: {data.group_by}: the embedded sentences have the groups of their patterns only: set pattern")
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    rows = Rows(texts, labels, lambda number: f"sentence {number}: {texts[number]}", by[data.group_by], [], digest)
    return "the embedded sentences", ["all"], lambda split, labelled: rows, []


def _rows_of(targets: np.ndarray) -> list[tuple[float, ...]]:
    return [tuple(row) for row in targets.tolist()]


def _tfds(data: TextData, _: str | None, numbers: NumberColumns | None) -> Read:
    name = data.name or ""
    builder = prepared(name, data.data_dir)
    known = features(builder)
    wanted = {f"text{place}": str(key) for place, key in enumerate(text_keys(data))} | {"label": str(data.label_key)}
    label = known.get(str(data.label_key))
    titles = list(getattr(label, "names", None) or []) if hasattr(label, "int2str") else []
    many = data.labels == "many"
    if label is not None and not many and not numbers and label.shape != ():
        raise DataError(f"data.label_key: feature {data.label_key} of {name} is not one label for each example: {label}; "
                        "set data.labels: many where a text has several")

    def read(split: str, labelled: bool) -> Rows:
        source = tfds_source(name, split, fields=wanted, data_dir=data.data_dir, group=data.group_by)
        values = source.gather(tf.range(len(source), dtype=tf.int64))
        texts = [values[key] for key in wanted if key != "label"]
        if texts[0].dtype != tf.string:
            raise DataError(f"data.text_key: feature {wanted['text0']} of {name} is not a text: {known[wanted['text0']]}")
        joined = tf.stack(texts, 1) if data.pairs else texts[0] if len(texts) == 1 else tf.strings.join(texts, data.join)
        stored = values["label"]
        raw = stored.to_list() if isinstance(stored, tf.RaggedTensor) else stored.numpy().tolist()

        def title(value: Any) -> Any:
            if isinstance(value, bytes):
                return value.decode("utf-8", "replace").strip() or None
            if isinstance(value, int) and value < 0:
                return None
            return titles[value] if titles else str(value)

        labels: list[Any] = _rows_of(numbers.in_array(raw, f"{source.title()} {data.label_key}")) if numbers else [
            tuple(map(title, each)) if isinstance(each, list) else
            labels_of_cell(title(each), data.label_separator) if many else title(each) for each in raw]
        groups = None if source.groups is None else source.groups.tolist()
        return Rows(joined, labels, source.name, groups, [], source.fingerprint())

    return builder.info.full_name, sorted(builder.info.splits), read, list(titles)


def _folder(data: TextData, _: str | None) -> Read:
    opened = folders.read_folders(data.path or "", key="text", suffixes=SUFFIXES, kind="text", group_by=data.group_by)

    def read(split: str, labelled: bool) -> Rows:
        source = opened.splits[split]
        source = one_example_each(source, len(opened.classes)) if data.labels == "many" else source
        texts: list[Any] = []
        bad: list[tuple[str, str]] = []
        keep = []
        for number, path in enumerate(source.paths):
            try:
                texts.append(text_rows.text_of(Path(path), data.encoding))
                keep.append(number)
            except OSError as error:
                bad.append((path, error.strerror or str(error)))
            except DataError as error:
                bad.append((path, str(error).removeprefix(f"{path}:")))
        labels = named(source, opened.classes, keep)
        groups = None if source.groups is None else [str(source.groups[number]) for number in keep]
        return Rows(texts, labels, lambda number: source.name(keep[number]), groups, bad, source.fingerprint())

    return str(data.path), sorted(opened.splits), read, []


def _table(data: TextData, beside: str | None, numbers: NumberColumns | None) -> Read:
    path = local(data.path or "")
    if path.is_dir():
        files = text_rows.split_files(path, beside, (data.validation, data.test))
        if data.split_key is not None:
            raise DataError(f"data.split_key: {path} has a file for each split already ({', '.join(file.name for file in files.values())})")
        return str(path), sorted(files), lambda split, labelled: _rows(files[split], data, labelled, list(files.values()), numbers)[0], []
    whole, parts = _rows(path, data, numbers=numbers)
    if parts is None:
        return str(path), ["all"], lambda split, labelled: whole, []

    def read(split: str, labelled: bool) -> Rows:
        numbers = [number for number, part in enumerate(parts) if part == split]
        first = split == parts[0]
        return Rows([whole.texts[number] for number in numbers], [whole.labels[number] for number in numbers],
                    lambda number: whole.places(numbers[number]),
                    None if whole.groups is None else [whole.groups[number] for number in numbers],
                    whole.bad if first else [], f"{whole.fingerprint}-{split}")

    return str(path), sorted(set(parts)), read, []


def _rows(path: Path, data: TextData, labelled: bool = True, beside: Sequence[Path] = (),
          numbers: NumberColumns | None = None) -> tuple[Rows, list[str] | None]:
    """The rows of a table, and each row's split where a column names it; without `labelled` no label column is needed. Its form is that of
    the files `beside` it, too."""
    keys, labelled = text_keys(data), labelled and data.labelled
    marks = data.label_key if isinstance(data.label_key, list) else [data.label_key]
    wanted = [*keys, *(marks if labelled else [])]
    names = ["data.text_key"] * len(keys) + ["data.label_key"] * (len(wanted) - len(keys))
    negative = getattr(data, "negative_key", None)
    for key, setting in ((negative, "data.negative_key"), (data.split_key, "data.split_key"), (data.group_by, "data.group_by")):
        if key is not None:
            wanted.append(key)
            names.append(setting)
    table = text_rows.read(path, wanted, settings=names, header=data.header, delimiter=data.delimiter, encoding=data.encoding,
                           quote=data.quote, lenient=data.on_bad_example == "skip", names=data.columns, beside=beside)
    columns = table.values
    texts: list[Any] = columns[0]
    if data.pairs:
        texts = list(zip(*columns[:2]))
    elif len(keys) > 1:
        texts = [None if all(part is None for part in parts) else data.join.join("" if part is None else str(part) for part in parts)
                 for parts in zip(*columns[:len(keys)])]
    rest = columns[len(keys):]
    labels: list[Any]
    if numbers:
        labels = _rows_of(numbers.read([rest.pop(0) for _ in marks], table.place))
    elif labelled and isinstance(data.label_key, list):
        stored = {table.columns[key] if isinstance(key, int) else key: rest.pop(0) for key in marks}
        labels = labels_of_ones(stored) if data.labels == "many" else one_hot(stored, table.place)
    else:
        values = rest.pop(0) if labelled else [None] * len(texts)
        labels = [labels_of_cell(value, data.label_separator) if data.labels == "many" else text_rows.title(value) for value in values]
    if negative is not None:
        labels = ["" if value is None else str(value) for value in rest.pop(0)]
    splits = split_names([text_rows.title(value) or "" for value in rest.pop(0)], data) if data.split_key is not None else None
    groups = [text_rows.title(value) or "" for value in rest.pop(0)] if data.group_by is not None else None
    settings = f"{wanted} {data.join!r} {data.header} {data.delimiter} {data.encoding} {data.labels}"
    digest = hashlib.sha256(f"{of_files([path], path.parent, whole=True)} {settings}".encode()).hexdigest()[:16]
    bad = [(f"{path}:{line}", reason) for line, reason in table.bad]
    if splits is not None and (empty := next((number for number, part in enumerate(splits) if not part), None)) is not None:
        raise DataError(f"{table.place(empty)}: no value in column {data.split_key} (data.split_key)")
    return Rows(texts, labels, table.place, groups, bad, digest), splits
