"""Tables with a row for each box: a column of files, four of the box and one of the class, in whatever order and by whatever usual name.

A box is two corners, a corner and its size, or its middle and its size; in pixels, or in shares of the picture where no number of the whole
table is larger than 1. Pictures without boxes have a row without numbers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data.dialect import TEXT, ending
from pipelines.data.tables import LeftOut, file_paths, line_numbers, read_table, split_names, values_of
from pipelines.data.walk import pattern_of_files
from vision.data.boxes import columns
from vision.data.boxes.pictures import Annotated, Picture
from vision.data.files import ENDINGS
from vision.settings import BoxData

SHARES = 1.0 + 1e-6


def read(path: Path, data: BoxData) -> Annotated:
    """Raises DataError for a table that does not name files, classes and boxes."""
    lost, names = LeftOut(), data.columns or _bare(path)
    how: dict[str, Any] = {"delimiter": data.delimiter, "encoding": data.encoding, "quote": data.quote}
    table = read_table(path, names=names, left_out=lost if data.on_bad_example == "skip" else None, **how)
    roles = columns.of(table.column_names, path)
    if table.schema.field(roles["label"]).type != "string":  # 007 stays 007
        table = read_table(path, text=[roles["label"], roles["file"]], names=names, left_out=LeftOut(), **how)
    found = Annotated({}, bad=list(lost.reasons))
    numbers = np.stack(list(_corners(table, roles, path, found)), 1)
    empty = np.isnan(numbers).all(1) & np.array([value in (None, "") or value != value for value in table[roles["first"]].to_pylist()])
    relative = bool(np.nanmax(np.abs(numbers), initial=0.0) <= SHARES)
    values = [str(value) if value is not None else "" for value in table[roles["file"]].to_pylist()]
    pattern = data.file_pattern or _pattern(path, values)
    files = file_paths(values, path, pattern, roles["file"])
    labels = [str(value).strip() if value is not None else "" for value in table[roles["label"]].to_pylist()]
    key = data.split_key or roles.get("split")
    parts = split_names(values_of(table, key, path, "data.split_key"), data) if key else ["all"] * len(files)
    lines = line_numbers(path, header=names is None) if ending(path) in TEXT else np.arange(1, len(files) + 1)
    word = "line" if ending(path) in TEXT else "row"
    bare = [row for row in np.flatnonzero(~empty).tolist() if not labels[row]]
    found.bad += [f"{path}: {word} {lines[row]}: the box has no class" for row in bare]
    empty[bare] = True
    for name, rows in _grouped(files, parts):
        there = [row for row in rows if not empty[row]]
        found.splits.setdefault(name, []).append(Picture(
            files[rows[0]], numbers[there], [labels[row] for row in there], [f"{word} {lines[row]}" for row in there], path, relative))
    if relative:
        found.notes.append("The numbers of the boxes are shares of the pictures: none is larger than 1.")
    return found


def _grouped(files: Sequence[Path], parts: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """(split, rows) of each picture, in the order in which they are named first."""
    rows = dict[tuple[str, Path], list[int]]()
    for number, key in enumerate(zip(parts, files)):
        rows.setdefault(key, []).append(number)
    for (name, _), numbers in rows.items():
        yield name, numbers


def _bare(path: Path) -> list[str] | None:
    """The columns of a CSV without a header; None where it has one."""
    if ending(path) not in TEXT or path.suffix.lower() == ".gz":
        return None
    with path.open("rb") as file:
        return columns.bare(file.readline(1 << 16).decode("utf-8", "replace"))


def _corners(table: Any, roles: Mapping[str, Any], path: Path, found: Annotated) -> Iterator[np.ndarray]:
    """left, top, right and bottom of all rows, float64, NaN where there is no number."""
    kind, names = roles["box"]
    if kind == "one":
        rows = [_four(value) for value in table[names[0]].to_pylist()]
        first, second, third, fourth = np.array(rows, np.float64).T
    else:
        first, second, third, fourth = (np.array([_number(value) for value in table[name].to_pylist()]) for name in names)
    if kind == "corners":
        yield from (first, second, third, fourth)
        return
    shift = 0.5 if kind == "middled" else 0.0
    yield from (first - shift * third, second - shift * fourth, first + (1 - shift) * third, second + (1 - shift) * fourth)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _four(value: Any) -> list[float]:
    """Four numbers of a list, or of a text such as "[1, 2, 3, 4]"."""
    if isinstance(value, str):
        value = [part for part in re.split(r"[\s,;\[\]()]+", value) if part]
    numbers = [_number(one) for one in value] if isinstance(value, (list, tuple)) else []
    return numbers if len(numbers) == 4 else [float("nan")] * 4


def _pattern(path: Path, values: Sequence[str]) -> str | None:
    """Where the files lie that are not below the table's folder."""
    some = list(dict.fromkeys(values))[:200]
    if not some or (path.parent / some[0]).is_file():
        return None
    return pattern_of_files(path.parent, some, ["", *ENDINGS])
