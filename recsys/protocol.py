"""Which events are train, validation and test: leave-last-out, a cut in time, or a random share.

Pure functions of users, times and data.split_seed. What was decided is said in words, for the report.
"""

import numpy as np

from pipelines.data.divide import ALIASES, POOL_TEST
from pipelines.data.split import draws
from pipelines.errors import DataError
from recsys.reading import Log
from recsys.settings import InteractionData

TRAIN, VALIDATION, TEST = 0, 1, 2
NAMES = ("train", "validation", "test")


def in_time(log: Log) -> np.ndarray:
    """[n] int64: the events ordered by user, then time, then row (of equal times the order of the data decides)."""
    keys = [log.rows]
    if log.times is not None:
        keys.append(log.times)
    if log.users is not None:
        keys.append(log.users)
    return np.lexsort(keys)


def divided(log: Log, data: InteractionData) -> tuple[np.ndarray, list[str]]:
    """(part of each event [n] int8: TRAIN, VALIDATION or TEST; what was decided, in words).

    Raises:
        DataError: nothing is left to train on, or the data's own split names are not understood.
    """
    wants_test, wants_validation = data.test is not None, data.validation != 0.0
    if data.split_key is not None and log.parts is not None:
        parts, said = _own(log, data)
    elif data.protocol == "leave_last_out":
        parts, said = _leave_last_out(log, wants_validation, wants_test)
    else:
        test = POOL_TEST / 2 if isinstance(data.test, str) else float(data.test or 0.0)
        validation = float(data.validation) if not isinstance(data.validation, str) else 0.1
        shares = ((TEST, test), (VALIDATION, validation))
        parts, said = _by_time(log, shares) if data.protocol == "time" else _at_random(log, shares, data.split_seed)
    if not np.any(parts == TRAIN):
        raise DataError(f"{log.place}: no event is left to train on ({said[0]})")
    return parts, said


def _leave_last_out(log: Log, validation: bool, test: bool) -> tuple[np.ndarray, list[str]]:
    if log.users is None:
        raise DataError(f"{log.place}: leave_last_out needs users (data.user_key)")
    order = in_time(log)
    users = log.users[order]
    parts = np.zeros(len(log), np.int8)
    counts = np.bincount(users)
    last = np.r_[users[1:] != users[:-1], True]
    held = int(test)
    if test:
        parts[order[last & (counts[users] >= 2)]] = TEST
    if validation:
        before = np.flatnonzero(last) - held
        fit = counts[users[last]] >= 2 + held
        parts[order[before[fit]]] = VALIDATION
    few = int(np.sum((counts > 0) & (counts < 2 + held * int(validation))))
    said = [
        f"Protocol leave_last_out: of each user the last event{' by time' if log.times is not None else ' in the order of the rows'} "
        f"is {'test' if test else 'validation'}"
        + (", the one before validation" if test and validation else "")
        + ", the rest train; of equal times the order of the data decides"
    ]
    if few:
        said.append(f"{few:,} of {int(np.sum(counts > 0)):,} users have too few events for all of that; what train needs stays there")
    return parts, said


def _by_time(log: Log, shares: tuple[tuple[int, float], ...]) -> tuple[np.ndarray, list[str]]:
    if log.times is None:
        raise DataError(f"{log.place}: protocol: time needs times (data.time_key)")
    parts, bounds, taken = np.zeros(len(log), np.int8), [], 0.0
    ordered = np.sort(log.times)
    for part, share in shares:
        if share:
            taken += share
            # events of one time stay on one side
            bound = ordered[min(len(ordered) - 1, int(np.floor((1 - taken) * len(ordered))))]
            parts[(log.times >= bound) & (parts == TRAIN)] = part
            bounds.append(f"{NAMES[part]} from {when(bound)} on")
    return parts, [f"Protocol time: the latest events are held out, {', '.join(bounds)}; the rest train"]


def _at_random(log: Log, shares: tuple[tuple[int, float], ...], seed: int) -> tuple[np.ndarray, list[str]]:
    parts, done = np.zeros(len(log), np.int8), 0
    order = np.argsort(draws(len(log), seed, "events"), kind="stable")
    said = []
    for part, share in shares:
        count = round(share * len(log))
        if share and count:
            parts[order[done : done + count]] = part
            done += count
            said.append(f"{NAMES[part]} {share:.0%}")
    return parts, [
        f"Protocol random: {' and '.join(said) or 'nothing'} of all events held out at random, split_seed {seed}"
        "; events after a held-out one may be trained on"
    ]


def _own(log: Log, data: InteractionData) -> tuple[np.ndarray, list[str]]:
    assert log.parts is not None
    parts = np.full(len(log), -1, np.int8)
    for number, name in enumerate(NAMES):
        parts[np.isin(np.char.lower(log.parts.astype(str)), ALIASES[name])] = number
    unknown = np.flatnonzero(parts < 0)
    if len(unknown):
        raise DataError(
            f"{log.name(int(unknown[0]))}: {str(log.parts[unknown[0]])!r} in column {data.split_key} (data.split_key) is none of "
            "train, validation and test"
        )
    return parts, [f"Protocol: the data's own splits, column {data.split_key}"]


def when(time: float) -> str:
    """A time in words: a date where it looks like seconds since 1970, else the number."""
    if 1e8 < time < 1e11:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(float(time), tz=timezone.utc).strftime("%Y-%m-%d %H:%M")
    return f"{time:g}"
