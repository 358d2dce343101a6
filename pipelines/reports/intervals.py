"""How sure a number is: 95 % intervals for metrics measured on a finite number of examples.

The bootstrap draws as many examples as there are, with replacement, many times, and asks how far the metric moves
(Efron 1979, "Bootstrap Methods: Another Look at the Jackknife"; the percentile interval is Efron & Tibshirani 1993,
"An Introduction to the Bootstrap", chapter 13). What is drawn is only how often each example occurs, a multinomial
count, so every metric that is a function of sums over examples (means, ratios, F1, calibration error) is
resampled by one product of counts and values. The same seed draws the same examples: intervals of differences
between two models on one test set are made by handing both models' values over together.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from pipelines.task import Metric

Kind = Literal["percentile", "basic"]

LEVEL = 0.95
_CELLS = 4_000_000  # counts held at once: 32 MB


def resample_counts(n: int, *, resamples: int, seed: int = 0, columns: int = 1) -> Iterator[np.ndarray]:
    """How often each of `n` units occurs in each resample: blocks [some, n] float64, each row summing to n.

    Args:
        columns: widest array that will be made per resample beside the counts, to keep blocks small.
    """
    rng = np.random.default_rng(seed)
    block = int(np.clip(_CELLS // max(n, columns, 1), 1, resamples))
    kind = np.int32 if n <= np.iinfo(np.int32).max else np.int64
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(0, n, size=(rows, n), dtype=kind)
        counts = np.empty((rows, n))
        for row in range(rows):
            counts[row] = np.bincount(drawn[row], minlength=n)
        yield counts


def resampled_sums(values: Any, *, resamples: int = 1000, seed: int = 0, groups: np.ndarray | None = None) -> np.ndarray:
    """Sums of per-example values over each bootstrap resample.

    About 8 ns an example and resample: 10,000 examples and 1,000 resamples take 0.1 s.

    Args:
        values: [examples] or [examples, k], any number type; a scipy sparse matrix [examples, k] where most are 0.
        groups: [examples], what is drawn as a whole (a user, a speaker) where examples of one group are alike:
            the bootstrap over clusters (Davison & Hinkley 1997, section 3.8). Default: every example by itself.

    Returns:
        [resamples, k] float64 (k = 1 for a vector).
    """
    sparse = hasattr(values, "tocsr")
    table: Any = values.tocsr().astype(np.float64) if sparse else np.asarray(values, np.float64)
    if not sparse and table.ndim == 1:
        table = table[:, None]
    if groups is not None:
        table = _by_group(table, np.asarray(groups))
    n, k = table.shape
    if n == 0:
        raise ValueError("no examples to draw from")
    transposed = table.T.tocsr() if sparse else None
    parts = []
    for counts in resample_counts(n, resamples=resamples, seed=seed, columns=k):
        parts.append(np.asarray(transposed @ counts.T).T if sparse else counts @ table)
    return np.concatenate(parts)


def interval(values: Any, statistic: Callable[[np.ndarray], np.ndarray], *, resamples: int = 1000, seed: int = 0,
             groups: np.ndarray | None = None, level: float = LEVEL, kind: Kind = "percentile") -> Metric:
    """A metric that is a function of sums over examples, with its bootstrap interval.

    Args:
        values: [examples] or [examples, k], dense or sparse, as `resampled_sums` takes them.
        statistic: sums [m, k] -> metric [m]; called with m = 1 for the value and m = resamples for the interval.
        kind: see `bounds`.

    Returns:
        value, low, high, and the number of examples.

    Example:
        Word error rate, drawn by speaker: `interval(np.stack([errors, words], 1), lambda s: s[:, 0] / s[:, 1],
        groups=speakers)`.
    """
    n = values.shape[0] if hasattr(values, "shape") else len(values)
    if n == 0:
        return Metric(float("nan"), None, None, 0)
    table = values if hasattr(values, "tocsr") else np.asarray(values, np.float64).reshape(n, -1)
    value = float(statistic(np.asarray(table.sum(axis=0), np.float64).reshape(1, -1))[0])
    drawn = statistic(resampled_sums(table, resamples=resamples, seed=seed, groups=groups))
    return Metric(value, *bounds(drawn, value, level=level, kind=kind), n)


def mean(values: np.ndarray, *, resamples: int = 1000, seed: int = 0, groups: np.ndarray | None = None, level: float = LEVEL) -> Metric:
    """The mean of per-example values [examples] with its bootstrap interval."""
    values = np.asarray(values, np.float64)
    table = np.stack([values, np.ones_like(values)], axis=1)
    return interval(table, lambda sums: sums[:, 0] / sums[:, 1], resamples=resamples, seed=seed, groups=groups, level=level)


def share(hits: np.ndarray, *, resamples: int = 1000, seed: int = 0, groups: np.ndarray | None = None, level: float = LEVEL) -> Metric:
    """The share of True in [examples] with its bootstrap interval.

    Where all are alike the bootstrap has nothing to draw from and would claim certainty; the interval is then Wilson's.
    """
    hits = np.asarray(hits, bool)
    total = int(hits.sum())
    if len(hits) and total in (0, len(hits)):
        units = len(hits) if groups is None else len(np.unique(groups))
        low, high = wilson(units if total else 0, units, level=level)
        return Metric(float(total > 0), float(low), float(high), len(hits))
    return mean(hits, resamples=resamples, seed=seed, groups=groups, level=level)


def interval_by_index(statistic: Callable[[np.ndarray], float], n: int, *, resamples: int = 1000, seed: int = 0,
                      level: float = LEVEL) -> Metric:
    """Any metric of a set of examples, with its percentile bootstrap interval: one call per resample, so slower.

    Args:
        statistic: example numbers [n] int64 (with repetitions) -> metric. For ranks, AUC, medians.
    """
    if n == 0:
        return Metric(float("nan"), None, None, 0)
    rng = np.random.default_rng(seed)
    value = float(statistic(np.arange(n)))
    drawn = np.array([statistic(rng.integers(0, n, n)) for _ in range(resamples)], np.float64)
    return Metric(value, *bounds(drawn, value, level=level), n)


def interval_of_confusion(confusion: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *, resamples: int = 1000, seed: int = 0,
                          level: float = LEVEL) -> Metric:
    """A metric of a confusion matrix alone, with its percentile bootstrap interval; no examples needed.

    Drawing n examples anew is drawing the cells' counts from one multinomial distribution.

    Args:
        confusion: [classes, classes] counts, rows true, columns predicted.
        statistic: matrices [m, classes, classes] float64 -> metric [m].
    """
    confusion = np.asarray(confusion)
    n = int(confusion.sum())
    if n == 0:
        return Metric(float("nan"), None, None, 0)
    rng = np.random.default_rng(seed)
    filled = np.flatnonzero(confusion)
    shares = confusion.reshape(-1)[filled] / n
    block = int(np.clip(_CELLS // confusion.size, 1, resamples))
    drawn = []
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        matrices = np.zeros((rows, confusion.size))
        matrices[:, filled] = rng.multinomial(n, shares, size=rows)
        drawn.append(statistic(matrices.reshape(rows, *confusion.shape)))
    value = float(statistic(confusion[None].astype(np.float64))[0])
    return Metric(value, *bounds(np.concatenate(drawn), value, level=level), n)


def bounds(drawn: np.ndarray, value: float, *, level: float = LEVEL, kind: Kind = "percentile") -> tuple[float | None, float | None]:
    """The interval that bootstrap values tell; values where the metric is undefined (NaN) are left out.

    Args:
        drawn: [resamples], the metric on each resample.
        value: the metric itself.
        kind: "percentile": the middle 95 % of `drawn`. "basic": those reflected at `value` (Davison & Hinkley 1997, section
            5.2), for metrics that noise only pushes up, such as calibration error or a distance: each resample adds noise
            once more, so the percentiles lie above the truth and the reflection below `value`. Held to contain `value`
            and, where the metric is not negative, to start at 0.

    Returns:
        low and high, or None for both if the resamples show no spread (one example, or all alike) and so say nothing.
    """
    drawn = np.asarray(drawn, np.float64)
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn) or not np.isfinite(value) or drawn.min() == drawn.max():
        return None, None
    tail = (1 - level) / 2
    low, high = (float(bound) for bound in np.quantile(drawn, [tail, 1 - tail]))
    if kind == "basic":
        floor = 0.0 if drawn.min() >= 0 and value >= 0 else -np.inf
        low, high = max(min(2 * value - high, value), floor), max(2 * value - low, value)
    return low, high


def wilson(successes: Any, n: Any, *, level: float = LEVEL) -> tuple[Any, Any]:
    """Wilson's score interval of a share (Wilson 1927; Brown, Cai & DasGupta 2001 recommend it for small n).

    Args:
        successes, n: numbers or arrays of one shape; where n is 0 the interval is [0, 1].

    Returns:
        low and high, float or arrays.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2))
    n = np.asarray(n, np.float64)
    safe = np.maximum(n, 1)
    p = np.asarray(successes, np.float64) / safe
    centre = (p + z * z / (2 * safe)) / (1 + z * z / safe)
    half = z * np.sqrt(p * (1 - p) / safe + z * z / (4 * safe * safe)) / (1 + z * z / safe)
    low = np.where(p > 0, centre - half, 0.0)
    high = np.where((p < 1) & (n > 0), centre + half, 1.0)
    return low[()], high[()]


def spread(values: Any) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1) over a few runs, such as seeds; the deviation of one run is NaN."""
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), 0.0 if (values == values[0]).all() else float(values.std(ddof=1))


def _by_group(table: Any, groups: np.ndarray) -> Any:
    """Rows summed by group: [examples, k] -> [groups, k]."""
    _, number = np.unique(groups, return_inverse=True)
    from scipy.sparse import csr_matrix

    membership = csr_matrix((np.ones(len(number)), (number, np.arange(len(number)))))
    return membership @ table
