"""`quartet check` for images: every image decoded once, compared by its pixels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.yaml_text import inline
from pipelines.data.check import LEVELS, Check, Read, check, shared_groups
from pipelines.data.divide import divide, own_parts
from pipelines.data.files import FileSource
from pipelines.data.number_columns import NumberColumns
from pipelines.data.opened import LENIENT, without
from pipelines.data.source import Source, origin
from vision.data.boxes.check import check_boxes
from vision.data.scan import Examined, examine
from vision.data.sources import open_data
from vision.data.splits import not_empty
from vision.settings import ImageExperiment

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
    examined: dict[int, Examined] = {}
    skip, lost = data.on_bad_example == "skip", list(opened.skipped)

    def load(split: str) -> Source:
        source = opened.load(split)
        seen = examine(source, data.workers, progress, data.max_pixels)
        examined[id(source)] = seen
        pools.append(source)  # kept alive, so that ids stay unique
        return without(source, seen.bad, lost) if skip else source  # what training divides

    pools: list[Source] = []
    train, validation, test, notes = divide(opened.names, not_empty(load, opened.place) if skip else load, data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    reads = {name: _read(source, examined, numbers) for name, source in parts.items() if source is not None}
    result = check(opened.place, parts, reads, opened.classes, identical=IDENTICAL, skip=skip, lost=lost,
                 notes=[*opened.notes, *notes])
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


CHECKS = {"vision.classification": check_images, "vision.regression": check_images, "vision.detection": check_boxes}
ENCODED: dict[str, Callable[[str], dict[str, Any]]] = {"vision.classification": lambda preset: {}}  # it takes images as they are


def _read(source: Source, examined: dict[int, Examined], learned: NumberColumns | None) -> Read:
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
