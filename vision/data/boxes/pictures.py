"""Boxes of pictures as annotations say them, and what of them can be learned from. Imports no TensorFlow.

A box is left, top, right and bottom in pixels of the upright picture, from its upper left corner: the first pixel reaches from 0 to 1.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data.divide import ALIASES
from pipelines.data.walk import PassedOver
from vision.data.files import images_below

_ALIASES = "|".join(alias for names in ALIASES.values() for alias in names)
NAMED = re.compile(_ALIASES + "|trainval", re.IGNORECASE)  # folders and lists that are called like a split
_SPLIT = re.compile(f"(?:^|[^a-z])({_ALIASES})(?:[^a-z]|$)", re.IGNORECASE)  # within a name
START = 1 << 16  # bytes of a file in which its form shows
LEAST_INSIDE = 0.5  # share of a box that lies in its picture; of a smaller one the annotation is wrong


@dataclass
class Picture:
    """One picture.

    Attributes:
        file: the image.
        boxes: [n, 4] float32, in pixels, or with `relative` in shares of the picture's width and height.
        labels: n names.
        places: where each box stands in `origin`: "object 3", "line 7".
        origin: the file of the annotations.
        outlines: where masks of the things are asked for, n of vision.data.instances.things.Outline, in the units of the boxes.
        things: such masks as that module encodes them.
        usable: false where it is to be left out.
        covered: things without a pixel of their own, since others cover them.
    """

    file: Path
    boxes: np.ndarray
    labels: list[str]
    places: list[str]
    origin: Path
    relative: bool = False
    outlines: list[Any] | None = None
    things: bytes | None = None
    usable: bool = True
    covered: int = 0

    def __post_init__(self) -> None:
        self.boxes = np.asarray(self.boxes, np.float32).reshape(-1, 4)


@dataclass
class Annotated:
    """What a reader found.

    Attributes:
        splits: the data's own, by name; a single one where they come in one piece.
        classes: names in a stated order; empty: by name.
        notes: what was decided, for the report.
        bad: what could not be read, each with file and place.
    """

    splits: dict[str, list[Picture]]
    classes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def sound(picture: Picture, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(boxes in pixels, cut at the border, [m, 4] float32; which were kept, [n] bool; a reason for each other one).

    A box is left out where a number of it is none, a side is not longer than 0, or less than half of it lies in the picture.

    Args:
        size: height and width of the upright picture.
    """
    height, width = size
    scale = np.array([width, height, width, height], np.float32) if picture.relative else np.ones(4, np.float32)
    boxes = picture.boxes * scale
    cut = np.clip(boxes, 0, np.array([width, height, width, height], np.float32))
    with np.errstate(invalid="ignore"):
        sides, left = boxes[:, 2:] - boxes[:, :2], cut[:, 2:] - cut[:, :2]
        finite = np.isfinite(boxes).all(1)
        flipped, empty = finite & (sides < 0).any(1), finite & (sides == 0).any(1)
        outside = finite & ~flipped & ~empty & (left.prod(1) < LEAST_INSIDE * sides.prod(1))
    why = {"a number of it is NaN or infinite": ~finite, "flipped: its right or lower side lies before the other": flipped,
           "empty: a side of it has no length": empty, f"outside of the picture of {width} x {height} px": outside}
    bad = ~finite | flipped | empty | outside
    reasons = [f"{picture.origin}: {picture.places[number]} ({picture.labels[number]} at {written(boxes[number])}): "
               + next(text for text, where in why.items() if where[number]) for number in np.flatnonzero(bad)]
    return cut[~bad], ~bad, reasons


def written(box: Iterable[float]) -> str:
    """A box in words."""
    return "[" + ", ".join(f"{value:g}" for value in box) + "]"


def copies(boxes: np.ndarray, labels: Sequence[str]) -> int:
    """How many boxes are there more than once with the same label."""
    return len(boxes) - len({(*box, label) for box, label in zip(boxes.tolist(), labels)})


def start_of(file: Path) -> bytes:
    """The bytes of a file in which its form shows; none of one that cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(START)
    except OSError:
        return b""


def by_stem(files: Iterable[Path]) -> Mapping[str, Path]:
    """Files by their names without ending."""
    return {file.stem: file for file in files}


def split_of(file: Path, folder: Path) -> str:
    """The split that the name of a file of annotations says, or of a folder that it lies in; else its own name."""
    for name in reversed(file.relative_to(folder).with_suffix("").parts):
        if match := _SPLIT.search(re.sub(r"\d+", " ", name)):
            return match[1].lower()
    return file.stem


class Images:
    """Where the images of a folder are, by name, looked for once where they do not lie beside the file that names them."""

    def __init__(self, folder: Path):
        self.folder, self.by_name = folder, dict[str, list[Path]]()

    def find(self, name: str, file: Path) -> Path:
        """The image of a name; where there is none, the place beside the file."""
        name = name.replace("\\", "/")
        for place in (file.parent, self.folder, self.folder / "images", file.parent / "images"):
            if (path := Path(os.path.normpath(place / name))).is_file():
                return path
        if not self.by_name:
            by_name = defaultdict(list)
            for image in images_below(self.folder, PassedOver()):
                by_name[image.name].append(image)
            self.by_name = by_name or {"": []}
        there = self.by_name.get(name.rpartition("/")[2], [])
        split = split_of(file, self.folder) if file.is_relative_to(self.folder) else ""
        ending = [image for image in there if image.as_posix().endswith("/" + name)] or there
        return next((image for image in ending if any(split in part for part in image.parts)), ending[0] if ending else file.parent / name)


def by_folder(root: Path, pictures: list[Picture]) -> dict[str, list[Picture]]:
    """By the first folder below `root` that is called like a split; in one piece where none is called train."""
    splits = dict[str, list[Picture]]()
    for picture in pictures:
        inner = picture.file.relative_to(root).parts[:-1] if picture.file.is_relative_to(root) else ()
        splits.setdefault(next((part for part in inner if NAMED.fullmatch(part)), "all"), []).append(picture)
    return splits if "train" in {name.lower() for name in splits} or len(splits) == 1 else {"all": pictures}
