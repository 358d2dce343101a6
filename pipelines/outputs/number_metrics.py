"""Results of a regression: metrics with intervals, coverage, tables and figures, from answers and truth alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pipelines.base.figures import BLUE, GREY, INK, new_figure, style
from pipelines.config.schema import Evaluate
from pipelines.outputs.classifier import MISTAKES_LISTED
from pipelines.task import intervals
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import Units

QUARTERS = 4  # of the predictions, by which coverage is told
DRAWN = 5_000  # points of a figure
PANELS = 4  # columns that figures show
RANKED = 200  # resamples of a rank correlation, which sorts each


@dataclass(frozen=True)
class Answered:
    """Answers beside the truth, each [n, columns] float64 in the data's units; NaN in `truth` where a number is missing.

    Attributes:
        low, high: ends of the intervals; None without.
    """

    values: np.ndarray
    truth: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None

    def column(self, place: int, rows: np.ndarray) -> "Answered":
        """One of them, [rows] each."""
        return Answered(*(None if one is None else one[rows, place] for one in (self.values, self.truth, self.low, self.high)))  # type: ignore[arg-type]

    @property
    def inside(self) -> np.ndarray:
        """Whether the interval holds the truth, as float32 has both."""
        assert self.low is not None and self.high is not None
        slack = 1e-6 * np.abs(self.truth)
        return (self.truth >= self.low - slack) & (self.truth <= self.high + slack)


def distance(values: np.ndarray, truth: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The mean absolute error of each example over its numbers that are there, in `units` [1, columns]: [n] float64, NaN where none is."""
    there = np.isfinite(truth)
    error = np.where(there, np.abs(values - np.where(there, truth, 0.0)), 0.0) / units
    return np.where(there.any(1), error.sum(1) / np.maximum(there.sum(1), 1), np.nan)


def judgement(answered: Answered, targets: Sequence[dict[str, Any]], settings: Evaluate, units: Units, name: Callable[[int], str],
              ) -> Judgement:
    """Metrics, of several columns each one's in a table; coverage by quarter of the prediction; the largest errors, and figures.

    Args:
        targets: the fact.
        units: what intervals resample.
        name: the name of an example, by its number.
    """
    result = Judgement(units=units, notes=units.notes())
    rows, coverage = [], list[dict[str, Any]]()
    for place, one in enumerate(targets):
        known = np.flatnonzero(np.isfinite(answered.truth[:, place]))
        if not len(known):
            continue
        own = answered.column(place, known)
        metrics = of_column(own, settings.bootstrap, units.pick(known))
        title = {} if len(targets) == 1 else {"target": one["name"]}
        rows.append({**title, "unit": one["unit"] or "", "n": len(known), **_flat(metrics)})
        coverage += [{**title, **row} for row in by_quarter(own)]
        plain = own.truth - one["mean"]
        result.notes.append(f"{one['name']}: train's mean, {written(one['mean'])}, as the answer for every example has MAE "
                            f"{written(np.abs(plain).mean())} and RMSE {written(np.sqrt(np.square(plain).mean()))}.")
        if len(targets) == 1:
            result.metrics = {name: replace(metric, measured_in=one["unit"] or "") if name in IN_UNITS else metric
                              for name, metric in metrics.items()}
    spread = np.array([[1.0 if len(targets) == 1 else one["std"] for one in targets]])
    errors = distance(answered.values, answered.truth, spread)
    if len(targets) > 1:
        result.metrics = _of_all(errors, rows, settings.bootstrap, units)
        result.tables["per_target"] = rows
        result.notes.append("MAE is the mean over the targets, each in deviations of train; per_target has each in its own unit.")
    if coverage:
        result.tables["coverage"] = coverage
    most = min(settings.worst, MISTAKES_LISTED, int(np.isfinite(errors).sum()))
    order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable")[:most]
    result.tables["worst_mistakes"] = [
        {"example": name(int(number)), "true": _one_or_all(answered.truth[number]), "predicted": _one_or_all(answered.values[number]),
         "error": float(errors[number]), "number": int(number)} for number in order]
    result.predictions = _predictions(answered, targets, name)
    _draw(result, answered, targets)
    return result


IN_UNITS = ("mae", "rmse", "interval_width")  # of the numbers themselves
SET_SCORES: dict[str, Literal["max", "min"]] = {"r2": "max", "spearman": "max"}


