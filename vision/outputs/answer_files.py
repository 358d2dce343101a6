"""Boxes and masks that were found, as files that other programs read (COCO's JSON, YOLO's txt files, PNG), and drawn in their pictures."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from vision.data.decode import pixels
from vision.outputs.instance_metrics import runs
from vision.outputs.mask_figures import tints

DRAWN = 600  # px of the longer side of a picture in which something is drawn, at least
Answered = Iterable[tuple[str, Mapping[str, Any]]]


def coco(answers: Answered, classes: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """One JSON object with `images`, `categories` and `annotations`, each of these with its `score`, and where there are masks its
    `segmentation` in runs; ids of categories count from 1 in the order of the classes, that of a picture is its name where that is a number
    (000000000139.jpg), else counted from 1."""
    images, annotations, used, numbers = [], list[dict[str, Any]](), set[int](), {name: place for place, name in enumerate(classes, 1)}
    for name, values in answers:
        stem = Path(name).stem
        own = int(stem) if stem.isascii() and stem.isdecimal() and int(stem) not in used else 1 + max(used, default=0)
        used.add(own)
        height, width = picture(name).shape[:2]
        images.append({"id": own, "file_name": Path(name).name, "width": width, "height": height})
        things = _runs(values["mask"]) if "mask" in values else None
        for place, (box, label, score) in enumerate(_found(values), 1):
            left, top, right, bottom = box
            one = {"id": len(annotations) + 1, "image_id": own, "category_id": numbers[label], "iscrowd": 0, "score": score,
                   "bbox": [round(value, 2) for value in (left, top, right - left, bottom - top)],
                   "area": round((right - left) * (bottom - top), 2)}
            if things is not None:
                counts = things.get(place, [height * width])
                one |= {"segmentation": {"size": [height, width], "counts": counts}, "area": sum(counts[1::2])}
            annotations.append(one)
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    yield "", json.dumps({"images": images, "categories": categories, "annotations": annotations}, ensure_ascii=False).encode()


def yolo(answers: Answered, classes: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """`classes.txt`, and for each picture a file of its name: class number, middle and size in shares of the picture, score."""
    yield "classes.txt", "".join(f"{name}\n" for name in classes).encode()
    numbers = {name: place for place, name in enumerate(classes)}
    for name, values in answers:
        height, width = picture(name).shape[:2]
        lines = []
        for (left, top, right, bottom), label, score in _found(values):
            shares = ((left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height)
            lines.append(f"{numbers[label]} {' '.join(f'{share:.6f}' for share in shares)} {score:.6f}\n")
        yield f"{Path(name).stem}.txt", "".join(lines).encode()


def draw_boxes(name: str | bytes, values: Mapping[str, Any], classes: Sequence[str]) -> bytes:
    """A picture by its file's name or bytes, upright, with its boxes, their classes and scores, as a PNG file; a small one a whole number
    of times as large, so that its things show beside their names."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture(name))
    times = -(-DRAWN // max(image.size))
    image = image.resize((times * image.width, times * image.height), Image.Resampling.NEAREST)
    draw, width = ImageDraw.Draw(image), max(1, round(max(image.size) / 400))
    font = ImageFont.load_default(max(10, round(max(image.size) / 50)))
    colours = dict(zip(classes, map(tuple, tints(len(classes)).tolist())))
    for box, label, score in reversed(list(_found(values))):  # the best stays on top
        colour, (left, top, right, bottom) = colours[label], (times * side for side in box)
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=width)
        text = f"{label} {score:.2f}"
        begin = draw.textbbox((0, 0), text, font=font)
        wide, tall = begin[2] + 4, begin[3] + 4
        x, y = max(0, min(left, image.width - wide)), top - tall if top >= tall else top
        draw.rectangle((x, y, x + wide, y + tall), fill=colour)
        draw.text((x + 2, y + 1), text, font=font, fill="white" if np.dot(colour, (0.3, 0.59, 0.11)) < 150 else "black")
    return _png(image)


def draw_things(name: str, values: Mapping[str, Any], classes: Sequence[str]) -> bytes:
    """The picture upright, under its things in colours, with their boxes, classes and scores, as a PNG file."""
    return draw_boxes(draw_mask(name, values), values, classes)


def masks(answers: Answered) -> Iterator[tuple[str, bytes]]:
    """The mask of each picture as a PNG file of its name."""
    for name, values in answers:
        yield f"{Path(name).stem}.png", values["mask"]


def draw_mask(name: str, values: Mapping[str, Any]) -> bytes:
    """The picture upright, under its mask in colours, as a PNG file."""
    from PIL import Image

    below = Image.fromarray(picture(name)).convert("RGBA")
    with Image.open(io.BytesIO(values["overlay"])) as overlay:
        return _png(Image.alpha_composite(below, overlay.convert("RGBA")).convert("RGB"))


def _png(image: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def picture(file: str | bytes) -> np.ndarray:
    """A file's pixels, by its name or bytes, upright, [height, width, 3] uint8. Raises DataError where it cannot be read any more."""
    try:
        content = file if isinstance(file, bytes) else Path(file).read_bytes()
        image: np.ndarray = pixels(tf.constant(content), 3).numpy()
        return image
    except (OSError, tf.errors.OpError) as error:
        raise DataError(f"{file if isinstance(file, str) else 'a picture'}: cannot be read: {error}") from error


def _runs(mask: bytes) -> dict[int, list[int]]:
    """Of each thing of a picture of numbers, as COCO has them."""
    from PIL import Image

    with Image.open(io.BytesIO(mask)) as numbers:
        return runs(np.asarray(numbers))


def _found(values: Mapping[str, Any]) -> Iterator[tuple[list[float], str, float]]:
    for box, label, score in zip(values["boxes"], values["labels"], values["scores"]):
        yield np.asarray(box, np.float64).tolist(), label.decode() if isinstance(label, bytes) else str(label), round(float(score), 6)
