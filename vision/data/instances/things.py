"""The masks of a picture's things as one picture of their numbers: 0 is the ground, 1 the first thing. Imports no TensorFlow.

An outline is a list of polygons, [points, 2] float32 each, x and y in pixels, or in COCO's run-length code a mapping with `size` (height
and width) and `counts`, column by column, numbers or the string that they are written as there.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MOST = 65_535  # things of a picture, which 16 bits tell apart
Outline = Sequence[np.ndarray] | Mapping[str, Any]


def draw_numbers(outlines: Sequence[Outline], size: tuple[int, int]) -> tuple[np.ndarray, dict[int, str]]:
    """(numbers [height, width] uint16, the reason of each outline that is none). Of a pixel that several claim the smallest has it.

    Args:
        size: height and width of the upright picture.
    """
    if len(outlines) > MOST:
        raise ValueError(f"{len(outlines):,} things are more than one picture can have, which is {MOST:,}")
    numbers, masks, wrong = np.zeros(size, np.uint16), list[tuple[int, int, tuple[slice, slice], np.ndarray]](), dict[int, str]()
    for place, outline in enumerate(outlines):
        try:
            mask = _of_runs(outline, size) if isinstance(outline, Mapping) else _of_polygons(outline, size)
        except (ValueError, TypeError, KeyError) as error:
            wrong[place] = f"has no {error}" if isinstance(error, KeyError) else str(error)
            continue
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        if len(rows):
            part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            masks.append((-int(mask.sum()), place, part, mask[part].copy()))
    for _, place, part, mask in sorted(masks, key=lambda one: one[:2]):
        numbers[part][mask] = place + 1
    return numbers, wrong


def _of_polygons(polygons: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """As pycocotools draws them, [height, width] bool."""
    from pycocotools import mask as masks

    if not polygons:
        raise ValueError("it has no outline")
    for one in polygons:
        if one.ndim != 2 or one.shape[1] != 2 or len(one) < 3 or not np.isfinite(one).all():
            raise ValueError("its outline is no polygon of three points or more")
    beyond = np.array([[0, 0], size[::-1]], np.float64)
    flat = [np.clip(one, *beyond).astype(np.float64).ravel().tolist() for one in polygons]
    found: np.ndarray = masks.decode(masks.merge(masks.frPyObjects(flat, *size)))
    return found.astype(bool)


def _of_runs(coded: Mapping[str, Any], size: tuple[int, int]) -> np.ndarray:
    height, width = (int(edge) for edge in coded["size"])
    if (height, width) != tuple(size):
        raise ValueError(f"its mask has {height} x {width} px, its picture {size[0]} x {size[1]}")
    counts = coded["counts"]
    runs = np.array(unpack_runs(counts) if isinstance(counts, (str, bytes)) else counts, np.int64)
    if runs.ndim != 1 or (runs < 0).any() or (runs > height * width).any() or runs.sum() != height * width:
        raise ValueError(f"its runs do not fill {height} x {width} px")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def unpack_runs(text: str | bytes) -> list[int]:
    """The runs that COCO writes as a string: five bits a character, lowest first, each from the third on less the last but one.

    Raises:
        ValueError: it is no such string.
    """
    runs, value, shift = list[int](), 0, 0
    for character in text.encode() if isinstance(text, str) else text:
        bits = character - 48
        if not 0 <= bits < 64 or shift > 40:
            raise ValueError("its runs are no string of COCO's")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value |= -1 << shift if bits & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value, shift = 0, 0
    return runs


def read_numbers(file: Path, size: tuple[int, int], void: Sequence[int | Sequence[int]]) -> np.ndarray:
    """The things of a mask whose values number them, numbered anew from 1, [height, width] uint16.

    Args:
        void: values that are ground, as 0 and black are.

    Raises:
        ValueError: it is no mask of a picture of this size.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file) as image:
                if (image.height, image.width) != size:
                    raise ValueError(f"the mask has {image.height} x {image.width} px, its picture {size[0]} x {size[1]}")
                if image.format not in ("PNG", "TIFF"):
                    raise ValueError(f"the mask is a {image.format} file; masks are PNG or TIFF files, since other kinds blur borders")
                values = np.asarray(image.convert("RGB") if image.mode == "RGBA" else image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        reason = "the mask is not there" if not file.is_file() else f"the mask cannot be read: {error}"
        raise ValueError(reason.replace(str(file), file.name)) from None
    if values.ndim == 3:
        values = values[..., :3].astype(np.int64) @ np.array([65536, 256, 1])
    ground = [0, *((value if isinstance(value, int) else value[0] << 16 | value[1] << 8 | value[2]) for value in void)]
    codes, places = np.unique(values, return_inverse=True)
    things = ~np.isin(codes, ground)
    if things.sum() > MOST:
        raise ValueError(f"the mask numbers {int(things.sum()):,} things; a picture can have {MOST:,}")
    return np.where(things, np.cumsum(things), 0).astype(np.uint16)[places.reshape(values.shape)]


def read_files(files: Sequence[Path], size: tuple[int, int]) -> np.ndarray:
    """The things of a picture of which each has a file, non-zero where it is, [height, width] uint16 in the order of the files; of a pixel
    that several claim the smallest has it. Raises ValueError as `read_numbers`."""
    numbers, masks = np.zeros(size, np.uint16), [read_numbers(file, size, []) > 0 for file in files]
    for place in sorted(range(len(masks)), key=lambda place: -int(masks[place].sum())):
        numbers[masks[place]] = place + 1
    return numbers


def boxes_of(numbers: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of each thing, [things, 4] float32; zeros of one without a pixel."""
    from scipy.ndimage import find_objects

    parts = find_objects(numbers.astype(np.int32))
    return np.array([[0] * 4 if part is None else [part[1].start, part[0].start, part[1].stop, part[0].stop] for part in parts],
                    np.float32).reshape(-1, 4)


def encode_png(numbers: np.ndarray) -> bytes:
    """As a PNG file of 16 bits a pixel."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(numbers).save(file, "PNG", compress_level=1)
    return file.getvalue()


def keep_things(numbers: np.ndarray, things: np.ndarray) -> np.ndarray:
    """The numbers of some things alone, numbered anew.

    Args:
        things: [things] bool.
    """
    return np.concatenate([[0], np.where(things, np.cumsum(things), 0)]).astype(np.uint16)[numbers]
