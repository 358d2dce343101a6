"""Annotations beside images that are no classes: boxes as COCO, Pascal VOC and YOLO have them. Imports no TensorFlow."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.data.walk import PassedOver, files_below
from vision.data.files import ENDINGS

LOOKED_AT = 5000  # files of a folder, at most
OPENED = 20  # of each kind
START = 1 << 16  # bytes of a file in which its form shows
_YOLO = re.compile(rb"(?:\d+(?: +(?:0?\.\d+|0|1|1\.0+)){4,}\s*)+$")


@contextmanager
def naming_boxes(path: Path) -> Iterator[None]:
    """What cannot be read as classes, where boxes lie at `path`: a DataError that names them, with the remedy."""
    try:
        yield
    except DataError as error:
        if boxes := boxes_in(path):
            raise DataError(f"{path}: holds images with {boxes}: to find objects is not there yet. Cut the objects out into a "
                            "folder for each class, or name classes of whole images in a table") from error
        raise


def boxes_in(path: Path) -> str | None:
    """Which form of boxes lies in a file, or in a folder at any depth, with an example; None where none does."""
    some: dict[str, list[Path]] = {".json": [], ".xml": [], ".txt": []}
    images = set()
    for file in islice(_files(path), LOOKED_AT):
        suffix = file.suffix.lower()
        if suffix in ENDINGS:
            images.add(file.stem)
        elif suffix in some:
            some[suffix].append(file)
    for file in some[".json"][:OPENED]:
        start = _start(file)
        if (b'"annotations"' in start or b'"images"' in start) and (b'"bbox"' in start or file.stem.startswith("instances")):
            return f"boxes as COCO has them ({file.name})"
    for file in some[".xml"][:OPENED]:
        if b"<bndbox>" in _start(file):
            return f"boxes as Pascal VOC has them ({file.name})"
    for file in [one for one in some[".txt"] if one.stem in images][:OPENED]:
        if _YOLO.match(_start(file)):
            return f"boxes as YOLO has them ({file.name})"
    return None


def _files(path: Path) -> Iterator[Path]:
    return files_below(path, PassedOver()) if path.is_dir() else iter([path])


def _start(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(START)
    except OSError:
        return b""
