"""From the data section to a catalogue: read, cleaned by stated rules, divided, numbered."""

from typing import Any

import numpy as np

from pipelines.config.schema import Experiment
from pipelines.data.split import draws
from pipelines.errors import DataError
from recsys.catalogue import Catalogue, catalogue
from recsys.protocol import NAMES, TRAIN, divided, in_time
from recsys.reading import Log, read_log
from recsys.settings import ImplicitData, InteractionData


def load(data: InteractionData, known: dict[str, Any] | None = None, *, pairs_once: bool = True) -> tuple[Catalogue, list[str]]:
    """(the catalogue; notes for the report).

    Args:
        known: facts of a finished run, for other data that it is judged on.
        pairs_once: of several events of one user with one item only the last counts.

    Raises:
        DataError: names file, row and remedy.
    """
    log = read_log(data)
    notes = list(log.notes)
    if log.left_out:
        notes.append(f"{log.left_out:,} rows were left out as unreadable (on_bad_example: skip)")
    if isinstance(data, ImplicitData):
        log = _positive(log, data, notes)
    if pairs_once and log.users is not None and log.items is not None:
        log = _once(log, notes)
    log = _frequent(log, data, notes)
    parts, said = divided(log, data)
    if data.limit is not None and np.sum(parts == TRAIN) > data.limit:
        train = np.flatnonzero(parts == TRAIN)
        gone = train[np.argsort(draws(len(train), data.split_seed, "limit"), kind="stable")[data.limit :]]
        keep = np.ones(len(log), bool)
        keep[gone] = False
        log, parts = log.take(keep), parts[keep]
        notes.append(f"train limited to {data.limit:,} of {len(train):,} events (data.limit)")
    made = catalogue(log, parts, data, known)
    cold = {name: int(np.sum(made.items[parts == number] == 0)) for number, name in enumerate(NAMES) if number != TRAIN}
    for name, count in cold.items():
        if count and made.item_ids is not None:
            notes.append(f"{count:,} of {int(np.sum(parts == NAMES.index(name))):,} {name} events are of items that train does not have")
    return made, [*said, *notes]


def pairs_once(experiment: Experiment) -> bool:
    """Whether of several events of one user with one item only the last counts: not of clicks."""
    return getattr(getattr(experiment, "loss", None), "name", None) != "click"


def _positive(log: Log, data: ImplicitData, notes: list[str]) -> Log:
    if data.positive_from is None:
        notes.append("Every interaction counts as positive")
        return log
    if log.ratings is None:
        raise DataError(f"{log.place}: data.positive_from needs ratings (data.rating_key)")
    keep = log.ratings >= data.positive_from
    notes.append(f"Ratings from {data.positive_from:g} on count as positive; {int(np.sum(~keep)):,} of {len(log):,} are lower and left out")
    if not keep.any():
        raise DataError(f"{log.place}: no rating reaches data.positive_from = {data.positive_from:g}; the highest is {log.ratings.max():g}")
    return log.take(keep)


def repeated(log: Log) -> np.ndarray:
    """[n] bool: a later event of the same user with the same item is there."""
    assert log.users is not None and log.items is not None and log.item_ids is not None
    order = in_time(log)
    pair = log.users[order].astype(np.int64) * len(log.item_ids) + log.items[order]
    _, first = np.unique(pair[::-1], return_index=True)
    gone = np.ones(len(log), bool)
    gone[order[len(order) - 1 - first]] = False
    return gone


def _once(log: Log, notes: list[str]) -> Log:
    gone = repeated(log)
    if not gone.any():
        return log
    notes.append(
        f"{int(gone.sum()):,} of {len(log):,} events ({gone.mean():.0%}) are followed by another of the same user and item, "
        "and left out: the last one counts"
    )
    return log.take(~gone)


def _frequent(log: Log, data: InteractionData, notes: list[str]) -> Log:
    """Without users and items of too few events; once each, items first."""
    for of, least in (("item", data.min_item_events), ("user", data.min_user_events)):
        numbers = log.items if of == "item" else log.users
        if least <= 1 or numbers is None:
            continue
        counts = np.bincount(numbers)
        keep = counts[numbers] >= least
        if not keep.all():
            notes.append(f"{int(np.sum((counts > 0) & (counts < least))):,} {of}s with fewer than {least} events left out")
            log = log.take(keep)
    if not len(log):
        raise DataError(f"{log.place}: nothing is left after data.min_user_events and data.min_item_events")
    return log


def part_sizes(parts: np.ndarray) -> dict[str, int]:
    """Events of each part."""
    return {name: int(np.sum(parts == number)) for number, name in enumerate(NAMES)}
