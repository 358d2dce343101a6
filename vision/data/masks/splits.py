"""The splits of pictures with masks, with the facts learned from train alone; raw examples as vision.data.masks.open has them."""

from collections.abc import Callable

from pipelines.base.errors import DataError
from pipelines.data.divide import divide
from pipelines.data.opened import without
from pipelines.data.source import Source
from pipelines.data.split import choose, describe
from pipelines.task.contract import Splits
from vision.data.masks import values
from vision.data.masks.open import look_at, open_masks
from vision.data.masks.values import Coding, Seen
from vision.data.splits import STATISTICS, cached_look, not_empty, only_readable
from vision.settings import ImageSegmentation, MaskData


def load_masks(experiment: ImageSegmentation, *, judging: bool = False, mixed_size: tuple[int, int] | None = None) -> Splits:
    """As `vision.data.splits.load_images`, of pictures with masks.

    Facts:
        classes, class_counts: names, and pixels of each in train.
        coding: see vision.data.masks.values.Coding.

    Raises:
        DataError: names file and remedy.
    """
    data = experiment.data
    opened = open_masks(data)
    skipped = list(opened.skipped)
    load = opened.load if data.on_bad_example == "stop" else only_readable(opened, data, skipped)
    load = not_empty(_with_masks(load, data, skipped, opened.place), opened.place)
    train, validation, test, notes = divide(opened.names, load, data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    seen = {name: [one for one in look_at(part, data)[0] if one is not None] for name, part in parts.items() if part is not None}
    known = coding_of(seen, data, opened.place)
    for name, part in parts.items():
        for number, one in enumerate(seen.get(name, ())):
            if part is not None and (problem := values.unknown(one, known)):
                raise DataError(f"{part.name(number)}: {problem}")
    pixels = values.counts(seen["train"], known)
    classes = [opened.classes[code] for code in known.values] if opened.classes else class_names(known, data)
    unseen = [name for name, count in zip(classes, pixels) if not count]
    if unseen:
        notes.append(f"Train has no pixel of {', '.join(unseen[:8])}{' and others' if len(unseen) > 8 else ''}: none will be found.")
    some = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics")
    size, channels, mean, std = cached_look(train, some, data, opened.place, mixed_size)
    coding = {"kind": known.kind, "values": known.values, "void": known.void, "decoded": list(known.decoded)}
    facts = {"classes": classes, "class_counts": pixels, "coding": coding, "image_size": list(size), "channels": channels, "mean": mean,
             "std": std, "statistics_of": len(some), "splits": describe(parts)}
    return Splits(train, validation, test, facts, skipped=tuple(skipped), notes=(*opened.notes, *notes))


def class_names(known: Coding, data: MaskData) -> list[str]:
    """Of each class, as set or as its value."""
    return data.classes or [str(values.value_of(code, known.kind)) for code in known.values]


def coding_of(seen: dict[str, list[Seen]], data: MaskData, place: str) -> Coding:
    """Which class each value is. Raises DataError with the remedy."""
    try:
        return values.coding(seen["train"], [one for part in seen.values() for one in part], data.classes, data.values, data.void)
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None


def _with_masks(load: Callable[[str], Source], data: MaskData, skipped: list[str], place: str) -> Callable[[str], Source]:
    """`load` without the examples whose mask cannot be read. Raises DataError for the first where data.on_bad_example is stop."""

    def loaded(split: str) -> Source:
        source = load(split)
        bad = look_at(source, data)[1]
        if bad and data.on_bad_example == "stop":
            number, why = bad[0]
            more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
            raise DataError(f"{source.name(number)}: {why}{more}. Repair or remove it, or set data.on_bad_example: skip; `quartet "
                            "check` lists all such examples.")
        return without(source, bad, skipped, data, f"{place}: split {split}")

    return loaded
