"""COCO's JSON: images, categories and annotations in one file for each split. Imports no TensorFlow.

Annotations of crowds are left out; of one that has no `bbox`, the box is that of its polygons.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes.json_items import items
from vision.data.boxes.pictures import Annotated, Images, Picture, split_of

START = 1 << 16  # bytes in which a file shows what it is
MOST = 1 << 63  # of numbers that are kept
_KEYS = (b'"images"', b'"annotations"', b'"categories"')


def read(root: Path, outlines: bool = False) -> Annotated:
    """A file, or all such files below a folder, each a split; with the outlines of things or without.

    Raises:
        DataError: there is none, two are of one split, or one is no such JSON.
    """
    folder = root if root.is_dir() else root.parent
    files = [root] if root.is_file() else annotations_below(root)
    if not files:
        raise DataError(f"{root}: holds no JSON with COCO's images and annotations")
    named = dict[str, Path]()
    for file in files:
        name = split_of(file, folder) if len(files) > 1 else "all"
        if name in named:
            raise DataError(f"{file} and {named[name]} both seem to be split {name}; name one of them as data.path")
        named[name] = file
    found, categories, images = Annotated({}), dict[int, str](), Images(folder)
    for name, file in named.items():
        found.splits[name] = _pictures(file, categories, images, found, outlines)
    found.classes = [categories[number] for number in sorted(categories)]
    twice = next((name for name in found.classes if found.classes.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{root}: two categories are called {twice!r}")
    return found


def annotations_below(folder: Path) -> list[Path]:
    """The JSON files of COCO's form; where some are called instances, these."""
    files = sorted(file for file in files_below(folder, PassedOver()) if file.suffix.lower() == ".json" and looks_like(file))
    return [file for file in files if file.stem.startswith("instances")] or files


def looks_like(file: Path) -> bool:
    """Whether the beginning of a file, or its end, has two of COCO's keys or a box."""
    with file.open("rb") as opened:
        text = opened.read(START)
        opened.seek(max(0, file.stat().st_size - START))
        text += opened.read(START)
    return sum(key in text for key in _KEYS) >= 2 or (b'"bbox"' in text and any(key in text for key in _KEYS))


@dataclass
class _Rows:
    """The annotations of one image."""

    boxes: array = field(default_factory=lambda: array("d"))
    categories: array = field(default_factory=lambda: array("q"))
    numbers: array = field(default_factory=lambda: array("q"))
    outlines: list[Any] = field(default_factory=list)


def _pictures(file: Path, categories: dict[int, str], images: Images, found: Annotated, outlines: bool) -> list[Picture]:
    names, rows, own, crowds = dict[Any, str](), defaultdict[Any, _Rows](_Rows), dict[int, str](), 0
    for key, value in items(file):
        if key not in ("images", "annotations", "categories"):
            continue
        if not isinstance(value, Mapping):
            raise DataError(f"{file}: {key}: {str(value)[:60]!r} is no object")
        try:
            if key == "images":
                names[value["id"]] = str(value["file_name"])
            elif key == "categories":
                own[int(value["id"])] = str(value["name"])
            elif value.get("iscrowd"):
                crowds += 1
            else:
                _add(value, rows, outlines)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            found.bad.append(f"{file}: {key}: {_shown(value)}: {'no ' if isinstance(error, KeyError) else ''}{error}")
    _check_categories(own, categories, file)
    if crowds:
        found.notes.append(f"{file.name}: {crowds:,} annotations of crowds are left out.")
    unknown = set(rows) - set(names)
    if unknown:
        found.bad.append(f"{file}: {len(unknown):,} images have annotations and are not listed, such as id {next(iter(unknown))}")
    pictures = []
    for number, name in names.items():
        one = rows.get(number, _Rows())
        known = [place for place, category in enumerate(one.categories) if category in categories]
        found.bad += [f"{file}: annotation {one.numbers[place]}: there is no category {one.categories[place]}"
                      for place in sorted(set(range(len(one.categories))) - set(known))]
        boxes = np.array(one.boxes).reshape(-1, 4)[known]
        boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        pictures.append(Picture(images.find(name, file), boxes, [categories[one.categories[place]] for place in known],
                                [f"annotation {one.numbers[place]}" for place in known], file,
                                outlines=[one.outlines[place] for place in known] if outlines else None))
    return pictures


def _check_categories(own: Mapping[int, str], categories: dict[int, str], file: Path) -> None:
    for number, name in own.items():
        if categories.setdefault(number, name) != name:
            raise DataError(f"{file}: category {number} is {name!r}, and {categories[number]!r} in another split")


def _add(value: Mapping[str, Any], rows: Mapping[Any, _Rows], outlines: bool) -> None:
    outline = value.get("segmentation")
    if outlines:
        outline = _outline(outline)
    box = value.get("bbox") or _around(outline)
    if box is None or len(box) != 4:
        raise ValueError("has no bbox of four numbers (x, y, width, height), and no polygon from which to take it")
    numbers, category = [float(number) for number in box], int(value["category_id"])
    if not -MOST <= category < MOST:  # said before anything is kept
        raise ValueError(f"there is no category {category}")
    one, own = rows[value["image_id"]], value.get("id")
    one.boxes.extend(numbers)
    one.categories.append(category)
    if outlines:
        one.outlines.append(outline)
    one.numbers.append(own if isinstance(own, int) and -MOST <= own < MOST else len(one.numbers))  # of other ids: the how manieth


def _outline(given: Any) -> Any:
    """Polygons, or runs. Raises ValueError."""
    if isinstance(given, Mapping) and {"size", "counts"} <= given.keys():
        return given
    if not isinstance(given, list) or not given:
        raise ValueError("has no segmentation: polygons, or size and counts")
    return [np.asarray(one, np.float32).reshape(-1, 2) for one in given]


def _around(polygons: Any) -> list[float] | None:
    """x, y, width and height of polygons; None where there are none."""
    if not isinstance(polygons, list) or not polygons:
        return None
    points = np.concatenate([np.asarray(one, np.float64).reshape(-1, 2) for one in polygons])
    low, high = points.min(0), points.max(0)
    return [*low.tolist(), *(high - low).tolist()]


def _shown(value: Mapping[str, Any]) -> str:
    return f"id {value['id']}" if "id" in value else str(dict(value))[:60]
