"""From the data section to a catalogue: read, cleaned by stated rules, divided, numbered."""

from collections.abc import Collection
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.schema import Experiment
from pipelines.data.split import draws
from recsys.data.catalogue import Catalogue, build_catalogue
from recsys.data.log import Log
from recsys.data.protocol import LEFT_OUT, NAMES, TRAIN, Repetitions, divided
from recsys.data.sources import read_log
from recsys.settings import ImplicitData, InteractionData, LoggedData


def load(data: InteractionData, known: dict[str, Any] | None = None, *, repetitions: Repetitions = "left out",
         described: Collection[str] = ()) -> tuple[Catalogue, list[str]]:
    """(the catalogue; notes for the report).

    Args:
        known: facts of a finished run, for other data that it is judged on.
        described: see `build_catalogue`.
        repetitions: what becomes of further events of one user with one item, see `protocol.divided`.

    Raises:
        DataError: names file, row and remedy.
    """
    log = read_log(data)
    notes = list(log.notes)
    if log.left_out:
        notes.append(f"{log.left_out:,} rows were left out as unreadable (on_bad_example: skip)")
    if isinstance(data, ImplicitData):
        log = _positive(log, data, notes)
    parts, sentences = divided(log, data, repetitions)
    if np.any(parts == LEFT_OUT):
        log, parts = log.take(parts != LEFT_OUT), parts[parts != LEFT_OUT]
    if data.limit is not None and np.sum(parts == TRAIN) > data.limit:
        train = np.flatnonzero(parts == TRAIN)
        gone = train[np.argsort(draws(len(train), data.split_seed, "limit"), kind="stable")[data.limit :]]
        keep = np.ones(len(log), bool)
        keep[gone] = False
        log, parts = log.take(keep), parts[keep]
        notes.append(f"train limited to {data.limit:,} of {len(train):,} events (data.limit)")
    log, parts = _frequent(log, parts, data, notes)
    catalogue = build_catalogue(log, parts, data, known, described)
    cold = {name: int(np.sum(catalogue.items[parts == number] == 0)) for number, name in enumerate(NAMES) if number != TRAIN}
    notes += catalogue.said_of_new()
    for name, count in cold.items():
        if count and catalogue.item_ids is not None:
            notes.append(f"{count:,} of {int(np.sum(parts == NAMES.index(name))):,} {name} events are of items that train does not have")
    return catalogue, [*sentences, *notes]


def repetitions_of(experiment: Experiment) -> Repetitions:
    """What becomes of further events of one user with one item: clicks and logged choices all count; a rating is of what the user has not
    rated; lists may hold what the user had (evaluate.exclude_seen: false) or are of new items alone."""
    if isinstance(experiment.data, LoggedData) or getattr(getattr(experiment, "loss", None), "name", None) == "click":
        return "count"
    return "left out" if getattr(experiment.evaluate, "exclude_seen", True) else "judged once"


def described_of(experiment: Experiment) -> Collection[str]:
    """"item", "user": what the experiment's model knows by its columns alone, too."""
    return getattr(experiment.model, "described", ())  # type: ignore[attr-defined]


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


def _frequent(log: Log, parts: np.ndarray, data: InteractionData, notes: list[str]) -> tuple[Log, np.ndarray]:
    """Without users and items of too few events in train; once each, items first. What is held out does not count."""
    for of, least in (("item", data.min_item_events), ("user", data.min_user_events)):
        numbers = log.items if of == "item" else log.users
        if least <= 1 or numbers is None:
            continue
        counts = np.bincount(numbers[parts == TRAIN], minlength=int(numbers.max(initial=0)) + 1)
        keep = counts[numbers] >= least
        if not keep.all():
            held = [f"{np.sum(~keep & (parts == number)):,} {NAMES[number]}" for number in (1, 2) if np.any(~keep & (parts == number))]
            gone = len(np.unique(numbers[~keep]))
            notes.append(f"{gone:,} {of}s with fewer than {least} events in train left out"
                         + (f", and with them {' and '.join(held)} events, which are not judged" if held else ""))
            log, parts = log.take(keep), parts[keep]
    if not np.any(parts == TRAIN):
        raise DataError(f"{log.place}: nothing is left to train on after data.min_user_events and data.min_item_events")
    return log, parts