def set_scores(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """SET_SCORES, the means of the columns [n, columns]; 0 where a column does not vary."""
    found = []
    for column, true in zip(values.T, truth.T):
        known = np.isfinite(true)
        own, true = column[known], true[known]
        if not len(own):
            found.append([np.nan] * len(SET_SCORES))
            continue
        found.append([_r2(_sums(own, true).sum(0)[None])[0], rank_correlation(own, true, np.ones((1, len(own))))[0]])
    return dict(zip(SET_SCORES, np.nan_to_num(found).mean(0).tolist()))


def of_column(own: Answered, resamples: int, units: Units) -> dict[str, Metric]:
    """mae, rmse, r2, pearson, spearman and, with intervals, coverage and interval_width; those that are not defined are left out."""
    table = _sums(own.values, own.truth)
    statistics: dict[str, intervals.Statistic] = {
        "mae": lambda sums: sums[:, 1] / sums[:, 0], "rmse": lambda sums: np.sqrt(sums[:, 2] / sums[:, 0]), "r2": _r2,
        "pearson": _pearson}
    total = table.sum(0)[None]
    drawn = intervals.resampled(table, statistics, resamples=resamples, units=units)
    metrics = {name: intervals.measured(float(statistic(total)[0]), drawn[name], len(table), units)
               for name, statistic in statistics.items()}
    metrics["spearman"] = intervals.resampled_by_counts(lambda counts: rank_correlation(own.values, own.truth, counts), len(table),
                                                        resamples=min(resamples, RANKED), width=4, units=units)
    if own.low is not None and own.high is not None:
        metrics["coverage"] = intervals.share(own.inside, resamples=resamples, units=units)
        metrics["interval_width"] = intervals.mean(own.high - own.low, resamples=resamples, units=units)
    return {name: metric for name, metric in metrics.items() if np.isfinite(metric.value)}


def _sums(values: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """[n, 8]: 1, absolute and squared error, distance of the truth to its mean, and its square; of the values, too, and their product."""
    error, centred, own = values - truth, truth - truth.mean(), values - values.mean()
    return np.stack([np.ones_like(error), np.abs(error), error**2, centred, centred**2, own, own**2, own * centred], 1)


def _r2(sums: np.ndarray) -> np.ndarray:
    """1 - squared errors / squared distances to the mean (of what was drawn)."""
    whole = sums[:, 4] - sums[:, 3] ** 2 / sums[:, 0]
    return np.where(whole > 0, 1.0 - sums[:, 2] / np.where(whole > 0, whole, 1.0), np.nan)


def _pearson(sums: np.ndarray) -> np.ndarray:
    """The correlation of values and truth; NaN where either does not vary."""
    count = sums[:, 0]
    truth, own, both = (sums[:, place] - sums[:, one] * sums[:, other] / count for place, one, other in ((4, 3, 3), (6, 5, 5), (7, 3, 5)))
    varied = (truth > 1e-12 * count) & (own > 1e-12 * count)
    return np.where(varied, both / np.sqrt(np.where(varied, truth * own, 1.0)), np.nan)


def rank_correlation(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Spearman's correlation of [n] and [n], each pair as often as `counts` [m, n] has it: [m] float64, NaN where either does not vary.

    Equal values have the mean of their ranks, as scipy.stats.spearmanr has it.
    """
    ranks = []
    for values in (first, second):
        _, which = np.unique(values, return_inverse=True)
        sizes = np.zeros((len(counts), which.max() + 1))
        for row, own in zip(sizes, counts):
            row += np.bincount(which, own, minlength=len(row))
        ranks.append((np.cumsum(sizes, 1) - 0.5 * sizes)[:, which])
    total = counts.sum(1, keepdims=True)
    x, y = (rank - (rank * counts).sum(1, keepdims=True) / total for rank in ranks)
    both, own_x, own_y = ((one * counts).sum(1) for one in (x * y, x * x, y * y))
    varied = (own_x > 1e-9 * total[:, 0] ** 2) & (own_y > 1e-9 * total[:, 0] ** 2)
    return np.where(varied, both / np.sqrt(np.where(varied, own_x * own_y, 1.0)), np.nan)


def by_quarter(own: Answered) -> list[dict[str, Any]]:
    """Coverage, width and error of the intervals for the smallest quarter of the predictions to the largest; nothing without intervals."""
    if own.low is None or own.high is None:
        return []
    rows, inside, width, error = [], own.inside, own.high - own.low, np.abs(own.values - own.truth)
    for number, part in enumerate(np.array_split(np.argsort(own.values, kind="stable"), QUARTERS), 1):
        if len(part):
            low, high = intervals.wilson(inside[part].sum(), len(part))
            rows.append({"quarter": number, "from": float(own.values[part[0]]), "to": float(own.values[part[-1]]), "n": len(part),
                         "coverage": float(inside[part].mean()), "coverage_low": float(low), "coverage_high": float(high),
                         "interval_width": float(width[part].mean()), "mae": float(error[part].mean())})
    return rows


def _of_all(errors: np.ndarray, rows: list[dict[str, Any]], resamples: int, units: Units) -> dict[str, Metric]:
    """Of several columns: the mean error in deviations, and the means of their other metrics that have no unit."""
    counts = np.isfinite(errors)
    metrics = {"mae": intervals.mean(errors[counts], resamples=resamples, units=units.pick(counts))}
    for name in ("r2", "pearson", "spearman", "coverage"):
        values = [row[name] for row in rows if name in row]
        if len(values) == len(rows):
            metrics[name] = Metric(float(np.mean(values)), n=int(counts.sum()))
    return metrics


def _flat(metrics: dict[str, Metric]) -> dict[str, Any]:
    return {key: value for name, metric in metrics.items()
            for key, value in ((name, metric.value), (f"{name}_low", metric.low), (f"{name}_high", metric.high))}


def _one_or_all(row: np.ndarray) -> Any:
    values = [None if np.isnan(value) else float(value) for value in row]
    return values[0] if len(values) == 1 else ", ".join("-" if value is None else written(value) for value in values)


def written(value: Any) -> str:
    """A number with four digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def _predictions(answered: Answered, targets: Sequence[dict[str, Any]], name: Callable[[int], str]) -> dict[str, Any]:
    """A row for each example: its name, and of each column truth, answer and interval."""
    table: dict[str, Any] = {"example": [name(number) for number in range(len(answered.truth))]}
    for place, one in enumerate(targets):
        prefix = "" if len(targets) == 1 else f"{one['name']}_"
        columns = {"true": answered.truth, "predicted": answered.values, "low": answered.low, "high": answered.high}
        table |= {f"{prefix}{title}": values[:, place] for title, values in columns.items() if values is not None}
    return table


def _draw(result: Judgement, answered: Answered, targets: Sequence[dict[str, Any]]) -> None:
    """Adds predicted against true, and residuals against predicted."""
    some = np.arange(len(answered.truth))
    some = some if len(some) <= DRAWN else np.sort(np.random.default_rng(0).choice(len(some), DRAWN, replace=False))
    shown = list(targets)[:PANELS]
    for title, heading in (("predicted_and_true", "Predicted and true"), ("residuals", "Residuals: true less predicted")):
        with style():
            figure = new_figure(4.6 * len(shown), 4.2)
            for place, (axis, one) in enumerate(zip(np.ravel(figure.subplots(1, len(shown), squeeze=False)), shown)):
                values, truth = answered.values[some, place], answered.truth[some, place]
                known = np.isfinite(truth)
                values, truth = values[known], truth[known]
                unit = f", {one['unit']}" if one["unit"] else ""
                log = one["scale"] == "log" and len(truth) and min(values.min(), truth.min()) > 0
                if title == "residuals":
                    axis.scatter(values, truth - values, s=9, alpha=0.5, color=BLUE, linewidths=0)
                    axis.axhline(0.0, color=INK, linewidth=1)
                    axis.set_ylabel(f"residual{unit}")
                else:
                    if answered.low is not None and answered.high is not None:
                        low, high = answered.low[some, place][known], answered.high[some, place][known]
                        axis.vlines(values, low, high, color=GREY, alpha=0.15, linewidth=1)
                    axis.scatter(values, truth, s=9, alpha=0.5, color=BLUE, linewidths=0)
                    ends = [min(values.min(), truth.min()), max(values.max(), truth.max())] if len(truth) else [0.0, 1.0]
                    axis.plot(ends, ends, color=INK, linewidth=1)
                    axis.set_ylabel(f"true{unit}")
                    if log:
                        axis.set_yscale("log")
                if log:
                    axis.set_xscale("log")
                axis.set_xlabel(f"predicted{unit}")
                axis.set_title(heading if len(shown) == 1 else f"{heading}: {one['name']}")
        result.figures[title] = figure
