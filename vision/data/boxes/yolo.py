"""YOLO's text files: one for each picture, with a line `class x y width height` for each box, or `class x y x y x y ...` for a polygon,
whose box counts; x and y are of the middle, all in shares of the picture. Imports no TensorFlow."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipelines.base.errors import DataError
from pipelines.data.divide import ALIASES
from pipelines.data.walk import PassedOver
from vision.data.boxes.pictures import NAMED, Annotated, Picture
from vision.data.files import images_below

LARGEST = 32 << 20  # bytes of one picture's file
LARGEST_YAML = 1 << 20


def read(root: Path, outlines: bool = False) -> Annotated:
    """A folder, or its data.yaml; with the outlines of things or without. Pictures without a file, or with an empty one, have no boxes.

    Raises:
        DataError: no picture has a file, or data.yaml cannot be read.
    """
    folder = root if root.is_dir() else root.parent
    about, classes = _about(root, folder)
    found, numbered = Annotated({}, classes), not classes
    parts = {name: listed for name in ("train", "val", "test") if (listed := _listed(about.get(name), folder, about.get("path")))}
    if "train" not in parts:
        parts = _by_folder(folder)
    labelled = 0
    for name, images in parts.items():
        pictures = []
        for image in images:
            file = labels_of(image)
            labelled += file.is_file()
            pictures.append(_picture(image, file, classes, found, outlines))
        found.splits[name] = pictures
    if not labelled:
        count = sum(map(len, parts.values()))
        raise DataError(f"{root}: beside none of {count:,} pictures, nor in a folder labels in the place of images, lies a text file of "
                        "the same name")
    if numbered:
        found.classes = [str(number) for number in range(1 + max(
            (int(label) for part in found.splits.values() for one in part for label in one.labels), default=0))]
        found.notes.append("The classes have no names (data.yaml or classes.txt would say them): they are called by their numbers.")
    return found


def labels_of(image: Path) -> Path:
    """The text file of a picture: beside it, or with the last folder `images` of its path replaced by `labels`."""
    own = image.with_suffix(".txt")
    if own.is_file():
        return own
    parts = list(image.parts)
    place = next((place for place in reversed(range(len(parts) - 1)) if parts[place].lower() == "images"), None)
    return own if place is None else Path(*parts[:place], "labels", *parts[place + 1:]).with_suffix(".txt")


def _about(root: Path, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """(what data.yaml says, the names of the classes)."""
    files = [root] if root.is_file() else [*folder.glob("data.y*ml"), *folder.glob("*.y*ml")]
    about: dict[str, Any] = {}
    for file in files[:1]:
        if file.stat().st_size > LARGEST_YAML:
            raise DataError(f"{file}: is too large for a data.yaml")
        try:
            loaded = yaml.safe_load(file.read_text("utf-8"))
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            raise DataError(f"{file}: no YAML: {str(error).splitlines()[0]}") from error
        about = loaded if isinstance(loaded, dict) else {}
    names = about.get("names")
    if isinstance(names, dict):
        names = [names[number] for number in sorted(names)]
    if not names:
        named = next((file for name in ("classes.txt", "obj.names", "labels/classes.txt") if (file := folder / name).is_file()), None)
        names = [line.strip() for line in named.read_text("utf-8").splitlines() if line.strip()] if named else []
    return about, [str(name) for name in names]


def _listed(entry: Any, folder: Path, base: Any) -> list[Path]:
    """The pictures of a split of data.yaml: of folders, or of text files that list them; none where they are not there."""
    found: list[Path] = []
    for one in entry if isinstance(entry, list) else [entry] if isinstance(entry, str) else []:
        places = [folder / str(base or ".") / str(one), folder / str(one), folder / str(one).lstrip("./")]
        place = next((place for place in places if place.exists()), None)
        if place is None:
            return []
        if place.is_dir():
            found += images_below(place, PassedOver())
        else:
            lines = [line.strip() for line in place.read_text("utf-8").splitlines() if line.strip()]
            found += [next((path for path in (place.parent / line, folder / line) if path.is_file()), folder / line) for line in lines]
    return found


def _by_folder(folder: Path) -> dict[str, list[Path]]:
    """By the first folder that is called like a split; in one piece where there is no train."""
    parts = dict[str, list[Path]]()
    images = images_below(folder, PassedOver())
    for image in images:
        name = next((part.lower() for part in image.relative_to(folder).parts[:-1] if NAMED.fullmatch(part)), "all")
        parts.setdefault(name, []).append(image)
    return parts if any(name in parts for name in ALIASES["train"]) else {"all": images}


def _picture(image: Path, file: Path, classes: list[str], found: Annotated, outlines: bool) -> Picture:
    boxes, labels, places, shapes = [], [], [], list[list[np.ndarray]]()
    for number, line in enumerate(_lines(file, found), 1):
        if not line.strip():
            continue
        try:
            label, box = parse(line, classes)
            if outlines:
                shapes.append([outline_of(line)])
        except ValueError as error:
            found.bad.append(f"{file}: line {number}: {error}")
            continue
        boxes.append(box)
        labels.append(label)
        places.append(f"line {number}")
    return Picture(image, np.array(boxes, np.float32), labels, places, file, relative=True,
                   outlines=shapes if outlines else None)


def _lines(file: Path, found: Annotated) -> Iterable[str]:
    if not file.is_file():
        return []
    if file.stat().st_size > LARGEST:
        found.bad.append(f"{file}: {file.stat().st_size:,} bytes are more than the boxes of one picture have")
        return []
    return file.read_text("utf-8", "replace").splitlines()


def parse(line: str, classes: list[str]) -> tuple[str, tuple[float, float, float, float]]:
    """(class, left, top, right and bottom in shares of the picture). Raises ValueError that says what is wrong."""
    first, *rest = line.split()
    if not first.isdigit() or (classes and int(first) >= len(classes)):
        raise ValueError(f"{first[:20]!r} is no class number" + (f" from 0 to {len(classes) - 1}" if classes else ""))
    try:
        values = np.array(rest, np.float64)
    except ValueError:
        raise ValueError("a coordinate is no number") from None
    if len(values) == 4:
        (x, y), (width, height) = values[:2], values[2:]
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    elif len(values) >= 6 and len(values) % 2 == 0:
        box = (values[0::2].min(), values[1::2].min(), values[0::2].max(), values[1::2].max())
    else:
        raise ValueError(f"{len(values)} numbers after the class; a box has 4, a polygon 6 or more in pairs")
    return classes[int(first)] if classes else first, tuple(float(value) for value in box)  # type: ignore[return-value]


def outline_of(line: str) -> np.ndarray:
    """The polygon of a line that `parse` takes, [points, 2] float32. Raises ValueError of a box."""
    points = np.array(line.split()[1:], np.float32)
    if len(points) == 4:
        raise ValueError("is a box, and a polygon is needed to learn a mask")
    return points.reshape(-1, 2)
