"""Which events are train, validation and test: leave-last-out, a cut in time, or a random share.

Pure functions of users, times and data.split_seed. What was decided is described for the report. Where each pair of user and
item counts once, what is held out is new to the user, and no event of train is left out for what comes after it.
"""

from typing import Literal

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.divide import ALIASES, POOL_TEST
from pipelines.data.split import draws
from recsys.data.log import Log, index_type
from recsys.settings import InteractionData, moment

TRAIN, VALIDATION, TEST, LEFT_OUT = 0, 1, 2, -1
NAMES = ("train", "validation", "test")
JUDGING = 2_000  # users whose events leave_last_out holds out as validation, where there are so many: enough to choose by
Repetitions = Literal["count", "judged once", "left out"]


def divided(log: Log, data: InteractionData, repetitions: Repetitions = "count") -> tuple[np.ndarray, list[str]]:
    """(part of each event [n] int8: TRAIN, VALIDATION, TEST or LEFT_OUT; what was decided, in words).

    With data.fold [k, n] the test events are left out, and of the others a fold is TEST: the k-th of n where they are drawn at random, or
    the data's own; else what the protocol holds out of the events before those that it has held out k times.

    Args:
        repetitions: further events of one user with one item. `count`: they are events like others. `judged once`: so they are, but
            validation and test have each pair once. `left out`: a pair is in one part alone, the earliest that it occurs in, and of its
            events there the last counts. With leave_last_out a user's last new item is then held out; with random, where no part
            comes before another, pairs are drawn whole.

    Raises:
        DataError: nothing is left to train on, or the data's own split names are not understood.
    """
    if log.users is None or log.items is None:
        repetitions = "count"
    own = log.parts is not None
    parts, sentences = (_own(log, data) if own else _by_protocol(log, data, repetitions))
    if data.fold:
        sentences += [f"Fold {data.fold[0]} of {data.fold[1]}, in the place of test, whose {np.sum(parts == TEST):,} events are left out"]
        parts = _fold(log, parts, data, repetitions, drawn=own or data.protocol == "random")
    once = repetitions == "left out"
    if once:
        parts = _once(log, parts)
    elif repetitions == "judged once":
        parts = _judged_once(log, parts)
    gone = int(np.sum(parts == LEFT_OUT))
    if gone and not data.fold:
        why = "a pair counts once, by its last event in the earliest part that has it" if once else "held out, a pair counts once"
        sentences.append(f"{gone:,} of {len(log):,} events ({gone / len(log):.0%}) repeat a user and item and are left out: {why}")
    if not np.any(parts == TRAIN):
        raise DataError(f"{log.place}: no event is left to train on ({sentences[0]})")
    return parts, sentences


def _by_protocol(log: Log, data: InteractionData, repetitions: Repetitions) -> tuple[np.ndarray, list[str]]:
    once = repetitions == "left out"
    validation = float(data.validation) if not isinstance(data.validation, str) else 0.1
    if data.protocol == "leave_last_out":
        return _leave_last_out(log, validation or None, data.test is not None, once, data)
    test = POOL_TEST / 2 if isinstance(data.test, str) else float(data.test or 0.0)
    shares = ((TEST, test), (VALIDATION, validation))
    return _by_time(log, shares, data) if data.protocol == "time" else _at_random(log, shares, data.split_seed, once)


def _fold(log: Log, parts: np.ndarray, data: InteractionData, repetitions: Repetitions, *, drawn: bool) -> np.ndarray:
    """The parts with a fold in the place of test, whose events are left out.

    Args:
        drawn: the fold is a share of train; else the protocol divides what comes before.
    """
    assert data.fold is not None
    number, of = data.fold
    if drawn:
        parts = np.where(parts == TEST, np.int8(LEFT_OUT), parts)
        train = np.flatnonzero(parts == TRAIN)
        parts[train[np.argsort(draws(len(train), data.split_seed, "folds"), kind="stable")[number - 1::of]]] = TEST
        return parts
    data = _as_spans(log, parts, data)
    numbers = np.arange(len(log))
    for _ in range(number):
        numbers = numbers[(parts == TRAIN) | (parts == VALIDATION)]
        parts, _ = _by_protocol(log.take(numbers), data, repetitions)
    whole = np.full(len(log), LEFT_OUT, np.int8)
    whole[numbers] = parts
    return whole


def _as_spans(log: Log, parts: np.ndarray, data: InteractionData) -> InteractionData:
    """The settings with points in time as spans: an earlier fold is as long as what was held out in `parts`."""
    if data.protocol != "time" or log.times is None or (data.test_from is None and data.validation_from is None):
        return data
    changes, end = {}, float(log.times.max())
    for name, part in (("test_from", TEST), ("validation_from", VALIDATION)):
        if np.any(parts == part):
            begin = float(log.times[parts == part].min())
            changes[name], end = f"{end - begin:.3f} s", begin
    return data.model_copy(update=changes)


