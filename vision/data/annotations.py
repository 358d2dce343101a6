"""Annotations beside images that are no classes: boxes as COCO, Pascal VOC, YOLO, LabelMe, CVAT and tables have them. Imports no
TensorFlow."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pipelines.base.errors import DataError
from pipelines.data.dialect import TEXT, ending
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes import columns, cvat, labelme
from vision.data.boxes.pictures import start_of
from vision.data.files import ENDINGS

LOOKED_AT = 5000  # files of a folder, at most
OPENED = 20  # of each kind
_YOLO = re.compile(rb"(?:\d+(?: +(?:0?\.\d+|0|1|1\.0+)){4,}\s*)+$")


class Form(NamedTuple):
    """A form of boxes: the data source that reads it, data.path, and the form in words with an example."""

    source: str
    path: Path
    words: str


@contextmanager
def naming_boxes(path: Path) -> Iterator[None]:
    """What cannot be read as classes, where boxes lie at `path`: a DataError that names them, with the remedy."""
    try:
        yield
    except DataError as error:
        if boxes := boxes_in(path):
            raise DataError(f"{path}: holds images with {boxes.words}: --task detection finds such things (task: vision.detection). For "
                            "classes of whole images, name them in a table, or make a folder for each class") from error
        raise


def boxes_in(path: Path) -> Form | None:
    """Which form of boxes lies in a file, or in a folder at any depth; None where none does."""
    if (path.is_file() and ending(path) in TEXT) or path.is_dir():
        tables = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix.lower() in (".csv", ".tsv"))
        if found := next((file for file in tables if _has_boxes(file)), None):
            return Form("table", found, f"boxes in a table ({found.name})")
    some: dict[str, list[Path]] = {".json": [], ".xml": [], ".txt": []}
    images = set()
    for file in islice(_files(path), LOOKED_AT):
        suffix = file.suffix.lower()
        if suffix in ENDINGS:
            images.add(file.stem)
        elif suffix in some:
            some[suffix].append(file)
    for file in some[".json"][:OPENED]:
        start = start_of(file)
        if (b'"annotations"' in start or b'"images"' in start) and (b'"bbox"' in start or file.stem.startswith("instances")):
            return Form("coco", path, f"boxes as COCO has them ({file.name})")
        if labelme.looks_like(start):
            return Form("labelme", path, f"boxes as LabelMe has them ({file.name})")
    for file in some[".xml"][:OPENED]:
        if b"<bndbox>" in start_of(file):
            return Form("voc", path, f"boxes as Pascal VOC has them ({file.name})")
        if cvat.looks_like(start_of(file)):
            return Form("cvat", path, f"boxes as CVAT has them ({file.name})")
    for file in [one for one in some[".txt"] if one.stem in images][:OPENED]:
        if _YOLO.match(start_of(file)):
            return Form("yolo", path, f"boxes as YOLO has them ({file.name})")
    return None


def _has_boxes(table: Path) -> bool:
    """Whether the first line of a CSV or TSV names columns of boxes, or is one."""
    first = start_of(table).decode("utf-8", "replace").partition("\n")[0]
    try:
        return columns.bare(first) is not None or bool(columns.of([name.strip(' "\r') for name in re.split("[,;\t]", first)], table))
    except DataError:
        return False


def _files(path: Path) -> Iterator[Path]:
    return files_below(path, PassedOver()) if path.is_dir() else iter([path])
