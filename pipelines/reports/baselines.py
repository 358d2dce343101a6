"""A cheap model beside every score: fitted on train in seconds, and judged on the same examples.

A model that does not beat it by more than chance is worth nothing, and the report says so.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipelines.base import formatting
from pipelines.data.source import Source
from pipelines.fitting import kernel
from pipelines.task import intervals
from pipelines.task.judging import Features
from pipelines.task.results import Baseline, Judgement, Metric
from pipelines.task.units import EXAMPLES

MOST = 20_000  # examples of train that a baseline is fitted on


def kernel_baseline(name: str, train: Source, features: Features, describe: Callable[[Any], Any], classes: int, *,
                    blocks: Sequence[int] = ()) -> Baseline:
    """A kernel machine (pipelines.fitting.kernel, with these arguments) on a part of train."""
    fitted = kernel.fit_source(train, features, describe, classes, blocks=blocks, most=MOST)

    def score(source: Source) -> np.ndarray:
        values, targets = features(source, describe)
        return (fitted.logits(values).argmax(1) == targets["label"]).astype(np.float64)

    return Baseline(name, "accuracy", score)


def put_beside(judgement: Judgement, baseline: Baseline, own: np.ndarray, other: np.ndarray, resamples: int, *,
               private: bool = False) -> str | None:
    """Adds the table `baselines`; returns what a reader must know of a model that does not beat the baseline by more than chance.

    Args:
        judgement: of the examples that count, drawn by its units.
        own, other: [n], the metric of each example, of the model and of the baseline; `own` is NaN where one does not count.
        private: the model was trained with differential privacy, which the baseline was not.
    """
    counts, units = ~np.isnan(own), judgement.units or EXAMPLES
    own, other = own[counts], other[counts]
    if not len(own):
        return None
    here, there, gain = (intervals.mean(values, resamples=resamples, units=units) for values in (own, other, own - other))
    judgement.tables["baselines"] = [
        {"model": name, **_bounded(baseline.metric, metric), **_bounded(f"gain_in_{baseline.metric}", over)}
        for name, metric, over in (("this model", here, None), (baseline.name, there, gain))]
    return verdict(baseline.metric, baseline.name, here, there, gain, private=private)


def verdict(metric: str, baseline: str, own: Metric, other: Metric, gain: Metric, *, private: bool = False) -> str | None:
    """What a reader must know of a model that does not beat the baseline, whose name that is; None where it does.

    Args:
        gain: of the model over the baseline, positive where it is better, whatever the metric's direction.
        private: as `put_beside` takes it.
    """
    if gain.value > 0 and (gain.low is None or gain.low > 0):
        return None
    title, ours, theirs = formatting.title(metric), formatting.number(own.value, metric), formatting.number(other.value, metric)
    figures = f"{title} {ours} against {theirs} of {baseline}, fitted in seconds"
    if private:
        return (f"What privacy costs here: {figures} without privacy. More training examples, a larger epsilon, larger batches, and fewer "
                "weights on good features make it less (docs/training.md#private-training).")
    if gain.value < 0 and gain.high is not None and gain.high < 0:
        return (f"Worse than a cheap baseline: {figures}. The training was too short, or something is wrong with it or its settings "
                "(docs/troubleshooting.md).")
    return f"No better than a cheap baseline, by more than chance: {figures}."


def _bounded(name: str, metric: "Metric | None") -> dict[str, Any]:
    if metric is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
