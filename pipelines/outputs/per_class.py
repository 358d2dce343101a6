"""A classifier's precision, recall and F1 class by class, with intervals, for ten classes or a hundred thousand."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.outputs.classification import Classified
from pipelines.task.intervals import bounds_of_columns, by_unit, resample_counts, wilson
from pipelines.task.units import EXAMPLES, Units

ROWS = 2000  # most classes in the table; of more, those with the lowest F1
_CELLS = 1_000_000  # resampled values held at once

Bounds = tuple[np.ndarray, np.ndarray]  # low and high, NaN where there is none


def per_class(answers: Classified, *, resamples: int = 1000, units: Units = EXAMPLES, limit: int = ROWS) -> list[dict[str, Any]]:
    """A row for each class: class, support (true examples), precision, recall and f1, each with its 95 % interval as `_low` and `_high`.

    Drawn by examples, intervals are Wilson's for precision and recall and the bootstrap's for f1; drawn by groups the bootstrap's for all,
    and Wilson's by groups where a share is 0 or 1. Precision is None for a class never predicted, recall for one without examples, f1 for
    both, and so are their intervals. Of more than `limit` classes those that occur with the lowest F1 are left, worst first.
    """
    count = len(answers.classes)
    support, predicted = np.bincount(answers.labels, minlength=count), np.bincount(answers.predicted, minlength=count)
    right = np.bincount(answers.labels[answers.hits], minlength=count)
    shown = np.arange(count)
    if count > limit:
        seen = np.flatnonzero(support + predicted)
        f1 = 2 * right[seen] / (support + predicted)[seen]
        shown = seen[np.lexsort((-support[seen], f1))][:limit]
    right, support, predicted = right[shown], support[shown], predicted[shown]
    if units.of is None:
        intervals = {"precision": wilson(right, predicted), "recall": wilson(right, support),
                     "f1": _f1_by_examples(right, support, predicted, len(answers.labels), resamples)}
    else:
        intervals = _by_units(answers, shown, units, resamples)
    whole = {"precision": predicted, "recall": support, "f1": support + predicted}
    rows = []
    for place, number in enumerate(shown):
        row: dict[str, Any] = {"class": answers.classes[number], "support": int(support[place])}
        for measure, of in whole.items():
            known = of[place] > 0
            row[measure] = float(right[place] * (2 if measure == "f1" else 1) / of[place]) if known else None
            for side, bound in zip(("low", "high"), intervals[measure]):
                row[f"{measure}_{side}"] = float(bound[place]) if known and np.isfinite(bound[place]) else None
        rows.append(row)
    return rows


def left_out(answers: Classified, limit: int = ROWS) -> list[str]:
    """A note where `per_class` does not hold every class; None otherwise."""
    count = len(answers.classes)
    return [f"Of {count:,} classes the table has the {limit:,} with the lowest F1 among those that occur."] if count > limit else []


def _f1_by_examples(right: np.ndarray, support: np.ndarray, predicted: np.ndarray, n: int, resamples: int) -> Bounds:
    """Of each class. Drawing n examples anew is drawing what they are to the class - hit, missed, wrongly given, none of these - from one
    multinomial distribution; classes with the same counts have the same interval."""
    counts, classes = np.unique(np.stack([right, support - right, predicted - right], 1), axis=0, return_inverse=True)
    rng = np.random.default_rng(0)

    def drawn(part: np.ndarray) -> np.ndarray:
        hit, missed, wrong = part.T
        size = (resamples, len(part))
        hits = rng.binomial(n, hit / n, size)
        misses = rng.binomial(n - hits, missed / np.maximum(n - hit, 1), size)
        wrongs = rng.binomial(n - hits - misses, wrong / np.maximum(n - hit - missed, 1), size)
        return _ratio(2 * hits, 2 * hits + misses + wrongs)

    low, high = _in_parts(drawn, counts, resamples) if n else (np.full(len(counts), np.nan),) * 2
    return low[classes.ravel()], high[classes.ravel()]


def _by_units(answers: Classified, shown: np.ndarray, units: Units, resamples: int) -> dict[str, Bounds]:
    """Precision, recall and F1 of the classes `shown` with whole groups drawn."""
    from scipy.sparse import csr_matrix

    groups, n, place = units.of, len(answers.labels), np.full(len(answers.classes), -1)
    assert groups is not None
    place[shown] = np.arange(len(shown))

    def by_class(numbers: np.ndarray, rows: np.ndarray) -> Any:
        there = place[numbers] >= 0
        table = csr_matrix((np.ones(there.sum()), (rows[there], place[numbers[there]])), shape=(n, len(shown)))
        return by_unit(table, groups).tocsc()

    every = np.arange(n)
    tables = {"right": by_class(answers.labels[answers.hits], every[answers.hits]), "true": by_class(answers.labels, every),
              "predicted": by_class(answers.predicted, every)}
    tables["both"] = tables["true"] + tables["predicted"]
    intervals: dict[str, Bounds] = {}
    for measure, (times, of) in {"precision": (1, "predicted"), "recall": (1, "true"), "f1": (2, "both")}.items():

        def drawn(columns: np.ndarray, times: int = times, of: str = of) -> np.ndarray:
            top, bottom = tables["right"][:, columns].T.tocsr(), tables[of][:, columns].T.tocsr()
            blocks = resample_counts(units.count(n), resamples=resamples, columns=len(columns))
            parts = [_ratio(times * np.asarray(top @ counts.T).T, np.asarray(bottom @ counts.T).T) for counts in blocks]
            return np.concatenate(parts)

        low, high = _in_parts(drawn, np.arange(len(shown)), resamples)
        top, bottom = (np.asarray(tables[name].sum(axis=0)).ravel() for name in ("right", of))
        share = _ratio(times * top, bottom)
        behind = np.asarray((tables[of] > 0).sum(axis=0)).ravel()  # groups
        certain = (share == 0) | (share == 1)
        bound = wilson(np.nan_to_num(share) * behind, behind)
        intervals[measure] = np.where(certain, bound[0], low), np.where(certain, bound[1], high)
    return intervals


def _in_parts(drawn: Callable[[np.ndarray], np.ndarray], items: np.ndarray, resamples: int) -> Bounds:
    """Intervals of many metrics, some at a time: `drawn` gives [resamples, some] for some of `items`."""
    size = max(1, _CELLS // resamples)
    parts = [bounds_of_columns(drawn(items[start:start + size])) for start in range(0, len(items), size)]
    if not parts:
        return np.zeros(0), np.zeros(0)
    return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """NaN where the divisor is 0."""
    return np.where(bottom > 0, top / np.maximum(bottom, 1), np.nan)
