"""`quartet check` for images: every image decoded once, compared by its pixels."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.yaml_text import inline
from pipelines.data.check import LEVELS, Check, Read, check, shared_groups
from pipelines.data.divide import divide, own_parts
from pipelines.data.files import FileSource
from pipelines.data.number_columns import NumberColumns
from pipelines.data.opened import LENIENT, Opened, without
from pipelines.data.source import Source, origin
from vision.data import examples
from vision.data.boxes.check import check_boxes
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.data.instances.open import open_instances
from vision.data.masks import values
from vision.data.masks.open import look_at, masks_of, open_masks
from vision.data.masks.splits import class_names, coding_of
from vision.data.scan import Examined, examine
from vision.data.sources import open_data
from vision.data.splits import not_empty
from vision.outputs.mask_figures import draw_numbered, tinted
from vision.settings import ImageExperiment, ImageSegmentation

IDENTICAL = "the same pixels"


def check_images(experiment: ImageExperiment, progress: Callable[[int, int], None] | None = None) -> Check:
    """Reads every image of the splits that the experiment uses.

    Args:
        experiment: its data section.
        progress: called now and then with (images read, images of this split).

    Raises:
        DataError: where there are no splits to look at; everything else is a finding.
    """
    data, numbers = experiment.data, NumberColumns.asked(experiment)
    if data.streaming:
        raise DataError("check reads data by number; run it with data.streaming=false on a part, such as data.name with fewer examples")
    # opened leniently, so that missing files are listed with the other findings
    opened = open_data(data.model_copy(update=LENIENT), numbers)
    return _checked(data, opened, partial(_read, learned=numbers), progress)


def check_masks(experiment: ImageSegmentation, progress: Callable[[int, int], None] | None = None) -> Check:
    """As `check_images`, and every mask: its size, its values, and which classes it has."""
    data = experiment.data.model_copy(update=LENIENT)
    opened, known = open_masks(data), list[values.Coding]()

    def read(source: Source, examined: dict[int, Examined]) -> Read:
        found, (seen, _) = _read(source, examined), look_at(source, data)
        if not known:  # train comes first
            known.append(coding_of({"train": [one for one in seen if one is not None]}, data, opened.place))
            opened.classes[:] = [opened.classes[code] for code in known[0].values] if opened.classes else class_names(known[0], data)
        numbers = {code: number for number, code in enumerate(known[0].values)}
        strange = {number: why for number, one in enumerate(seen) if one is not None and (why := values.unknown(one, known[0]))}
        found.bad = sorted((strange | dict(found.bad)).items())
        found.sets = [[numbers[code] for code in one.pixels if code in numbers] if one else [] for one in seen]
        return found

    return _checked(experiment.data, opened, read, progress, lambda source: look_at(source, data)[1],
                    lambda source, bad: _masked(source, bad, known[0]))


def _masked(source: Source, bad: set[int], known: values.Coding) -> bytes:
    """Examples with their masks over them."""
    classes = dict(zip(*known.decoded))

    def over(files: FileSource, number: int, image: np.ndarray, share: float) -> np.ndarray:
        stored = masks_of(files)[number]
        mask = values.codes_in(Path(stored) if isinstance(stored, str) else io.BytesIO(stored), known.kind)
        rows, columns = (np.minimum((np.arange(side) / share).astype(int), most - 1) for side, most in zip(image.shape, mask.shape))
        numbers = np.vectorize(lambda code: classes.get(code, values.VOID), otypes=[np.uint8])(mask[rows][:, columns])
        return tinted(image, numbers, len(known.values))

    return examples.picture(source, bad, over)


def _checked(data: Any, opened: Opened[Any], read: Callable[[Source, dict[int, Examined]], Read],
             progress: Callable[[int, int], None] | None, beside: Callable[[Source], list[tuple[int, str]]] = lambda source: [],
             drawn: Callable[[Source, set[int]], bytes] | None = None) -> Check:
    """Reads every picture; `beside` gives what is wrong with that which belongs to them, `drawn` a picture of examples."""
    examined: dict[int, Examined] = {}
    skip, lost = data.on_bad_example == "skip", list(opened.skipped)

    def load(split: str) -> Source:
        source = opened.load(split)
        seen = examine(source, data.workers, progress, data.max_pixels)
        seen.bad = sorted((dict(beside(source)) | dict(seen.bad)).items())
        examined[id(source)] = seen
        pools.append(source)  # kept alive, so that ids stay unique
        return without(source, seen.bad, lost) if skip else source  # what training divides

    pools: list[Source] = []
    train, validation, test, notes = divide(opened.names, not_empty(load, opened.place) if skip else load, data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    reads = {name: read(source, examined) for name, source in parts.items() if source is not None}
    result = check(opened.place, parts, reads, opened.classes, identical=IDENTICAL, skip=skip, lost=lost,
                 notes=[*opened.notes, *notes])
    if drawn is not None and not result.failed:
        result.pictures["examples.png"] = drawn(train, {number for number, _ in reads["train"].bad})
    if data.group_by is None:
        paths_of = {name: _paths(source) for name, source in parts.items() if source is not None}
        labels = {name: [opened.classes[label] for label in source.labels] if source.labels is not None else None
                  for name, source in parts.items() if source is not None}
        if all(paths_of.values()):
            result.findings.extend(shared_groups({name: paths or [] for name, paths in paths_of.items()}, labels, lambda pattern: (
                f"In data: group_by: name, with group_pattern: {inline(pattern)}"), own_parts(opened.names, data)))
            result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return result


def _paths(source: Source) -> list[str] | None:
    """Each example's path relative to the data's folder; None where examples are not files."""
    base, numbers = origin(source)
    return [base.relative(int(number)) for number in numbers] if isinstance(base, FileSource) else None


def _draw_things(files: FileSource, number: int, image: np.ndarray, share: float) -> np.ndarray:
    """An example with its things over it."""
    from PIL import Image

    with Image.open(io.BytesIO(files.fields[THINGS][number])) as stored:
        things = np.asarray(stored)
    rows, columns = (np.minimum((np.arange(side) / share).astype(int), most - 1) for side, most in zip(image.shape, things.shape))
    there = files.fields[CLASSES][number] >= 0
    return draw_numbered(image, things[rows][:, columns], files.fields[BOXES][number][there] * share)


CHECKS = {"vision.classification": check_images, "vision.regression": check_images, "vision.detection": check_boxes,
          "vision.segmentation": check_masks, "vision.instances": partial(check_boxes, open_data=open_instances, draw=_draw_things)}
ENCODED: dict[str, Callable[[str], dict[str, Any]]] = {"vision.classification": lambda preset: {}}  # it takes images as they are


def _read(source: Source, examined: dict[int, Examined], learned: NumberColumns | None = None) -> Read:
    pool, numbers = origin(source)
    seen = examined[id(pool)]
    reasons = dict(seen.bad)
    bad = [(place, reasons[number]) for place, number in enumerate(numbers.tolist()) if number in reasons]
    heights, widths = seen.heights[numbers], seen.widths[numbers]
    kinds = np.array([f"{height} x {width} px" for height, width in zip(heights.tolist(), widths.tolist())])
    measures = {"height, px": heights, "width, px": widths}
    if learned and source.number_targets is not None:
        measures |= {name: values for name, values in zip(learned.names, source.number_targets.T) if np.isfinite(values).all()}
    return Read(bad, seen.fingerprints[numbers], measures, kinds)
