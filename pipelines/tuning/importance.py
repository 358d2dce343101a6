"""Which settings mattered: how much of the variation between trials each explains by itself.

A random forest is fitted to the trials and its variance over the space is divided, as functional ANOVA does (Hutter, Hoos and
Leyton-Brown 2014, "An Efficient Approach for Assessing Hyperparameter Importance"): the share of a setting is the variance of
the forest's answer, averaged over all other settings, along that one. Where trainings are of different lengths (hyperband), the
length is a factor of its own, over which everything is averaged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.config.space import Dimension
from pipelines.tuning.tuner_space import active, coordinates, values_of

FEWEST = 8  # trials below which nothing is reported
_DRAWN, _PLACES, _TREES = 400, 16, 200


@dataclass(frozen=True)
class Importance:
    """Attributes:
        shares: setting -> share of the variance that it explains by itself; what is missing to 1 is explained by several together.
        fit: how well the forest predicts trials that it has not seen (R squared, among trainings of one length); below about 0.3 the
            shares say little.
        trials: settings that they rest on.
        epochs: lengths of their trainings, where they are several.
    """

    shares: dict[str, float]
    fit: float
    trials: int
    epochs: list[int] = field(default_factory=list)


def importance(dimensions: Sequence[Dimension], trials: Sequence[tuple[Mapping[str, Any], float]], seed: int = 0,
               rounds: Sequence[tuple[int, int]] | None = None) -> Importance | None:
    """Importance of each setting from (values, score) of trials; None where there are too few or all came to the same.

    Args:
        rounds: (setting, epochs) of each trial, where one setting is there after several numbers of epochs.
    """
    places = [place for place, (_, score) in enumerate(trials) if math.isfinite(score)]
    scores = np.array([trials[place][1] for place in places])
    of = np.array([rounds[place][0] if rounds else place for place in places])
    lengths = np.array([rounds[place][1] if rounds else 0 for place in places], float)
    levels = np.unique(lengths)
    if len(set(of)) < FEWEST or np.ptp(scores) == 0.0:
        return None
    from sklearn.ensemble import RandomForestRegressor

    def rows(settings: Sequence[Mapping[str, Any]], length: Any) -> np.ndarray:
        table = _rows(dimensions, settings)
        return table if len(levels) == 1 else np.column_stack([table, np.broadcast_to(length, len(table))])

    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, oob_score=True, random_state=seed, n_jobs=1)
    seen = rows([trials[place][0] for place in places], lengths)
    forest.fit(seen, scores)
    draw = np.random.default_rng(seed)
    sample = [_whole(dimensions, {}, draw) for _ in range(_DRAWN)]
    variance = float(np.var(np.mean([forest.predict(rows(sample, length)) for length in levels], axis=0)))
    lots = np.random.default_rng(seed + 1).choice(levels, _DRAWN)  # a length for each of the sample: its mean is that over lengths
    shares = {}
    for dimension in dimensions:
        there = [number for number, values in enumerate(sample) if dimension.name in values]
        rest = [number for number, values in enumerate(sample) if dimension.name not in values]  # there it does not matter
        own = sorted((sample[number][dimension.name] for number in there),
                     key=lambda value: coordinates([dimension], {dimension.name: value}))
        along = [own[round(place)] for place in np.linspace(0, len(own) - 1, _PLACES)] if own else []
        means = [float(forest.predict(rows([
            *(_whole(dimensions, {**sample[number], dimension.name: value}, draw) for number in there),
            *(sample[number] for number in rest)], lots[there + rest])).mean()) for value in along]
        shares[dimension.name] = min(1.0, float(np.var(means)) / variance) if means and variance > 0.0 else 0.0
    most = max(1.0, sum(shares.values()))  # estimates from a sample: together they may come to a little over the whole
    shares = {name: share / most for name, share in shares.items()}
    fit = float(forest.oob_score_) if len(levels) == 1 else _out_of_setting_fit(forest, seen, scores, of, lengths)
    return Importance(dict(sorted(shares.items(), key=lambda item: -item[1])), fit, len(set(of)),
                      [int(level) for level in levels] if len(levels) > 1 else [])


def _out_of_setting_fit(forest: Any, rows: np.ndarray, scores: np.ndarray, of: np.ndarray, lengths: np.ndarray) -> float:
    """R squared on settings left out with all their rounds, against the mean of each length: what the length alone predicts is nothing."""
    from sklearn.model_selection import GroupKFold, cross_val_predict

    predicted = cross_val_predict(forest, rows, scores, groups=of, cv=GroupKFold(5))
    means = {length: scores[lengths == length].mean() for length in np.unique(lengths)}
    spread = float(np.sum((scores - np.array([means[length] for length in lengths])) ** 2))
    return 1.0 - float(np.sum((scores - predicted) ** 2)) / spread if spread > 0.0 else 0.0


def _rows(dimensions: Sequence[Dimension], settings: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Settings as rows; where one does not matter, a number outside of all that it can have."""
    rows = np.array([coordinates(dimensions, values) for values in settings])
    return np.where(np.isnan(rows), -1e6, rows)


def _whole(dimensions: Sequence[Dimension], given: Mapping[str, Any], draw: np.random.Generator) -> dict[str, Any]:
    """The given values, with others drawn at random where they matter and are not given; those that do not matter are dropped."""
    values: dict[str, Any] = {}
    for dimension in dimensions:
        if not active(dimension, values):
            continue
        if dimension.name in given:
            values[dimension.name] = given[dimension.name]
        else:
            values[dimension.name] = _random(dimension, draw)
    return values


def _random(dimension: Dimension, draw: np.random.Generator) -> Any:
    listed = values_of(dimension)
    if listed is not None:
        return listed[int(draw.integers(len(listed)))]
    low, high = float(dimension.low or 0.0), float(dimension.high or 0.0)
    place = draw.random()
    number = low * (high / low) ** place if dimension.scale == "log" else low + place * (high - low)
    return round(number) if dimension.kind == "int" else number
