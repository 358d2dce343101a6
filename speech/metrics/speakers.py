"""Results by speaker: a table, the units of intervals, and a note on speakers that are also in train."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.data.source import Source
from pipelines.task.intervals import wilson
from pipelines.task.units import Units, grouped, units_of


def accuracy_by_speaker(hits: np.ndarray, speakers: Sequence[str] | None) -> list[dict[str, Any]]:
    """A row for each speaker, the worst first: recordings and accuracy with Wilson's 95 % interval. Empty where speakers are not known."""
    if speakers is None:
        return []
    names, numbers = np.unique(np.array(speakers), return_inverse=True)
    count, right = np.bincount(numbers), np.bincount(numbers, np.asarray(hits, np.float64))
    low, high = wilson(right, count)
    order = np.lexsort((names, right / count))
    return [{"speaker": str(names[k]), "recordings": int(count[k]), "accuracy": float(right[k] / count[k]), "accuracy_low": float(low[k]),
             "accuracy_high": float(high[k])} for k in order]


def units(source: Source, speakers: Sequence[str] | None, known: Sequence[str], group_by: str | None) -> Units:
    """The units that intervals resample: groups (data.group_by), or else speakers, where none judged is `known` from train."""
    if source.groups is None and speakers is not None and known and not set(speakers) & set(known):
        return grouped(np.array(speakers), "speaker")
    return units_of(source, group_by)


def speakers_in_train(judged: Sequence[str] | None, known: Sequence[str]) -> str | None:
    """A sentence on whether the speakers judged are among those of train."""
    if judged is None or not known:
        return None
    there, before = set(judged), set(judged) & set(known)
    if not before:
        return f"None of the {len(there)} speakers judged is in train." if len(there) > 1 else "The speaker judged is not in train."
    if before == there:
        return "All speakers judged are in train, too: expect lower scores for new voices."
    return f"{len(before)} of the {len(there)} speakers judged are in train, too."
