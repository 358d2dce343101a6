"""A cheap model beside every score: fitted on train in seconds, and judged on the same examples.

The report says in its headline by how much the model is better, or that it is not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from pipelines.base import formatting
from pipelines.data.source import Source
from pipelines.fitting import kernel
from pipelines.outputs import label_metrics
from pipelines.task import intervals
from pipelines.task.input import Cheap
from pipelines.task.output import Features
from pipelines.task.results import Baseline, Judgement, Metric
from pipelines.task.units import EXAMPLES
from pipelines.training.transform import Cost

MOST = 20_000  # examples of train that a baseline is fitted on
ALIKE = 0.01  # of the baseline's score: by a smaller difference, of which chance may be all, nobody chooses


def kernel_baseline(name: str, train: Source, features: Features, describe: Callable[[Any], Any], classes: int, *,
                    blocks: Sequence[int] = (), several: bool = False) -> Baseline:
    """A kernel machine (pipelines.fitting.kernel, with these arguments) on a part of train.

    Args:
        several: labels of an example; they are given from thresholds that are chosen on folds of train as a model's are on validation.
    """
    fitted = kernel.fit_source(train, features, describe, classes, blocks=blocks, most=MOST)
    thresholds = label_metrics.label_thresholds(expit(fitted.held_out), fitted.truth) if several else np.zeros(classes)

    def score(source: Source) -> np.ndarray:
        values, targets = features(source, describe)
        logits = fitted.logits(values)
        if several:
            return label_metrics.example_f1(expit(logits) >= thresholds, targets["label"])
        return (logits.argmax(1) == targets["label"]).astype(np.float64)

    return Baseline(name, "example_f1" if several else "accuracy", score)


def number_baseline(train: Source, features: Features, cheap: Cheap, output: Any) -> Baseline:
    """Kernel ridge regression on a part of train.

    Args:
        output: a `numbers.Numbers`.
    """
    fitted = kernel.fit_source(train, features, cheap.describe, None, blocks=cheap.blocks, most=MOST, truth=output.fitted_to)

    def score(source: Source) -> np.ndarray:
        values, targets = features(source, cheap.describe)
        errors: np.ndarray = output.errors(fitted.logits(values), targets)
        return errors

    return Baseline(cheap.name.replace("machine", "ridge"), output.watch[0], score, output.watch[1])


def put_beside(judgement: Judgement, baseline: Baseline, own: np.ndarray, other: np.ndarray, resamples: int, *,
               cost: Cost | None = None) -> None:
    """Adds the table `baselines`, and `compare`s.

    Args:
        judgement: of the examples that count, drawn by its units.
        baseline: of scores.
        own, other: [n], the metric of each example, of the model and of the baseline; `own` is NaN where one does not count.
        cost: what the model was trained for besides its score, and the baseline was not.
    """
    counts, units = ~np.isnan(own), judgement.units or EXAMPLES
    own, other = own[counts], other[counts]
    if not len(own):
        return
    better = own - other if baseline.better == "max" else other - own
    here, there, gain = (intervals.mean(values, resamples=resamples, units=units) for values in (own, other, better))
    judgement.tables["baselines"] = [
        {"model": name, **_bounded(baseline.metric, metric), **_bounded(f"gain_in_{baseline.metric}", over)}
        for name, metric, over in (("this model", here, None), (baseline.name, there, gain))]
    compare(judgement, baseline.metric, baseline.name, here, there, gain, cost=cost)


def put_judged_beside(judgement: Judgement, name: str, other: Judgement, watch: tuple[str, str], *, cost: Cost | None = None) -> None:
    """As `put_beside`, of a baseline whose answers were judged as the model's were; both drew the same resamples.

    Args:
        watch: of the task's output: the metric by which they are compared, and "max" or "min".
    """
    metric, sign = watch[0], 1.0 if watch[1] == "max" else -1.0
    shared = [key for key in judgement.metrics if key in other.metrics]
    if metric not in shared:
        return
    here, there = judgement.metrics[metric], other.metrics[metric]
    paired = here.drawn is not None and there.drawn is not None and len(here.drawn) == len(there.drawn)
    drawn = sign * (here.drawn - there.drawn) if paired else np.array([])  # type: ignore[operator]
    gain = intervals.measured(sign * (here.value - there.value), drawn, here.n or 0, judgement.units or EXAMPLES)
    judgement.tables["baselines"] = [
        {"model": who, **{column: value for key in shared for column, value in _bounded(key, of.metrics[key]).items()},
         **_bounded(f"gain_in_{metric}", over)} for who, of, over in (("this model", judgement, None), (name, other, gain))]
    compare(judgement, metric, name, here, there, gain, cost=cost)


def compare(judgement: Judgement, metric: str, baseline: str, own: Metric, other: Metric, gain: Metric, *,
            cost: Cost | None = None) -> None:
    """Says in a judgement how the model compares with a baseline, whose name that is: `compared`, and where it is worse, `beaten`.

    Args:
        gain: of the model over the baseline, positive where it is better, whatever the metric's direction, with its paired interval.
        cost: as `put_beside` takes it.
    """
    ours, theirs = formatting.number(own.value, metric), formatting.number(other.value, metric)
    figures = f"({baseline}, fitted in seconds): {formatting.title(metric)} {ours} against {theirs}, {_difference(gain, metric)}"
    if gain.value > 0 and (gain.low is None or gain.low > 0):
        judgement.compared = f"Better than the cheap baseline {figures}."
    elif cost:
        judgement.compared = f"What {cost.of} costs, beside the cheap baseline without it {figures}."
        judgement.beaten = f"{ours} against {theirs} is what {cost.of} costs here. {cost.remedy}"
    elif gain.high is not None and gain.high < 0:
        judgement.compared = f"Worse than the cheap baseline {figures}."
        judgement.beaten = (f"The model is worse than its cheap baseline, {ours} against {theirs}: the training was too short, or "
                            "something is wrong with it or its settings (docs/troubleshooting.md).")
    elif gain.value > ALIKE * abs(other.value):
        judgement.compared = f"Better than the cheap baseline, but {_number(gain)} are too few to show that it is no chance {figures}."
    else:
        judgement.compared = f"No better than the cheap baseline {figures}."


def _difference(gain: Metric, metric: str) -> str:
    """`+10.0 points [4.1, 16.0]`."""
    share = formatting.is_percent(metric)
    value, *bounds = (None if one is None else f"{100 * one:+.1f}" if share else f"{one:+.4g}" for one in (gain.value, gain.low, gain.high))
    return f"{value}{' points' if share else ''}" + (f" [{bounds[0]}, {bounds[1]}]" if None not in bounds else "")


def _number(gain: Metric) -> str:
    """What the interval was drawn by."""
    count = gain.units or gain.n
    return formatting.counted(count, gain.unit) if count else "these examples"


def _bounded(name: str, metric: "Metric | None") -> dict[str, Any]:
    if metric is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
