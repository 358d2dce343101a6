"""Several labels an example, or none: how cells and columns name them, and the splits that hold those of train alone.

Read, they are a tuple of names for each example; stored, the entry `label` of a source, [labels] float32 of 0 and 1.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.config.schema import Data
from pipelines.data.columns import number_of
from pipelines.data.files import FileSource
from pipelines.data.kinds import labels_in
from pipelines.data.opened import Opened
from pipelines.data.relabelled import Relabelled
from pipelines.data.source import Source
from pipelines.data.tables import class_names, column, labels_of, numbered
from pipelines.data.text_rows import title

Names = tuple[str, ...]


def labels_of_cell(value: Any, separator: str) -> Names:
    """The labels in a cell or entry - a list, a list written as text, names between separators - each once; none of an empty one."""
    return tuple(dict.fromkeys(name for name in map(title, labels_in(value, separator)) if name))


def labels_of_ones(columns: Mapping[str, Iterable[Any]]) -> list[Names]:
    """For each row the names of the columns that hold 1."""
    names = list(columns)
    return [tuple(name for name, value in zip(names, row) if number_of(value) == 1) for row in zip(*columns.values())]


def labels_of_array(stored: Any, separator: str = ";") -> list[Names]:
    """Of each example: from a cell each, or an array [n, labels] of 0 and 1, whose labels are numbers. Raises DataError for another one."""
    array = np.asarray(stored) if not isinstance(stored, (list, tuple)) else None
    if array is None or array.ndim == 1:
        return [labels_of_cell(value, separator) for value in (stored if array is None else array.tolist())]
    if array.ndim != 2 or not np.isin(array, (0, 1)).all():
        raise DataError(f"labels of the shape {list(array.shape)} are not [examples, labels] of 0 and 1")
    return [tuple(str(place) for place in np.flatnonzero(row)) for row in array]


def labels_in_table(table: pa.Table, data: Any, path: str | Path) -> list[Any]:
    """Of each row of a table its label, or with data.labels: many its labels. Raises DataError as `tables.labels_of` does."""
    key, separator = data.label_key, data.label_separator
    if data.labels == "one":
        return labels_of(table, key, path)
    if isinstance(key, str):
        return [labels_of_cell(value, separator) for value in column(table, key, path, "data.label_key").to_pylist()]
    return labels_of_ones({name: column(table, name, path, "data.label_key").to_pylist() for name in key})


def coded(labels: Sequence[Any], classes: list[str]) -> np.ndarray:
    """The number of each label in `classes`, [n] int64; of several labels each 0 or 1, [n, labels] float32. New names are appended."""
    if not len(labels) or not isinstance(labels[0], tuple):
        return numbered(labels, classes)
    classes.extend(class_names(list({name for names in labels for name in names} - set(classes))))
    numbers, sets = {name: number for number, name in enumerate(classes)}, np.zeros((len(labels), len(classes)), np.float32)
    for row, names in zip(sets, labels):
        row[[numbers[name] for name in names]] = 1.0
    return sets


def named(source: Source, classes: Sequence[str], numbers: Iterable[int]) -> list[Any]:
    """The label, or labels, of some examples by name."""
    if source.sets is not None:
        return [tuple(classes[place] for place in np.flatnonzero(source.sets[number]).tolist()) for number in numbers]
    return [classes[source.labels[number]] for number in numbers] if source.labels is not None else []


def one_example_each(source: FileSource, classes: int) -> FileSource:
    """Files in class folders as examples of several labels: those of one name and content are one example."""
    places: dict[tuple[str, str], list[int]] = {}
    names = [Path(path).name for path in source.paths]
    single = {name for name, count in zip(*np.unique(names, return_counts=True)) if count == 1}
    for number, (name, path) in enumerate(zip(names, source.paths)):
        content = "" if name in single else _content(path)
        places.setdefault((name, content), []).append(number)
    sets = np.zeros((len(places), classes), np.float32)
    for row, numbers in zip(sets, places.values()):
        row[np.asarray(source.labels)[numbers]] = 1.0
    first = [numbers[0] for numbers in places.values()]
    groups = None if source.groups is None else source.groups[first]
    return FileSource([source.paths[number] for number in first], key=source.key, root=source.root, labels=sets, groups=groups)


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return path  # an example by itself; whoever reads it says why it cannot be read


def of_trained_labels(train: Source, validation: Source | None, test: Source | None, opened: Opened[Any], data: Data, skipped: list[str],
                      ) -> tuple[Source, Source | None, Source | None, list[str]]:
    """The splits with the labels that train has examples of, and their names; examples that have others are named in `skipped`.

    Raises:
        DataError: there are such examples, and data.on_bad_example is stop; or train has no label at all.
    """
    known = np.flatnonzero(_sets(train).any(0))
    names = [opened.classes[label] for label in known]
    if not names:
        raise DataError(f"{opened.place}: train has examples of no label; add examples that have one")

    def of_known(part: str, source: Source | None) -> Source | None:
        if source is None:
            return None
        other = np.delete(_sets(source), known, axis=1)
        unknown = np.flatnonzero(other.any(1))
        titles = np.delete(np.array(opened.classes[:_sets(source).shape[1]], object), known)
        if len(unknown) and data.on_bad_example == "stop":
            absent = titles[other.any(0)].tolist()
            raise DataError(f"{opened.place}: {part} has labels of which train has no example: {', '.join(absent[:5])}"
                            f"{' ...' if len(absent) > 5 else ''} (such as {source.name(int(unknown[0]))}); add examples to train, or "
                            "remove them, or set data.on_bad_example: skip")
        skipped.extend(f"{source.name(int(number))}: label {titles[other[number].argmax()]} is not in train" for number in unknown)
        kept = source.subset(np.setdiff1d(np.arange(len(source)), unknown)) if len(unknown) else source
        if not other.shape[1]:
            return kept
        table = np.full(_sets(source).shape[1] + 1, -1, np.int64)
        table[known], table[-1] = np.arange(len(known)), len(known)
        return Relabelled(kept, table)

    return of_known("train", train) or train, of_known("validation", validation), of_known("test", test), names  # train has none of others


def _sets(source: Source) -> np.ndarray:
    if source.sets is None:
        raise DataError(f"{source.name(0)} and the rest have no labels")
    return source.sets
