"""Pictures with the masks of their things as splits of a data set, nothing divided yet; raw examples as vision.data.boxes.open has them."""

from functools import partial
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.files import FileSource
from pipelines.data.opened import Opened
from pipelines.data.walk import PassedOver
from pipelines.stores.remote import local
from vision.data.boxes import readers
from vision.data.boxes.open import open_annotated
from vision.data.boxes.pictures import Annotated, Picture, sound
from vision.data.files import images_below
from vision.data.instances import things
from vision.data.masks import layout
from vision.data.masks.open import MASK, open_masks
from vision.data.splits import file_header
from vision.settings import InstanceData


def open_instances(data: InstanceData) -> Opened[FileSource]:
    """Raises DataError that names file and place of the first thing or mask that cannot be used, or with data.on_bad_example: skip leaves
    it out."""
    root = Path(local(data.path or "", folder=True))
    if data.source not in ("masks", "table"):
        return open_annotated(readers.read(data, root, outlines=True), root, data, partial(_examine_picture, data=data))
    if data.source == "masks" and (alone := layout.each_by_itself(root)):
        every = Annotated({"all": [Picture(image, np.zeros((0, 4)), [], [], masks) for image, masks in alone]})
        return open_annotated(every, root, data, partial(_examine_picture, data=data))
    pairs, found = open_masks(data), Annotated({})
    for name in pairs.names:
        source = pairs.load(name)
        if MASK not in source.beside:
            raise DataError(f"{pairs.place}: has a mask for each class, and things need one that numbers them; task: vision.segmentation "
                            "learns classes")
        found.splits[name] = [Picture(Path(image), np.zeros((0, 4)), [], [], Path(mask))
                              for image, mask in zip(source.paths, source.beside[MASK])]
    return open_annotated(found, Path(pairs.place), data, partial(_examine_picture, data=data))


def _examine_picture(picture: Picture, data: InstanceData) -> list[str]:
    """Draws the masks of a picture's things, and leaves those that are sound and can be seen; a reason for each other one."""
    header = file_header(str(picture.file))
    if header is None:  # whoever decodes it says why
        picture.boxes, picture.labels, picture.relative, picture.things = picture.boxes[:0], [], False, b""
        return [] if picture.file.is_file() else [f"{picture.origin}: there is no picture {picture.file}"]
    size, reasons = header[:2], list[str]()
    try:
        if picture.outlines is None:
            files = images_below(picture.origin, PassedOver()) if picture.origin.is_dir() else []
            numbers = things.read_files(files, size) if files else things.read_numbers(picture.origin, size, data.void)
            picture.boxes = things.boxes_of(numbers)
            picture.labels = [data.thing] * len(picture.boxes)
        else:
            numbers, reasons = _draw_things(picture, size)
    except ValueError as error:
        picture.boxes, picture.labels, picture.usable = picture.boxes[:0], [], False
        return [f"{picture.origin}: {error}"]
    seen = np.bincount(numbers.ravel(), minlength=len(picture.labels) + 1)[1:] > 0
    picture.boxes, picture.labels = picture.boxes[seen], [label for label, there in zip(picture.labels, seen) if there]
    picture.covered = int((~seen).sum())
    picture.things, picture.outlines = things.encode_png(things.keep_things(numbers, seen)), None
    return reasons


def _draw_things(picture: Picture, size: tuple[int, int]) -> tuple[np.ndarray, list[str]]:
    """(numbers of the things whose boxes and outlines are sound, a reason for each other one)."""
    scale = np.array(size[::-1] if picture.relative else (1, 1), np.float32)
    boxes, kept, reasons = sound(picture, size)
    outlines = [one if isinstance(one, dict) else [part * scale for part in one] for one, good in zip(picture.outlines or (), kept) if good]
    labels, places = ([value for value, good in zip(values, kept) if good] for values in (picture.labels, picture.places))
    numbers, wrong = things.draw_numbers(outlines, size)
    reasons += [f"{picture.origin}: {places[place]} ({labels[place]}): {why}" for place, why in wrong.items()]
    picture.boxes, picture.labels, picture.relative = boxes, labels, False
    return numbers, reasons
