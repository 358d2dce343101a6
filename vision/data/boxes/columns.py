"""Which columns of a table hold pictures, boxes and classes, by their usual names. Imports no TensorFlow."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.config.messages import listed
from vision.data.files import ENDINGS

FILE = ("file", "filename", "filepath", "path", "image", "imagepath", "imagename", "imageid", "img", "imgname")
LABEL = ("label", "class", "classname", "labelname", "category", "categoryname", "name", "object", "species")
SPLIT = ("split", "set", "subset", "partition")
CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x0", "y0", "x1", "y1"), ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"),
           ("bboxx1", "bboxy1", "bboxx2", "bboxy2"), ("x", "y", "x2", "y2"))
SIZED = (("x", "y", "w", "h"), ("x", "y", "width", "height"), ("xmin", "ymin", "width", "height"), ("left", "top", "width", "height"),
         ("bboxx", "bboxy", "bboxwidth", "bboxheight"), ("bboxx", "bboxy", "bboxw", "bboxh"))
MIDDLED = (("xcenter", "ycenter", "width", "height"), ("cx", "cy", "w", "h"), ("xc", "yc", "w", "h"), ("xcenter", "ycenter", "w", "h"))
ONE = ("bbox", "box")  # one column: [x, y, width, height]
BARE = {6: ["file", "x0", "y0", "x1", "y1", "label"],  # columns of tables without a header
        11: ["split", "file", "label", "xmin", "ymin", "5", "6", "xmax", "ymax", "9", "10"]}


def bare(line: str) -> list[str] | None:
    """The columns of a CSV without a header, by its first line: a picture and a box in a usual order; None where it is one."""
    first = line.strip().split(",")
    names = BARE.get(len(first))
    if names is None or not any(value.strip('" ').lower().endswith(ENDINGS) for value in first):
        return None
    places = [place for place, name in enumerate(names) if name[0] in "xy"]
    return names if all(re.fullmatch(r"\s*-?[\d.]*\s*", first[place]) for place in places) else None


def of(names: Sequence[str], path: Path) -> dict[str, Any]:
    """{"file", "label", "split" where there is one, "first": a column of the box, "box": (kind, columns)} of a table.

    Raises:
        DataError: one is missing; names what is there.
    """
    plain = {re.sub("[^a-z0-9]", "", name.lower()): name for name in reversed(names)}
    found: dict[str, Any] = {}
    for kind, every in (("corners", CORNERS), ("sized", SIZED), ("middled", MIDDLED), ("one", tuple((name,) for name in ONE))):
        four = next((four for four in every if all(name in plain for name in four)), None)
        if four and "box" not in found:
            found["box"], found["first"] = (kind, [plain[name] for name in four]), plain[four[0]]
    for role, usual in (("file", FILE), ("label", LABEL), ("split", SPLIT)):
        name = next((plain[one] for one in usual if one in plain), None)
        if name is not None:
            found[role] = name
    missing = [what for what, role in (("the picture's file", "file"), ("the class", "label"), ("the box (xmin, ymin, xmax, ymax, or "
               "x, y, width, height)", "box")) if role not in found]
    if missing:
        raise DataError(f"{path}: no column is called like {listed(missing)}; there are {listed(names, 'and')}. Name them with "
                        "data.columns, such as [file, x0, y0, x1, y1, label]")
    return found
