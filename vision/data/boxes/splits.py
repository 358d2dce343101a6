"""The splits of pictures with boxes, with the facts learned from train alone; raw examples as vision.data.boxes.open has them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.divide import divide
from pipelines.data.files import FileSource
from pipelines.data.opened import Opened
from pipelines.data.source import Source, origin
from pipelines.data.split import choose, describe
from pipelines.task.contract import Splits
from vision.data.boxes.open import CLASSES, open_boxes
from vision.data.splits import STATISTICS, cached_look, not_empty, only_readable


def load_boxes(experiment: Any, *, judging: bool = False, mixed_size: tuple[int, int] | None = None,
               open_data: Callable[[Any], Opened[FileSource]] = open_boxes) -> Splits:
    """As `vision.data.splits.load_images`, of pictures with boxes; `class_counts` are boxes of train.

    Raises:
        DataError: names file and remedy; train has no box.
    """
    data = experiment.data
    opened = open_data(data)
    skipped = list(opened.skipped)
    load = opened.load if data.on_bad_example == "stop" else only_readable(opened, data, skipped)
    train, validation, test, notes = divide(opened.names, not_empty(load, opened.place), data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    untrained = getattr(experiment, "untrained", False)
    counts = box_counts(train, len(opened.classes))
    if not counts.any() and not judging and not untrained:
        raise DataError(f"{opened.place}: no picture of train has a box")
    unseen = [name for name, count in zip(opened.classes, counts) if not count]
    if unseen and not untrained:
        notes.append(f"Train has no box of {', '.join(unseen[:8])}{' and others' if len(unseen) > 8 else ''}: none will be found.")
    some = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics")
    size, channels, mean, std = cached_look(train, some, data, opened.place, mixed_size)
    facts = {"classes": opened.classes, "class_counts": counts.tolist(), "image_size": list(size), "channels": channels, "mean": mean,
             "std": std, "statistics_of": len(some), "splits": describe(parts)}
    return Splits(train, validation, test, facts, skipped=tuple(skipped), notes=(*opened.notes, *notes))


def box_counts(source: Source, classes: int) -> np.ndarray:
    """Boxes of each class, [classes] int64."""
    labels = field_of(source, CLASSES)
    return np.bincount(labels[labels >= 0], minlength=classes)


def field_of(source: Source, name: str) -> np.ndarray:
    """An entry of all examples that is no file."""
    base, numbers = origin(source)
    assert isinstance(base, FileSource)
    return base.fields[name][numbers]
