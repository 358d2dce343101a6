"""A cheap model beside every score: fitted on train in seconds, and judged on the same examples.

A model that does not beat it by more than chance is worth nothing, and the report says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.base import formatting
from pipelines.data.source import Source, Subset
from pipelines.task import intervals
from pipelines.task.results import Baseline, Judgement, Metric
from pipelines.task.units import EXAMPLES

MOST = 20_000  # examples of train that a baseline is fitted on
COMPONENTS = 1000  # of the approximated kernel
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # of which leave-one-out within train chooses


def fitting_part(train: Source, most: int = MOST) -> Source:
    """The training examples that a baseline is fitted on: all, or `most` drawn at random from a fixed seed."""
    if len(train) <= most:
        return train
    return Subset(train, np.sort(np.random.default_rng(0).choice(len(train), most, replace=False)).astype(np.int64))


def kernel_ridge(features: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A classifier with an RBF kernel, by Nystroem's approximation and least squares (Williams and Seeger 2001).

    Within a point or two of an RBF-SVM on such features; 20,000 examples take seconds.

    Args:
        features: [n, d].
        labels: [n] int.

    Returns:
        Features [m, d] -> labels [m].
    """
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    scaled = scaler.fit_transform(np.asarray(features, np.float64))
    width = max(float(np.sum(scaled.var(axis=0))), 1.0)  # as gamma="scale" of scikit-learn's SVC has it
    kernel = Nystroem(gamma=1.0 / width, n_components=min(COMPONENTS, len(scaled)), random_state=0)
    model = make_pipeline(kernel, RidgeClassifierCV(alphas=RIDGES)).fit(scaled, labels)
    return lambda more: model.predict(scaler.transform(np.asarray(more, np.float64)))


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
