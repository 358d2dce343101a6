"""Which settings mattered: how much of the variation between trials each explains by itself.

A random forest is fitted to the trials and its variance over the space is divided, as functional ANOVA does (Hutter, Hoos and
Leyton-Brown 2014, "An Efficient Approach for Assessing Hyperparameter Importance"): the share of a setting is the variance of
the forest's answer, averaged over all other settings, along that one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.config.space import Dimension
from pipelines.tuning.points import active, coordinates, values_of

FEWEST = 8  # trials below which nothing is said
_DRAWN, _PLACES, _TREES = 400, 16, 200


@dataclass(frozen=True)
class Importance:
    """Attributes:
        shares: setting -> share of the variance that it explains by itself; what is missing to 1 is explained by several together.
        fit: how well the forest foretells trials that it has not seen (out-of-bag R squared); below about 0.3 the shares say little.
        trials: that they rest on.
    """

    shares: dict[str, float]
    fit: float
    trials: int


def importance(dimensions: Sequence[Dimension], trials: Sequence[tuple[Mapping[str, Any], float]], seed: int = 0) -> Importance | None:
    """Importance of each setting from (values, score) of trials; None where there are too few or all came to the same."""
    finite = [(values, score) for values, score in trials if math.isfinite(score)]
    scores = np.array([score for _, score in finite])
    if len(finite) < FEWEST or np.ptp(scores) == 0.0:
        return None
    from sklearn.ensemble import RandomForestRegressor

    rows = np.array([coordinates(dimensions, values) for values, _ in finite])
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, oob_score=True, random_state=seed, n_jobs=1)
    forest.fit(_filled(rows), scores)
    draw = np.random.default_rng(seed)
    sample = np.array([coordinates(dimensions, _random(dimensions, draw)) for _ in range(_DRAWN)])
    whole = float(np.var(forest.predict(_filled(sample))))
    shares = {}
    for column, dimension in enumerate(dimensions):
        there = sample[:, column][~np.isnan(sample[:, column])]
        places = np.unique(np.quantile(there, np.linspace(0.0, 1.0, _PLACES), method="nearest")) if len(there) else np.empty(0)
        means = []
        for place in places:
            changed = sample.copy()
            matters = ~np.isnan(changed[:, column])  # where the setting does not matter it cannot be changed
            changed[matters, column] = place
            means.append(float(forest.predict(_filled(changed)).mean()))
        weights = [np.mean(np.argmin(np.abs(there[:, None] - places), axis=1) == number) for number in range(len(places))]
        middle = float(np.average(means, weights=weights)) if means else 0.0
        variance = float(np.average((np.array(means) - middle) ** 2, weights=weights)) if means else 0.0
        shares[dimension.name] = variance / whole if whole > 0.0 else 0.0
    return Importance(dict(sorted(shares.items(), key=lambda item: -item[1])), float(forest.oob_score_), len(finite))


def _filled(rows: np.ndarray) -> np.ndarray:
    """Where a setting does not matter, a value outside of all that it can have."""
    return np.where(np.isnan(rows), -1e6, rows)


def _random(dimensions: Sequence[Dimension], draw: np.random.Generator) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for dimension in dimensions:
        if not active(dimension, values):
            continue
        listed = values_of(dimension)
        if listed is not None:
            values[dimension.name] = listed[int(draw.integers(len(listed)))]
            continue
        low, high = float(dimension.low or 0.0), float(dimension.high or 0.0)
        place = draw.random()
        number = low * (high / low) ** place if dimension.scale == "log" else low + place * (high - low)
        values[dimension.name] = round(number) if dimension.kind == "int" else number
    return values
