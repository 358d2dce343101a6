"""LabelMe's JSON: a file for each picture, with shapes in its pixels. Imports no TensorFlow.

The box of a rectangle, a polygon or a mask is that of its points, the box of a circle that around it; points and lines have none.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.base.json_text import parse_json
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes.pictures import Annotated, Images, Picture, by_folder, start_of

LARGEST = 256 << 20  # bytes of a file, which may hold its picture, too
CORNERS = 64  # of a circle
AREAS = ("rectangle", "polygon", "circle", "mask")


def read(root: Path, outlines: bool = False) -> Annotated:
    """All such files below a folder, each with its picture, and with the outlines of things or without; splits are folders called so.

    Raises:
        DataError: there are none.
    """
    found, images, pictures, others = Annotated({}), Images(root), list[Picture](), Counter[str]()
    for file in sorted(file for file in files_below(root, PassedOver()) if file.suffix.lower() == ".json" and looks_like(start_of(file))):
        try:
            pictures.append(_picture(file, images, found, others, outlines))
        except ValueError as error:
            found.bad.append(f"{file}: no JSON of LabelMe: {error}")
    if not pictures:
        raise DataError(f"{root}: holds no JSON of LabelMe with its picture" + (f": {found.bad[0]}" if found.bad else ""))
    if others:
        shapes = ", ".join(f"{name} ({count:,})" for name, count in others.most_common())
        found.notes.append(f"Shapes without an area are left out: {shapes}.")
    found.splits = by_folder(root, pictures)
    return found


def looks_like(start: bytes) -> bool:
    """Whether a file that begins so is one."""
    return b'"shapes"' in start and (b'"shape_type"' in start or b'"imagePath"' in start)


def _picture(file: Path, images: Images, found: Annotated, others: Counter[str], outlines: bool) -> Picture:
    check_regular(file)
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{file.stat().st_size:,} bytes are more than one has")
    about = parse_json(file.read_bytes())
    if not isinstance(about, dict) or not isinstance(about.get("shapes"), list):
        raise ValueError("it has no list `shapes`")
    boxes, labels, places, drawn = list[list[float]](), list[str](), list[str](), list[list[np.ndarray]]()
    for number, shape in enumerate(about["shapes"], 1):
        try:
            kind = str(shape.get("shape_type") or "polygon")
            if kind not in AREAS:
                others[kind] += 1
                continue
            boxes.append(_around(kind, shape["points"]))
            if outlines:
                drawn.append([_outline(kind, shape["points"], boxes[-1])])
            labels.append(str(shape["label"]))
            places.append(f"shape {number}")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found.bad.append(f"{file}: shape {number}: {'has no ' if isinstance(error, KeyError) else ''}{error}")
            del boxes[len(places):], labels[len(places):], drawn[len(places):]
    name = str(about.get("imagePath") or file.with_suffix(".jpg").name)
    return Picture(images.find(name, file), np.array(boxes), labels, places, file, outlines=drawn if outlines else None)


def _around(kind: str, points: Any) -> list[float]:
    """Left, top, right and bottom."""
    values = np.asarray(points, np.float64)
    if values.ndim != 2 or values.shape[1] != 2 or len(values) < (3 if kind == "polygon" else 2):
        raise ValueError(f"its points are no points of a {kind}")
    if kind == "circle":  # the middle, and a point on it
        radius = math.dist(values[0], values[1])
        return [*(values[0] - radius).tolist(), *(values[0] + radius).tolist()]
    return [*values.min(0).tolist(), *values.max(0).tolist()]


def _outline(kind: str, points: Any, box: list[float]) -> np.ndarray:
    """[points, 2] float32. Raises ValueError of a mask, which is stored as a picture."""
    if kind == "mask":
        raise ValueError("masks inside the JSON are not read; save polygons")
    if kind == "polygon":
        return np.asarray(points, np.float32)
    left, top, right, bottom = box
    if kind == "rectangle":
        return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)
    turn = np.linspace(0, 2 * np.pi, CORNERS, endpoint=False)
    middle, radius = np.array([(left + right) / 2, (top + bottom) / 2]), (right - left) / 2
    return (middle + radius * np.stack([np.cos(turn), np.sin(turn)], 1)).astype(np.float32)
