"""`quartet check` for interactions: unreadable rows, repetitions, users and items with too few events, times, cold items, leaks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.schema import Experiment
from pipelines.data.check import Check, Finding
from pipelines.data.opened import LENIENT
from recsys.data.features import unused
from recsys.data.log import Log
from recsys.data.protocol import NAMES, TEST, TRAIN, VALIDATION, repeating, when
from recsys.data.sources import read_log
from recsys.data.splits import described_of, load, repetitions_of
from recsys.metrics.off_policy import UNLIKE
from recsys.settings import InteractionData, LoggedData

FEW = 5  # events below which users and items say little
FEW_REWARDS = 100  # below which little can be learned from a log
MANY = 0.2  # share of repetitions or ties that is worth a warning


def check_interactions(experiment: Experiment, progress: Callable[[int, int], None] | None = None) -> Check:
    """Reads all interactions, divides them as the experiment says, and looks at both.

    Raises:
        DataError: the data cannot be read at all; everything else is a finding.
    """
    data: InteractionData = experiment.data  # type: ignore[assignment]
    lenient = data.model_copy(update=LENIENT)
    log = read_log(lenient)
    if progress:
        progress(len(log), len(log))
    findings: list[Finding] = []
    if log.left_out:
        level: Any = "warning" if data.on_bad_example == "skip" else "error"
        findings.append(Finding(level, f"{log.left_out:,} rows cannot be read", log.skipped))
    if log.users is not None and log.items is not None:
        findings += _repetitions(log)
        findings += _few(log)
    findings += _times(log, data)
    if isinstance(data, LoggedData):
        findings += _logged(log)
    catalogue, notes = load(lenient, repetitions=repetitions_of(experiment),
                            described=described_of(experiment))
    findings += _cold(catalogue.items, catalogue.users, catalogue.parts, catalogue.log)
    findings += _leaks(catalogue.log, catalogue.parts, data)
    findings += [Finding("note", text) for text in (notes[0], *catalogue.said_of_new())]
    if experiment.task in ("recsys.retrieval", "recsys.sequential"):  # type: ignore[attr-defined]
        findings += [Finding("warning", text) for text in unused(catalogue.features)]
    splits = {}
    for number, name in enumerate(NAMES):
        mask = catalogue.parts == number
        if mask.any():
            splits[name] = {
                "examples": int(mask.sum()),
                "unreadable": 0,
                "identical": 0,
                "classes": {},
                "common": [],
                "measures": _measures(catalogue.log, mask),
            }
    order = {"error": 0, "warning": 1, "note": 2}
    return Check(log.place, splits, sorted(findings, key=lambda finding: order[finding.level]))


CHECKS = dict.fromkeys(("recsys.ranking", "recsys.retrieval", "recsys.sequential", "recsys.bandit"), check_interactions)


def _measures(log: Log, mask: np.ndarray) -> dict[str, dict[str, float]]:
    measures = {}
    for name, who in (("events a user", log.users), ("events an item", log.items)):
        if who is not None:
            counts = np.bincount(who[mask])
            counts = counts[counts > 0]
            measures[name] = {"min": float(counts.min()), "median": float(np.median(counts)), "max": float(counts.max())}
    if log.ratings is not None:
        values = log.ratings[mask]
        measures["rating"] = {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}
    return measures


def _repetitions(log: Log) -> list[Finding]:
    assert log.users is not None and log.items is not None and log.item_ids is not None
    pair = log.users.astype(np.int64) * len(log.item_ids) + log.items
    whole = [pair, *([log.times] if log.times is not None else []), *([log.ratings] if log.ratings is not None else [])]
    order = np.lexsort(whole[::-1])
    same = np.ones(len(order) - 1, bool)
    for values in whole:
        same &= values[order][1:] == values[order][:-1]
    later = order[1:][same]
    findings = []
    if len(later):
        share = len(later) / len(log)
        findings.append(
            Finding(
                "warning" if share >= 0.01 else "note",
                f"{len(later):,} of {len(log):,} events ({share:.0%}) are exact repetitions",
                tuple(log.name(int(number)) for number in np.sort(later)[:20]),
            )
        )
    gone = repeating(log)
    more = int(gone.sum()) - len(later)
    if more > 0:
        findings.append(
            Finding(
                "warning" if more / len(log) >= MANY else "note",
                f"{more:,} further events follow another of the same user and item, and are no new item of that user",
            )
        )
    return findings


def _logged(log: Log) -> list[Finding]:
    """Of choices that were logged: rewards, propensities, and rows that stand there twice."""
    findings: list[Finding] = []
    columns = {name: log.features[name] for name in log.features.column_names if not pa.types.is_nested(log.features[name].type)}
    arrays = {"user": log.users, "item": log.items, "time": log.times, "reward": log.ratings, "propensity": log.propensities}
    whole = pa.table({**{f" {name}": value for name, value in arrays.items() if value is not None}, **columns})
    again = len(log) - whole.group_by(whole.column_names).aggregate([]).num_rows
    if again:
        findings.append(Finding("warning" if again >= 0.01 * len(log) else "note",
                                f"{again:,} of {len(log):,} choices ({again / len(log):.0%}) repeat another in everything"))
    if log.ratings is not None and log.item_ids is not None:
        earned = int(np.sum(log.ratings != 0))
        findings.append(Finding("warning" if earned < FEW_REWARDS else "note",
                                f"{earned:,} of {len(log):,} choices ({earned / len(log):.2%}) earned something, {log.ratings.mean():.4g} "
                                f"on average; there are {len(log.item_ids):,} actions"))
    if log.propensities is not None and log.item_ids is not None:
        inverse = 1 / log.propensities
        mean, error = float(inverse.mean()), float(inverse.std() / np.sqrt(len(inverse)))
        least = float(log.propensities.min())
        findings.append(Finding("note", f"propensities from {least:.3g} to {float(log.propensities.max()):.3g}"))
        if abs(mean - len(log.item_ids)) > max(UNLIKE * error, 0.05 * len(log.item_ids)):
            findings.append(Finding("warning", f"1 / propensity averages {mean:.3g} where {len(log.item_ids):,}, the number of actions, is "
                                    "expected: these are not the probabilities of the choices, or not every action could be chosen"))
    return findings


def _few(log: Log) -> list[Finding]:
    findings = []
    for of, who, ids in (("user", log.users, log.user_ids), ("item", log.items, log.item_ids)):
        assert who is not None and ids is not None
        counts = np.bincount(who, minlength=len(ids))
        for most, text in ((1, "a single event"), (FEW - 1, f"fewer than {FEW} events")):
            few = (counts > 0) & (counts <= most)
            if few.any():
                share = few.sum() / (counts > 0).sum()
                findings.append(
                    Finding(
                        "warning" if share >= 0.5 else "note",
                        f"{int(few.sum()):,} of {int((counts > 0).sum()):,} {of}s ({share:.0%}) "
                        f"have {text}; data.min_{of}_events leaves such out",
                        tuple(str(ids.values[number]) for number in np.flatnonzero(few)[:20]),
                    )
                )
    return findings


def _times(log: Log, data: InteractionData) -> list[Finding]:
    if log.times is None:
        return [Finding("note", "there are no times (data.time_key): the order of the rows counts as the order of the events")]
    times = log.times
    if times.min() == times.max():
        return [
            Finding("error" if data.protocol == "time" else "warning", f"all times are equal ({when(float(times[0]))}): they order nothing")
        ]
    findings = [Finding("note", f"times from {when(float(times.min()))} to {when(float(times.max()))}")]
    back = int(np.sum(np.diff(times) < 0))
    if back:
        findings.append(Finding("note", f"times are out of order in the file at {back:,} of {len(times):,} rows; events are put in order"))
    if log.users is not None:
        order = log.in_time
        tied = (np.diff(times[order]) == 0) & (np.diff(log.users[order]) == 0)
        if tied.any():
            share = tied.mean()
            findings.append(
                Finding(
                    "warning" if share >= MANY else "note",
                    f"{int(tied.sum()):,} events ({share:.0%}) have the time of another of "
                    "the same user: the order of the rows decides between them",
                )
            )
    return findings


def _cold(items: np.ndarray, users: np.ndarray, parts: np.ndarray, log: Log) -> list[Finding]:
    findings = []
    for name, part in (("validation", VALIDATION), ("test", TEST)):
        mask = parts == part
        for of, numbers, there in (("items", items, log.items), ("users", users, log.users)):
            cold = int(np.sum(numbers[mask] == 0)) if there is not None else 0
            if cold:
                share = cold / mask.sum()
                findings.append(
                    Finding(
                        "warning" if share >= 0.1 else "note",
                        f"{cold:,} of {int(mask.sum()):,} {name} events ({share:.0%}) are of {of} that train does not have",
                    )
                )
    return findings


def _leaks(log: Log, parts: np.ndarray, data: InteractionData) -> list[Finding]:
    test = parts == TEST
    if log.times is None or not test.any():
        return []
    newest = float(log.times[parts == TRAIN].max())
    if log.users is not None and newest <= np.bincount(log.users).max() + 1:
        return []  # numbers of each user's events, which compare nothing between users
    earlier = int(np.sum(log.times[test] < newest))
    if not earlier:
        return [Finding("note", "no test event is older than the newest of train")]
    if data.protocol == "time" or data.split_key:
        return [
            Finding(
                "warning",
                f"{earlier:,} of {int(test.sum()):,} test events are older than the newest of train ({when(newest)}): "
                "train knows of times that test is in",
            )
        ]
    return [
        Finding(
            "note",
            f"{earlier:,} of {int(test.sum()):,} test events are older than the newest of train: with protocol "
            f"{data.protocol} a model knows what came later; protocol: time does not",
        )
    ]
