"""CVAT's XML ("CVAT for images"): a file for all pictures. Imports no TensorFlow.

A turned box has the box around it, a polygon that of its points, an ellipse that around it; masks the box that they lie in. Points, lines
and tags have none.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes.pictures import Annotated, Images, Picture, by_folder, start_of
from vision.data.boxes.xml_files import Reader

LARGEST = 2 << 30  # bytes, read piece by piece
WITHOUT_AREA = ("polyline", "points", "tag", "skeleton", "cuboid")


def read(root: Path) -> Annotated:
    """A file, or all such files below a folder; splits are the subsets of the pictures, or folders called so.

    Raises:
        DataError: there is none, one is no such XML, or is of a video.
    """
    folder = root if root.is_dir() else root.parent
    files = [root] if root.is_file() else sorted(
        file for file in files_below(root, PassedOver()) if file.suffix.lower() == ".xml" and looks_like(start_of(file)))
    found, images, pictures, others, subsets = Annotated({}), Images(folder), list[Picture](), Counter[str](), dict[str, list[Picture]]()
    for file in files:
        reader = _Shapes(file, found.bad, others)
        reader.read(LARGEST)
        for name, subset, labels, boxes, places in reader.pictures:
            pictures.append(Picture(images.find(name, file), np.array(boxes), labels, places, file))
            subsets.setdefault(subset or "all", []).append(pictures[-1])
    if not pictures:
        raise DataError(f"{root}: holds no XML of \"CVAT for images\" with pictures" + (f": {found.bad[0]}" if found.bad else ""))
    if others:
        shapes = ", ".join(f"{name} ({count:,})" for name, count in others.most_common())
        found.notes.append(f"Shapes without an area are left out: {shapes}.")
    found.splits = subsets if "train" in {name.lower() for name in subsets} else by_folder(folder, pictures)
    return found


def looks_like(start: bytes) -> bool:
    """Whether a file that begins so is one."""
    return b"<annotations>" in start and (b"<image " in start or b"<track " in start or b"<meta>" in start)


class _Shapes(Reader):
    """Of each picture its name, subset, and the labels, [left, top, right, bottom] and lines of its shapes."""

    def __init__(self, file: Path, bad: list[str], others: Counter[str]):
        super().__init__(file)
        self.bad, self.others = bad, others
        self.pictures = list[tuple[str, str, list[str], list[list[float]], list[str]]]()

    def begin(self, attributes: dict[str, str]) -> None:
        if self.path[:1] != ["annotations"]:
            raise DataError(f"{self.file}: line {self.line}: <{self.path[0]}> is no export of CVAT")
        if self.path[1:] == ["track"]:
            raise DataError(f"{self.file}: line {self.line}: is an export of a video; export it as \"CVAT for images\"")
        if self.path[1:] == ["image"]:
            if not attributes.get("name"):
                raise DataError(f"{self.file}: line {self.line}: the image has no name")
            self.pictures.append((attributes["name"], attributes.get("subset", ""), [], [], []))
        elif self.path[1:2] == ["image"] and len(self.path) == 3:
            self._add(self.path[2], attributes)

    def _add(self, kind: str, given: dict[str, str]) -> None:
        if kind in WITHOUT_AREA:
            self.others[kind] += 1
            return
        _, _, labels, boxes, places = self.pictures[-1]
        try:
            box, label = _around(kind, given), given["label"]
        except (KeyError, ValueError) as error:
            why = f"has no {error}" if isinstance(error, KeyError) else "a number of it is none"
            self.bad.append(f"{self.file}: line {self.line}: the {kind} {why}")
            return
        labels.append(label)
        boxes.append(box)
        places.append(f"line {self.line}")


def _around(kind: str, given: dict[str, str]) -> list[float]:
    """Left, top, right and bottom. Raises KeyError or ValueError."""
    def numbers(*names: str) -> list[float]:
        return [float(given[name]) for name in names]

    if kind == "polygon":
        points = np.array([point.split(",") for point in given["points"].split(";")], np.float64)
        return [*points.min(0).tolist(), *points.max(0).tolist()]
    if kind == "mask":
        left, top, width, height = numbers("left", "top", "width", "height")
        return [left, top, left + width, top + height]
    if kind == "ellipse":
        x, y, wide, high = numbers("cx", "cy", "rx", "ry")
    elif kind == "box":
        left, top, right, bottom = numbers("xtl", "ytl", "xbr", "ybr")
        if not float(given.get("rotation", 0)):
            return [left, top, right, bottom]
        x, y, wide, high = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    else:
        raise KeyError("area that is known")
    turn = math.radians(float(given.get("rotation", 0)))  # about the middle
    c, s = abs(math.cos(turn)), abs(math.sin(turn))
    across, down = (math.hypot(wide * c, high * s), math.hypot(wide * s, high * c)) if kind == "ellipse" else (wide * c + high * s,
                                                                                                              wide * s + high * c)
    return [x - across, y - down, x + across, y + down]
