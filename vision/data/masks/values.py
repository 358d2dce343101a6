"""What the pixels of masks mean: which values there are, and which class each is. Imports no TensorFlow.

The code of a pixel is a number: its grey level, its index in a palette, or of a colour 65536 red + 256 green + blue.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VOID = 255  # the class number of pixels that do not count
MOST = 254  # classes
COUNTS = 5  # different numbers of things, from which masks seem to count them
Value = int | Sequence[int]  # a grey level or an index, or red, green and blue


@dataclass(frozen=True)
class Seen:
    """What is in a mask.

    Attributes:
        kind: grey, palette or colour.
        pixels: code -> how many pixels have it.
        shown: of a palette, code -> the code of its colour, which is what TensorFlow's decoder gives.
    """

    kind: str
    pixels: dict[int, int]
    shown: dict[int, int]


def look(file: Path | io.BytesIO, size: tuple[int, int] | None = None) -> Seen:
    """Reads a mask. Raises ValueError that says why it is none, or none for a picture of `size` (height, width)."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file) as image:
                _check(image, size)
                return _seen(image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(file, io.BytesIO):
            raise ValueError("its masks cannot be joined") from None
        reason = "the mask is not there" if not file.is_file() else f"the mask cannot be read as PNG: {error}"
        raise ValueError(reason.replace(str(file), file.name)) from None


def codes_in(file: Path | io.BytesIO, kind: str) -> np.ndarray:
    """The code of each pixel of a mask as TensorFlow's decoder gives them, [height, width] int64: of a palette those of its colours."""
    from PIL import Image

    with Image.open(file) as image:
        return np.asarray(image.convert("L"), np.int64) if kind == "grey" else _packed(np.asarray(image.convert("RGB")))


def _check(image: Any, size: tuple[int, int] | None) -> None:
    if image.format != "PNG":
        raise ValueError(f"the mask is a {image.format} file; masks are PNG files, since other kinds blur the borders of classes")
    if size and (image.height, image.width) != size:
        raise ValueError(f"the mask has {image.height} x {image.width} px, its picture {size[0]} x {size[1]}")
    if image.mode not in ("1", "L", "P", "RGB", "RGBA"):
        raise ValueError(f"the mask is of mode {image.mode}; masks have 8 bits a pixel, a palette, or red, green and blue")


def _seen(image: Any) -> Seen:
    if image.mode == "RGBA":
        if np.asarray(image)[..., 3].min() < 255:
            raise ValueError("the mask has transparent pixels; give them a colour of their own")
        image = image.convert("RGB")
    if image.mode == "RGB":
        codes, counts = np.unique(_packed(np.asarray(image)), return_counts=True)
        return Seen("colour", dict(zip(codes.tolist(), counts.tolist())), {})
    counts = np.bincount(np.asarray(image if image.mode == "P" else image.convert("L")).ravel(), minlength=256)
    codes = np.flatnonzero(counts)
    pixels = {int(code): int(counts[code]) for code in codes}
    if image.mode != "P":
        return Seen("grey", pixels, {})
    palette = np.zeros((256, 3), np.uint8)
    colours = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    palette[:len(colours)] = colours
    return Seen("palette", pixels, {code: int(_packed(palette[code])) for code in pixels})


def _packed(colours: np.ndarray) -> np.ndarray:
    wide = colours.astype(np.int64)
    return (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]


def code_of(value: Value) -> int:
    """A value of the settings as a code."""
    return value if isinstance(value, int) else int(_packed(np.array(value)))


def value_of(code: int, kind: str) -> Value:
    """A code as the settings write it."""
    return [code >> 16, code >> 8 & 255, code & 255] if kind == "colour" else code


@dataclass(frozen=True)
class Coding:
    """Which class each value is.

    Attributes:
        kind: of the masks.
        values: code of each class.
        void: codes that are no class.
        shown: of a palette, code -> code of its colour.
    """

    kind: str
    values: list[int]
    void: list[int]
    shown: Mapping[int, int]

    @property
    def decoded(self) -> tuple[list[int], list[int]]:
        """(codes as TensorFlow's decoder gives them, ascending; the class number of each, VOID of those that do not count)."""
        numbers = {code: number for number, code in enumerate(self.values)} | dict.fromkeys(self.void, VOID)
        known = {self.shown[code] if self.kind == "palette" else code: number for code, number in numbers.items()
                 if self.kind != "palette" or code in self.shown}
        return sorted(known), [known[code] for code in sorted(known)]


def coding(train: Sequence[Seen], everything: Sequence[Seen], classes: Sequence[str] | None, values: Sequence[Value] | None,
           void: Sequence[Value]) -> Coding:
    """The coding of masks: its values are those of train, its palette that of all.

    Raises:
        ValueError: their kinds or palettes differ, or no values are given and they do not look like numbers of classes; with the remedy.
    """
    kinds = sorted({one.kind for one in everything})
    if len(kinds) > 1:
        raise ValueError(f"masks are of several kinds: {' and '.join(kinds)}; save all of them in the same way")
    shown: dict[int, int] = {}
    for one in everything:
        for code, colour in one.shown.items():
            if shown.setdefault(code, colour) != colour:
                raise ValueError(f"palettes differ: index {code} has several colours; save all masks with one palette, or as grey levels")
    left_out = [code_of(value) for value in void]
    if classes is None and values is None and (most := largest_number(train)):
        raise ValueError(f"masks hold the numbers of things, each of its own (up to {most} in a picture), not classes: task: "
                         "vision.instances tells things apart (--task instances)")
    if values is not None:
        known = [code_of(value) for value in values]
    elif classes is not None and kinds[0] != "colour":
        known = list(range(len(classes)))
    else:
        known = sorted({code for one in train for code in one.pixels} - set(left_out))
    if len(known) > MOST or (values is None and classes is None and len(known) > max(32, 2 * len(train))):
        raise ValueError(f"masks have {len(known):,} different values, such as {value_of(known[len(known) // 2], kinds[0])}: a class has "
                         "one value; name those of the classes in data.values")
    if len(known) < 2:
        raise ValueError(f"masks have one value alone, {value_of(known[0], kinds[0]) if known else 'void'}; there is nothing to tell apart")
    if classes is not None and len(classes) != len(known):
        found = [value_of(one, kinds[0]) for one in known]
        raise ValueError(f"data.classes names {len(classes)}, and masks have {len(known)} values: {found}; say in data.values which "
                         "belongs to which")
    used = [code for code in (*known, *left_out) if code in shown]
    if len({shown[code] for code in used}) < len(used):
        raise ValueError("the palette gives two values the same colour; save the masks as grey levels")
    return Coding(kinds[0], known, left_out, shown)


def largest_number(seen: Sequence[Seen]) -> int:
    """The largest number, where masks count the things in each picture: 0 to any number without a gap; else 0."""
    most = [max(one.pixels) for one in seen if one.kind != "colour"]
    whole = sum(len(one.pixels) - (0 in one.pixels) == max(one.pixels) for one in seen if one.kind != "colour")
    counted = len(set(most)) >= COUNTS and max(most) > COUNTS and whole >= 0.9 * len(seen)
    return max(most) if counted else 0


def unknown(one: Seen, known: Coding) -> str | None:
    """What is wrong with a mask by a coding; None where nothing is."""
    if one.kind != known.kind:
        return f"the mask is of another kind ({one.kind}) than those of train ({known.kind})"
    strange = sorted(set(one.pixels) - set(known.values) - set(known.void))
    if strange:
        count = sum(one.pixels[code] for code in strange)
        return (f"the mask has {count:,} pixels of value {value_of(strange[0], one.kind)}, which is no class; add it to data.values and "
                "data.classes, or to data.void")
    return None


def counts(seen: Sequence[Seen], known: Coding) -> list[int]:
    """Pixels of each class."""
    return [sum(one.pixels.get(code, 0) for one in seen) for code in known.values]
