"""What `quartet new` sees of pictures with masks: which values there are, what may be their names, sizes. Imports no TensorFlow."""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.data.columns import role_of
from vision.data.headers import Header
from vision.data.inspection import headers_of
from vision.data.masks import by_class, layout
from vision.data.masks.part import Part
from vision.data.masks.values import Coding, Seen, Value, coding, largest_number, look, value_of

LOOKED_AT = 300  # masks
SAMPLED = 40  # of them, where only their kind is asked for
# files of names that lie beside masks: CamVid's, CVAT's, and those of many courses and challenges
NAMES = ("classes.txt", "labels.txt", "class_names.txt", "codes.txt", "labelmap.txt", "label_colors.txt", "class_dict.csv", "labels.csv")
BORDER = 255  # the index that Pascal VOC gives to what is not judged


@dataclass
class SeenMasks:
    """What the data hold.

    Attributes:
        images: pictures of train.
        headers: their sizes.
        sampled: headers are of some alone.
        known: the values of the masks that were looked at.
        pixels: value -> share of the pixels.
        names: of the classes, by value, where a file has them; `named_in` is that file.
        validation, test: the data's own splits of those names, None where there are none.
        notes: further remarks, a line each.
    """

    images: int
    headers: list[Header]
    sampled: bool
    known: Coding
    pixels: dict[int, float]
    names: list[str] | None = None
    validation: str | None = None
    test: str | None = None
    notes: list[str] = field(default_factory=list)


def look_at(root: Path) -> SeenMasks | None:
    """None where no folder of pictures lies beside one of masks. Raises DataError where the masks cannot be understood."""
    parts = layout.find(root) if root.is_dir() else {}
    if not parts:
        return None
    joined = by_class.join_parts(parts.values(), None, root, skip=True)
    roles = {role_of(name): name for name in parts}
    train = parts.get(roles.get("train") or layout.WHOLE)
    if train is None or not train.images:
        raise DataError(f"{root}: holds no pictures with masks for training, only {', '.join(sorted(parts))}")
    headers, sampled = headers_of(train.images)
    seen, notes = _sample(train), list[str]()
    void = [BORDER] if all(one.kind != "colour" for one in seen) and _border(seen) else []
    try:
        known = coding(seen, seen, None, None, void)
    except ValueError as error:
        raise DataError(f"{root}: {error}") from None
    counts = Counter[int]()
    for one in seen:
        counts.update(one.pixels)
    if void:
        share = counts[BORDER] / counts.total()
        notes.append(f"Value {BORDER} ({share:.1%} of the pixels) is taken for what is not judged, as Pascal VOC has it.")
    if train.alone:
        notes.append(f"{len(train.alone):,} pictures of train have no mask, such as {train.alone[0].name}.")
    if joined:
        notes.append(f"There is a mask for each class: {', '.join(joined)}.")
    names, file = ([joined[code] for code in known.values], None) if joined else _names(root, known)
    if file is not None:
        notes.append(f"Names of classes: {file.relative_to(root)}.")
    shares = {code: count / counts.total() for code, count in counts.items()}
    return SeenMasks(len(train.images), headers, sampled, known, shares, names, roles.get("validation"), roles.get("test"), notes)


def numbers_things(root: Path) -> bool:
    """Whether the masks beside a folder's pictures number things, with 16 bits a pixel or 0 to any number in each picture, or are a file
    for each thing."""
    from PIL import Image

    if root.is_dir() and layout.each_by_itself(root):
        return True
    parts = layout.find(root) if root.is_dir() else {}
    train = next((part for name, part in parts.items() if role_of(name) == "train" or name == layout.WHOLE), None)
    seen = list[Seen]()
    for file in (mask for mask in train.masks[:SAMPLED] if isinstance(mask, Path)) if train is not None else ():
        try:
            with Image.open(file) as image:
                wide = image.mode.startswith("I")
            if wide:
                return True
            seen.append(look(file))
        except (OSError, ValueError):
            continue
    return bool(seen) and largest_number(seen) > 0


def _sample(train: Part) -> list[Seen]:
    found, wrong = list[Seen](), ""
    for number in range(0, len(train.masks), max(1, len(train.masks) // LOOKED_AT)):
        try:
            mask = train.masks[number]
            found.append(look(io.BytesIO(mask) if isinstance(mask, bytes) else mask))
        except ValueError as error:
            wrong = wrong or f"{train.images[number] if isinstance(mask, bytes) else mask}: {error}"
    if not found:
        raise DataError(wrong)
    return found


def _border(seen: list[Seen]) -> bool:
    """Whether BORDER stands apart from the numbers of classes."""
    codes = {code for one in seen for code in one.pixels}
    return BORDER in codes and len(codes) > 2 and max(codes - {BORDER}) < BORDER - 50


def _names(root: Path, known: Coding) -> tuple[list[str] | None, Path | None]:
    """(the names of the classes in the order of the values, the file that holds them)."""
    for place in (root, root.parent):
        for name in NAMES:
            file = place / name
            if file.is_file() and file.stat().st_size < 1 << 20:
                found = _in_order(_rows(file), known)
                if found:
                    return found, file
    return None, None


def _rows(file: Path) -> list[tuple[str, Value | None]]:
    """(name, value where the file has it) of each line: `name`, `name,r,g,b`, `r g b name`, `name:r,g,b::`."""
    rows: list[tuple[str, Value | None]] = []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = (line for line in lines if line.strip()[:1] not in ("#", ""))
    separated = (re.sub(r"[:;\t ]+(?=\d)|(?<=\d)[:;\t ]+|:+$", ",", line).strip(", ") for line in kept)
    for fields in csv.reader(separated):
        numbers = [int(one) for one in fields if one.strip().isdigit()]
        words = [one.strip().strip(":") for one in fields if one.strip() and not one.strip().isdigit()]
        if words and not {"name", "r", "red"} & {words[0].lower(), words[-1].lower()}:
            rows.append((words[0], numbers[:3] if len(numbers) >= 3 else numbers[0] if numbers else None))
    return rows


def _in_order(rows: list[tuple[str, Value | None]], known: Coding) -> list[str] | None:
    values = [value_of(code, known.kind) for code in known.values]
    by_value = {str(value): name for name, value in rows}
    found = [by_value.get(str(value)) for value in values]
    if not any(value is not None for _, value in rows) and known.kind != "colour":  # the line is the value
        found = [rows[code][0] if code < len(rows) else None for code in known.values]
    names = [name for name in found if name]
    return names if len(names) == len(values) == len(set(names)) else None
