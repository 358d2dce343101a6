"""From the data's own splits and the experiment's `data` section to train, validation and test.

Shares are drawn by data.split_seed alone. Notes tell the report what was decided.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.schema import Data
from pipelines.data.source import Source
from pipelines.data.split import choose, folds, hold_out, hold_out_pieces, strata

ALIASES = {"train": ("train", "training"), "validation": ("validation", "val", "valid", "dev"), "test": ("test", "testing")}
MANY = 20  # classes up to which there are never too many
POOL_TEST = 0.2  # held out where data.test is `test` and the data have no such split
POOL_VALIDATION = 0.1  # of train, the same for data.validation


class Warned(str):
    """A note that is also shown as a warning when training starts."""


@dataclass(frozen=True)
class Splits:
    """The data of one run. Nothing in `facts` was learned from validation or test."""

    train: Source
    validation: Source | None
    test: Source | None
    facts: dict[str, Any] = field(default_factory=dict)  # JSON values: class names, statistics, vocabulary
    skipped: tuple[str, ...] = ()  # examples left out under on_bad_example: skip, each with its reason
    notes: tuple[str, ...] = ()  # for a reader of the report: how splits were made, resized from, ...; said at the start, too, if Warned
    more_skipped: int = 0  # further examples left out, so many that they are not named


def divide(
    names: Sequence[str], load: Callable[[str], Source], data: Data, place: str,
) -> tuple[Source, Source | None, Source | None, list[str]]:
    """Train, validation and test of one data set.

    Args:
        names: the data's own splits; a single name means that the data come in one piece.
        load: gives the source of one of them; called once for each that is used.
        data: `validation`, `test`, `fold`, `split_seed`, `group_by`, `limit`.
        place: the data set, folder or file, for messages.

    Returns:
        (train, validation, test, notes).

    Raises:
        DataError: a split that is missing or used twice, or groups in two of the data's own splits.
    """
    notes: list[str] = []
    pool = names[0] if len(names) == 1 else find("train", names)
    if pool is None:
        raise DataError(f"{place} has no split 'train'; there are {listed(sorted(names), 'and')}")
    test_name, test_share = _named(data.test, "test", names, place)
    if data.test == "test" and test_name is None:
        test_share = POOL_TEST
        notes.append(f"{place}: no test split is there, so {POOL_TEST:.0%} of {pool if len(names) > 1 else 'all'} is held out for test")
    validation_name, validation_share = _named(data.validation, "validation", names, place)
    if data.validation == "validation" and validation_name is None:
        validation_share = POOL_VALIDATION
    for first, second in ((test_name, pool), (validation_name, pool), (validation_name, test_name)):
        if first is not None and first == second:
            raise DataError(f"{place}: split {first!r} would be used twice; data.validation, data.test and train must be different splits")

    train, test, validation = load(pool), None, None
    if test_name is not None:
        test = None if data.fold else load(test_name)
    elif test_share:
        train, test = _held_out(train, test_share, "test", data, notes)
    if data.fold:
        train, test = _fold_out(train, data, notes)
    if validation_name is not None:
        validation = load(validation_name)
    elif validation_share:
        train, validation = _held_out(train, validation_share, "validation", data, notes)
    unused = [name for name in names if name not in (pool, test_name, validation_name)]
    if unused:
        judging = any(name.lower() in ALIASES["validation"] + ALIASES["test"] for name in unused)
        note = f"not used of {place}: {', '.join(sorted(unused))} (data.validation and data.test choose)"
        notes.append(Warned(note) if judging else note)
    if data.group_by is not None:
        check_groups({"train": train, "validation": validation, "test": test}, data.group_by)
    if data.limit is not None and data.limit < len(train):
        notes.append(f"train limited to {data.limit:,} of {len(train):,} examples (data.limit)")
        train = train.subset(choose(data.limit, count=len(train), seed=data.split_seed, purpose="limit", labels=strata(train)))
    return train, validation, test, notes


def own_parts(names: Sequence[str], data: Data) -> set[str]:
    """Which of validation and test are the data's own splits, not held out of train; arguments as those of `divide`, which has accepted
    them."""
    asked = {"validation": data.validation, "test": data.test}
    return {part for part, value in asked.items() if _named(value, part, names, "")[0] is not None}


def find(name: str, names: Sequence[str]) -> str | None:
    """The one of `names` that `name` means: itself, or one of the usual names of the same role (val, valid, ...)."""
    if name in names:
        return name
    if "[" in name and name.partition("[")[0] in names:  # a slice in TFDS notation
        return name
    role = next((others for others in ALIASES.values() if name.lower() in others), ())
    return next((other for other in names if other.lower() in role), None)


def check_groups(parts: dict[str, Source | None], group_by: str) -> None:
    """Raises DataError where a group is in two splits."""
    seen: dict[str, str] = {}
    for part, source in parts.items():
        if source is None:
            continue
        if source.groups is None:
            raise DataError(f"data.group_by: {group_by}: these data have no such groups")
        for group in np.unique(source.groups):
            if seen.setdefault(group, part) != part:
                raise DataError(f"data.group_by: {group_by}: group {str(group)!r} stands in both {seen[group]} and {part} of the data's "
                                "own splits; hold out a share instead (data.validation, data.test), or set data.group_by: null")


def check_classes(parts: dict[str, Source | None], classes: Sequence[str], place: str) -> None:
    """Raises DataError for classes in validation or test of which train has no example."""
    train = parts["train"]
    if train is None or train.labels is None:
        return
    known = np.unique(train.labels)
    for part, source in parts.items():
        if source is None or source.labels is None:
            continue
        unseen = np.setdiff1d(np.unique(source.labels), known)
        if len(unseen):
            titles = [classes[label] if 0 <= label < len(classes) else str(label) for label in unseen[:5]]
            example = source.name(int(np.flatnonzero(source.labels == unseen[0])[0]))
            raise DataError(f"{place}: {part} has classes of which train has no example: {', '.join(titles)}"
                            f"{' ...' if len(unseen) > 5 else ''} (such as {example}); add examples to train, or remove them")


def check_several(names: Sequence[str], place: str, of: str = "class", purpose: str = "classification", *,
                  labels: np.ndarray | None = None) -> None:
    """Raises DataError where train has examples of fewer than two classes, or items, or too few of each to learn anything.

    Args:
        names: those that train has examples of.
        of: what they are, in the singular.
        purpose: what needs two or more of them.
        labels: the class of each example of train, where all of train is there.
    """
    if len(names) < 2:
        raise DataError(f"{place}: train has {f'one {of} only ({names[0]})' if names else f'examples of no {of}'}; {purpose} needs two or "
                        "more: add examples of others (data.limit and what is held out must leave some in train)")
    counts = {} if labels is None else dict(Counter(labels.tolist()))
    if too_many(counts):
        raise DataError(f"{place}: train has {len(counts):,} classes for {sum(counts.values()):,} examples, {seen_once(counts):,} of them "
                        "seen once: these are numbers or names rather than classes; put them into fewer classes")


def seen_once(counts: Mapping[Any, int]) -> int:
    """Classes of one example."""
    return sum(count == 1 for count in counts.values())


def too_many(counts: Mapping[Any, int]) -> bool:
    """Whether there are more classes than half of the examples, or most of them are seen once: nothing can be learned of such."""
    return len(counts) > MANY and (2 * len(counts) > sum(counts.values()) or 2 * seen_once(counts) > len(counts))


def _named(value: float | str | None, purpose: str, names: Sequence[str], place: str) -> tuple[str | None, float]:
    """(the data's own split, or None; the share to hold out)."""
    if value is None or isinstance(value, (int, float)):
        return None, float(value or 0.0)
    name = find(value, names) if value != purpose or len(names) > 1 else None
    if name is None:
        if value == purpose:
            return None, 0.0
        remedy = f"set data.{purpose} to one of them, or to a share such as 0.1" + (", or to null" if purpose == "test" else "")
        raise DataError(f"data.{purpose}: {value}: {place} has no such split; there are {listed(sorted(names), 'and')}"
                        f"{did_you_mean(value, names) or '.'} Otherwise {remedy}.")
    return name, 0.0


def _fold_out(train: Source, data: Data, notes: list[str]) -> tuple[Source, Source]:
    """Train without one of its folds, and this fold."""
    assert data.fold is not None
    number, of = data.fold
    which = folds(of, count=len(train), seed=data.split_seed, labels=strata(train), groups=_groups(train, data), pieces=train.pieces)
    held = which == number - 1
    if not held.any() or held.all():
        raise DataError(f"data.fold: {len(train):,} training examples{' in few groups' if data.group_by else ''} do not divide into {of} "
                        f"folds, of which number {number} is held out; take fewer")
    train.shared = data.limit is None
    notes.append(f"fold {number} of {of}: {held.sum():,} of {len(train):,} training examples stand in the place of test, which is not read")
    return train.subset(np.flatnonzero(~held)), train.subset(np.flatnonzero(held))


def _groups(source: Source, data: Data) -> np.ndarray | None:
    if data.group_by and source.groups is None:
        raise DataError(f"data.group_by: {data.group_by}: these data have no such groups")
    return source.groups if data.group_by else None


def _held_out(source: Source, share: float, purpose: str, data: Data, notes: list[str]) -> tuple[Source, Source]:
    groups = _groups(source, data)
    how_drawn: dict[str, Any] = {"seed": data.split_seed, "purpose": purpose, "labels": strata(source)}
    if groups is None and source.pieces is not None and np.any(source.pieces >= 0):
        split = hold_out_pieces(share, source.pieces, **how_drawn)
    else:
        split = hold_out(share, count=len(source), groups=groups, **how_drawn)
    how = f"grouped by {data.group_by}" if data.group_by else "stratified" if how_drawn["labels"] is not None else "at random"
    notes.append(f"{purpose}: {len(split.held):,} of {len(source):,} examples held out, {how}, split_seed {data.split_seed}")
    notes.extend(split.notes)
    return source.subset(split.kept), source.subset(split.held)
