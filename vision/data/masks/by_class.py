"""Masks that are a file for each class, non-zero where it is: `masks/car/street_1.png` or `masks/street_1_car.png`. Imports no
TensorFlow."""

import io
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from vision.data.masks.part import Files, Part
from vision.data.masks.values import MOST, VOID

GROUND = "background"  # what no file claims
FEWEST = 2  # classes from which files are taken for those of classes


def files_by_class(names: Sequence[str], masks: Mapping[str, Path]) -> list[Files] | None:
    """The files of each picture by class; None where masks are not so.

    Args:
        names: of pictures, without ending.
        masks: name without ending -> file, both from the folder of the masks on, with `/` or the system's separator.
    """
    places = {name: number for number, name in enumerate(names)}
    found: list[Files] = [{} for _ in names]
    classes = set[str]()
    for name, file in masks.items():
        if name in places:
            return None
        first, _, rest = Path(name).as_posix().partition("/")
        label, picture = (first, rest) if rest in places else _by_ending(name, places)
        if picture is None:
            return None
        classes.add(label)
        found[places[picture]][label] = file
    several = sum(len(files) > 1 for files in found)
    return found if FEWEST <= len(classes) <= MOST and several >= 0.2 * sum(map(bool, found)) else None


def _by_ending(name: str, places: Mapping[str, int]) -> tuple[str, str | None]:
    """(what follows the longest picture's name that a mask's begins with, that name)."""
    for end in range(len(name) - 1, 0, -1):
        if name[end] in "_-. " and name[:end] in places and name[end + 1:]:
            return name[end + 1:], name[:end]
    return "", None


def numbers_of(files: Sequence[Files], named: Sequence[str] | None) -> tuple[list[str], dict[str, int], int]:
    """(the classes, the number of each that has files, that of what no file claims).

    Raises:
        ValueError: a file is of no class that is named.
    """
    there = sorted({label for one in files for label in one})
    classes = list(named) if named else [GROUND, *(label for label in there if label != GROUND)]
    unknown = [label for label in there if label not in classes]
    if unknown:
        raise ValueError(f"there are masks of class {unknown[0]!r}, which data.classes does not name ({', '.join(classes)})")
    defaulted = defaultdict(lambda: VOID, {label: number for number, label in enumerate(classes)})
    ground = next((label for label in classes if label not in there), GROUND)
    return classes, {label: defaulted[label] for label in there}, defaulted[ground]


def join_parts(parts: Iterable[Part], named: Sequence[str] | None, root: Path, *, skip: bool) -> list[str]:
    """Joins the masks of `parts` that are a file for each class, into the bytes of one; the names of the classes, none where none are so.

    Args:
        named: the classes in their order, where they are set.
        skip: masks that cannot be joined are left to be found when they are looked at.

    Raises:
        DataError: names the first that cannot be joined, and the remedy.
    """
    parts = [part for part in parts if part.by_class]
    if not parts:
        return []
    try:
        classes, numbers, ground = numbers_of([one for part in parts for one in part.by_class], named)
    except ValueError as error:
        raise DataError(f"{root}: {error}") from None

    def one(pair: tuple[Path, Files]) -> bytes:
        try:
            return join_files(pair[1], numbers, ground)
        except ValueError as error:
            if not skip:
                raise DataError(f"{pair[0]}: {error}. Repair or remove it, or set data.on_bad_example: skip") from None
            return b""

    with ThreadPoolExecutor(8) as threads:
        for part in parts:
            part.masks[:] = threads.map(one, zip(part.images, part.by_class))
    return classes


def join_files(files: Files, numbers: Mapping[str, int], ground: int) -> bytes:
    """One mask of class numbers, a PNG file of grey levels; of a pixel that several classes claim the one with fewest pixels has it.

    Raises:
        ValueError: one cannot be read, or has another size than the rest.
    """
    from PIL import Image

    masks = {label: _claimed_pixels(file) for label, file in files.items()}
    sizes = {mask.shape for mask in masks.values()}
    if len(sizes) > 1:
        raise ValueError(f"its masks have several sizes: {', '.join(f'{height} x {width} px' for height, width in sorted(sizes))}")
    found = np.full(next(iter(sizes)), ground, np.uint8)
    for label in sorted(masks, key=lambda label: -int(masks[label].sum())):
        found[masks[label]] = numbers[label]
    file = io.BytesIO()
    Image.fromarray(found).save(file, "PNG")
    return file.getvalue()


def _claimed_pixels(file: Path) -> np.ndarray:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file) as image:
                if image.format != "PNG":
                    raise ValueError(f"{file.name} is a {image.format} file; masks are PNG files, since other kinds blur the borders")
                values = np.asarray(image.convert("RGB") if image.mode in ("P", "RGBA", "LA", "PA") else image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file.name} cannot be read as PNG: {error}".replace(str(file), file.name)) from None
    return np.asarray(values.any(-1) if values.ndim == 3 else values > 0)
