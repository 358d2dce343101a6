"""Pictures with boxes of any form as splits of a data set, nothing divided yet.

Raw examples are {"image": scalar string, "boxes": [most, 4] float32 in pixels of the upright picture, "classes": [most] int32, -1 where
there is no further box}, with masks of the things also "things", scalar string, as vision.data.instances.things has them; `most` is the
largest number of boxes that a picture of the data has, so that every batch has one shape.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.files import FileSource
from pipelines.data.names import groups_in_names
from pipelines.data.opened import Opened, check_skipped
from pipelines.data.tables import class_names
from pipelines.stores.remote import local
from vision.data.boxes import readers
from vision.data.boxes.pictures import Annotated, Picture, copies, sound
from vision.data.splits import file_header
from vision.settings import BoxData

BOXES, CLASSES, THINGS = "boxes", "classes", "things"  # entries of an example
NONE = -1  # the class of a box that is not there


def open_boxes(data: BoxData) -> Opened[FileSource]:
    """Raises DataError that names file and line of the first bad box, or with data.on_bad_example: skip leaves those boxes out, and the
    pictures that cannot be found."""
    root = Path(local(data.path or "", folder=True))
    return open_annotated(readers.read(data, root), root, data, examine_picture)


def open_annotated(found: Annotated, root: Path, data: BoxData, examine: Callable[[Picture], list[str]]) -> Opened[FileSource]:
    """Of what was read; `examine` leaves in a picture what is sound, and gives a reason for all else. Raises as `open_boxes`."""
    everything = {id(picture): picture for part in found.splits.values() for picture in part}
    with ThreadPoolExecutor(8) as threads:
        lost = [reason for reasons in threads.map(examine, everything.values()) for reason in reasons]
    total = len(lost) + sum(len(picture.labels) for picture in everything.values())
    found.bad += lost
    if found.bad and data.on_bad_example == "stop":
        more = f" (and {len(found.bad) - 1:,} more)" if len(found.bad) > 1 else ""
        raise DataError(f"{found.bad[0]}{more}. Repair it, or leave such boxes out with data.on_bad_example: skip; `quartet check` lists "
                        "all of them")
    check_skipped(found.bad, max(total, 1), data, str(root))
    if lost:
        found.notes.append(f"Boxes left out: {len(lost):,} of {total:,}, such as {lost[0]}.")
    classes = found.classes or class_names([label for picture in everything.values() for label in picture.labels])
    splits = {name: [picture for picture in part if picture.usable and picture.file.is_file()] for name, part in found.splits.items()}
    most = max((len(picture.boxes) for picture in everything.values()), default=0)
    twice = sum(copies(picture.boxes, picture.labels) for picture in everything.values())
    if twice:
        found.notes.append(f"{twice:,} boxes are there twice in their picture.")
    if covered := sum(picture.covered for picture in everything.values()):
        found.notes.append(f"{covered:,} things are covered by others, and are left out.")

    def load(split: str) -> FileSource:
        return _source(splits[split], root, classes, max(most, 1), data)

    return Opened(str(root), sorted(splits), load, classes, found.notes, found.bad)


def examine_picture(picture: Picture) -> list[str]:
    """Leaves in a picture the boxes that are sound; a reason for each other one."""
    header = file_header(str(picture.file))
    if header is None:  # whoever decodes it says why
        picture.boxes, picture.labels, picture.relative = picture.boxes[:0], [], False
        return [] if picture.file.is_file() else [f"{picture.origin}: there is no picture {picture.file}"]
    boxes, kept, reasons = sound(picture, header[:2])
    picture.boxes, picture.relative = boxes, False
    picture.labels = [label for label, good in zip(picture.labels, kept) if good]
    return reasons


def _source(pictures: Sequence[Picture], root: Path, classes: list[str], most: int, data: BoxData) -> FileSource:
    numbers = {name: number for number, name in enumerate(classes)}
    boxes, labels = np.zeros((len(pictures), most, 4), np.float32), np.full((len(pictures), most), NONE, np.int32)
    for place, picture in enumerate(pictures):
        boxes[place, :len(picture.boxes)] = picture.boxes
        labels[place, :len(picture.labels)] = [numbers[label] for label in picture.labels]
    folder = root if root.is_dir() else root.parent
    fields = {BOXES: boxes, CLASSES: labels}
    if any(picture.things is not None for picture in pictures):
        fields[THINGS] = np.array([picture.things or b"" for picture in pictures], object)
    source = FileSource([picture.file for picture in pictures], key="image", root=folder, fields=fields)
    if data.group_by == "folder":
        source.groups = np.array([picture.file.parent.name for picture in pictures])
    elif data.group_by == "name":
        source.groups = np.array(groups_in_names([source.relative(number) for number in range(len(source))], data.group_pattern or ""))
    return source