def pairs_of(log: Log) -> np.ndarray:
    """[n] int64: a number for each pair of user and item."""
    assert log.users is not None and log.items is not None and log.item_ids is not None
    return log.users.astype(np.int64) * len(log.item_ids) + log.items


def repeating(log: Log, *, later: bool = True) -> np.ndarray:
    """[n] bool: events of a pair of user and item that has an earlier one, or (not `later`) a later one."""
    order = log.in_time
    if not later:
        order = order[::-1]
    _, first = np.unique(pairs_of(log)[order], return_index=True)
    repeats = np.ones(len(log), bool)
    repeats[order[first]] = False
    return repeats


def _once(log: Log, parts: np.ndarray) -> np.ndarray:
    """The parts with one event of each pair: the last one in the earliest part."""
    count = len(log)
    rank = np.empty(count, np.int64)  # by part, and of a part the last first
    rank[log.in_time] = np.arange(count, 0, -1)
    rank += np.where(parts == LEFT_OUT, len(NAMES), parts).astype(np.int64) * (count + 1)
    pairs = pairs_of(log)
    order = np.lexsort((rank, pairs))
    del rank
    pairs = pairs[order]
    kept = order[np.append(True, pairs[1:] != pairs[:-1])]
    once = np.full(count, LEFT_OUT, np.int8)
    once[kept] = parts[kept]
    return once


def _judged_once(log: Log, parts: np.ndarray) -> np.ndarray:
    """The parts with one event of each pair in validation, and one in test: the first."""
    once = parts.copy()
    for part in (VALIDATION, TEST):
        numbers = np.flatnonzero(parts == part)
        if len(numbers):
            once[numbers[repeating(log.take(numbers))]] = LEFT_OUT
    return once


def _leave_last_out(log: Log, validation: float | None, test: bool, once: bool, data: InteractionData) -> tuple[np.ndarray, list[str]]:
    """`validation`: share of the users who have an event there, JUDGING of them at least; None: there is no validation."""
    if log.users is None:
        raise DataError(f"{log.place}: leave_last_out needs users (data.user_key)")
    if data.basket and log.times is None:
        raise DataError(f"{log.place}: data.basket needs times (data.time_key)")
    timely = log.in_time
    new = ~repeating(log) if once else np.ones(len(log), bool)
    order = timely[new[timely]]
    users = log.users[order]
    parts = np.zeros(len(log), np.int8)
    counts, back = _baskets(users, log.times[order] if data.basket and log.times is not None else None, data.basket == "day")
    held = int(test)
    if test:
        parts[order[(back == 0) & (counts[users] >= 2)]] = TEST
    drawn = ""
    if validation is not None:
        judged = np.flatnonzero(counts >= 2 + held)
        count = max(JUDGING, round(validation * len(judged)))
        if count < len(judged):
            judged = judged[np.argsort(draws(len(judged), data.split_seed, "users"), kind="stable")[:count]]
            drawn = f" of {count:,} users, drawn by split_seed {data.split_seed}"
        chosen = np.zeros(len(counts), bool)
        chosen[judged] = True
        parts[order[(back == held) & chosen[users]]] = VALIDATION
    # what repeats an item after something was held out would be known too early
    behind = np.zeros(len(log), bool)
    behind[timely] = _after_held(log.users[timely], parts[timely] != TRAIN)
    parts[behind & ~new] = LEFT_OUT
    few = int(np.sum((counts > 0) & (counts < 2 + held * int(validation is not None))))
    last, before, ties = "last event", "is", "of equal times the order of the data decides"
    if data.basket:
        last, before = f"events of the last {'day (UTC)' if data.basket == 'day' else 'moment'}", "are"
        ties = f"{np.sum(back == 0) / max(1, np.sum(counts > 0)):.2g} on average"
    of_new = " with a new item" if once and not new.all() else ""
    sentences = [
        f"Protocol leave_last_out: of each user the {last}{of_new}"
        f"{' by time' if log.times is not None else ' in the order of the rows'} "
        f"{before} {'test' if test else f'validation{drawn}'}"
        + (f", {'those' if data.basket else 'the one'} before validation{drawn}" if test and validation is not None else "")
        + f", the rest train; {ties}"
    ]
    if few:
        sentences.append(f"{few:,} of {int(np.sum(counts > 0)):,} users have too few {'baskets' if data.basket else 'events'} "
                         "for all of that; what train needs stays there")
    return parts, sentences


def _baskets(users: np.ndarray, times: np.ndarray | None, days: bool) -> tuple[np.ndarray, np.ndarray]:
    """(baskets of each user [users]; how many baskets of its user come after each event [n]), of events by user and time.

    Args:
        times: those of one moment, or one day, are one basket; None: each event is one.
    """
    ends = np.ones(len(users), bool)  # the last event of a basket
    if times is not None:
        stamps = np.floor(times / 86_400.0) if days else times
        ends[:-1] = (users[1:] != users[:-1]) | (stamps[1:] != stamps[:-1])
    kind = index_type(len(users))
    counts = np.bincount(users[ends])
    ended = np.cumsum(ends, dtype=kind) - ends  # baskets before that of the event, of all users
    return counts, np.cumsum(counts, dtype=kind)[users] - 1 - ended


