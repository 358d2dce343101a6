"""`quartet check` for pictures with boxes: every picture decoded once, and what is wrong with boxes named."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.base import figures
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.divide import divide
from pipelines.data.files import FileSource
from pipelines.data.opened import LENIENT, Opened, without
from pipelines.data.source import Source, origin
from vision.data import examples
from vision.data.boxes.open import BOXES, CLASSES, open_boxes
from vision.data.boxes.splits import field_of
from vision.data.scan import Examined, examine
from vision.data.splits import not_empty


def check_boxes(experiment: Any, progress: Callable[[int, int], None] | None = None, *,
                open_data: Callable[[Any], Opened[FileSource]] = open_boxes, draw: examples.Over | None = None) -> Check:
    """As `vision.check.check_images`; boxes that are empty, flipped, outside or no numbers, and pictures without any, are findings.

    Args:
        draw: what lies over a picture of an example; default: its boxes.
    """
    data = experiment.data
    opened = open_data(data.model_copy(update=LENIENT))
    examined: dict[int, Examined] = {}
    pools: list[Source] = []  # kept alive, so that ids stay unique
    skip, lost = data.on_bad_example == "skip", list[str]()

    def load(split: str) -> Source:
        source = opened.load(split)
        examined[id(source)] = seen = examine(source, data.workers, progress, data.max_pixels)
        pools.append(source)
        return without(source, seen.bad, lost) if skip else source

    train, validation, test, notes = divide(opened.names, not_empty(load, opened.place) if skip else load, data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    reads = {name: _read(source, examined) for name, source in parts.items() if source is not None}
    bare = {name: int((field_of(source, CLASSES) < 0).all(1).sum()) for name, source in parts.items() if source is not None}
    notes += [f"{name}: {count:,} pictures without boxes" for name, count in bare.items() if count]
    result = check(opened.place, parts, reads, opened.classes, identical="the same pixels", skip=skip, lost=lost,
                   notes=[*opened.notes, *notes])
    if opened.skipped:
        count, do = f"{len(opened.skipped):,} boxes or pictures cannot be used", "repair or remove them, or set data.on_bad_example: skip"
        result.findings.append(Finding("warning" if skip else "error", f"{count} and are left out (data.on_bad_example: skip)" if skip else
                                       f"{count}: {do}", tuple(opened.skipped)))
        result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    if not result.failed:
        result.pictures["examples.png"] = examples.picture(train, {number for number, _ in reads["train"].bad}, draw or _draw_boxes)
    return result


def _draw_boxes(files: FileSource, number: int, image: np.ndarray, share: float) -> np.ndarray:
    classes = files.fields[CLASSES][number]
    boxes = files.fields[BOXES][number][classes >= 0] * share
    return figures.overlaid(image, boxes=boxes, names=classes[classes >= 0])


def _read(source: Source, examined: dict[int, Examined]) -> Read:
    pool, numbers = origin(source)
    seen, classes, boxes = examined[id(pool)], field_of(source, CLASSES), field_of(source, BOXES)
    reasons = dict(seen.bad)
    bad = [(place, reasons[number]) for place, number in enumerate(numbers.tolist()) if number in reasons]
    sides = np.sqrt(np.maximum((boxes[..., 2:] - boxes[..., :2]).prod(-1), 0.0))
    there = classes >= 0
    measures = {"height, px": seen.heights[numbers], "width, px": seen.widths[numbers], "boxes": there.sum(1),
                "side of a box, px": (sides * there).sum(1) / np.maximum(there.sum(1), 1)}
    kinds = np.array([f"{height} x {width} px" for height, width in zip(seen.heights[numbers].tolist(), seen.widths[numbers].tolist())])
    return Read(bad, seen.fingerprints[numbers], measures, kinds, [row[row >= 0].tolist() for row in classes])