def _after_held(users: np.ndarray, held: np.ndarray) -> np.ndarray:
    """[n] bool: an event that is held out comes at or before this one of the same user; events by user and time."""
    seen = np.cumsum(held)
    starts = np.append(True, users[1:] != users[:-1])
    before = np.maximum.accumulate(np.where(starts, seen - held, 0))
    return seen > before


def _by_time(log: Log, shares: tuple[tuple[int, float], ...], data: InteractionData) -> tuple[np.ndarray, list[str]]:
    if log.times is None:
        raise DataError(f"{log.place}: protocol: time needs times (data.time_key)")
    parts, bounds, share_so_far = np.zeros(len(log), np.int8), [], 0.0
    ordered = np.sort(log.times)
    points = {TEST: data.test_from if data.test is not None else None, VALIDATION: data.validation_from}
    end = float(ordered[-1])
    for part, share in shares:
        point = points[part]
        if point is not None:
            bound = moment(point, end)
            assert bound is not None
            if not np.any((log.times >= bound) & (parts == TRAIN)):
                raise DataError(f"{log.place}: data.{NAMES[part]}_from: {point} is {when(bound)}, and no event comes from there on before "
                                f"{when(end)}; the events are from {when(float(ordered[0]))} to {when(float(ordered[-1]))}")
            share_so_far = float(np.mean(log.times >= bound))
        elif share:
            share_so_far += share
            # events of one time stay on one side
            bound = ordered[min(len(ordered) - 1, int(np.floor((1 - share_so_far) * len(ordered))))]
        else:
            continue
        parts[(log.times >= bound) & (parts == TRAIN)] = part
        bounds.append(f"{NAMES[part]} from {when(bound)} on")
        end = float(bound)
    return parts, [f"Protocol time: the latest events are held out, {', '.join(bounds)}; the rest train" if bounds else
                   "Protocol time: no event is held out"]


def _at_random(log: Log, shares: tuple[tuple[int, float], ...], seed: int, once: bool) -> tuple[np.ndarray, list[str]]:
    drawn = np.flatnonzero(~repeating(log, later=False)) if once else np.arange(len(log))
    parts, done = np.full(len(log), LEFT_OUT, np.int8), 0
    parts[drawn] = TRAIN
    order = drawn[np.argsort(draws(len(drawn), seed, "events"), kind="stable")]
    sentences = []
    for part, share in shares:
        count = round(share * len(drawn))
        if share and count:
            parts[order[done : done + count]] = part
            done += count
            sentences.append(f"{NAMES[part]} {share:.0%}")
    return parts, [
        f"Protocol random: {' and '.join(sentences) or 'nothing'} of all events held out at random, split_seed {seed}"
        "; events after a held-out one may be trained on"
    ]


def _own(log: Log, data: InteractionData) -> tuple[np.ndarray, list[str]]:
    assert log.parts is not None
    parts = np.full(len(log), -1, np.int8)
    stored = np.char.lower(log.parts.astype(str))
    for number, (name, own) in enumerate(zip(NAMES, ("train", data.validation, data.test))):
        usual = [alias for alias in ALIASES[name] if alias not in (str(data.validation), str(data.test)) or alias == own]
        parts[np.isin(stored, [*usual, *([own.lower()] if isinstance(own, str) else [])])] = number
    unknown = np.flatnonzero(parts < 0)
    if len(unknown):
        raise DataError(
            f"{log.name(int(unknown[0]))}: {str(log.parts[unknown[0]])!r} in column {data.split_key} (data.split_key) is none of "
            "train, validation and test, nor named by data.test or data.validation"
        )
    sentence = f"Protocol: the data's own splits, {f'column {data.split_key}' if data.split_key else 'a file each'}"
    share = data.validation if isinstance(data.validation, float) else 0.1 if data.validation == "validation" else 0.0
    train = np.flatnonzero(parts == TRAIN)
    count = round(share * len(train))
    if count and not np.any(parts == VALIDATION):
        parts[train[np.argsort(draws(len(train), data.split_seed, "events"), kind="stable")[:count]]] = VALIDATION
        sentence += (f", which has no validation: {count:,} of {len(train):,} events of train are held out as validation at random, "
                     f"split_seed {data.split_seed}")
    return parts, [sentence]


def when(time: float) -> str:
    """A time in words: a date where it looks like seconds since 1970, else the number."""
    if 1e8 < time < 1e11:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(float(time), tz=timezone.utc).strftime("%Y-%m-%d %H:%M")
    return f"{time:g}"
