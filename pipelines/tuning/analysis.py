"""What a search shows: which settings mattered - how much of the variation between trials each explains by itself - and, with a cost, the
front: the trials than which none scores better and costs less. Imports no TensorFlow.

A random forest is fitted to the trials and its variance over the space is divided, as functional ANOVA does (Hutter, Hoos and
Leyton-Brown 2014, "An Efficient Approach for Assessing Hyperparameter Importance"): the share of a setting is the variance of
the forest's answer, averaged over all other settings, along that one. Where trainings are of different lengths (hyperband), the
length is a factor of its own, over which everything is averaged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import formatting
from pipelines.config.schema import Cost
from pipelines.config.space import Dimension
from pipelines.tuning.tuner_space import active, coordinates, values_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNITS = {"operations": "operations an example", "parameters": "weights", "size": "bytes of weights", "latency": "ms an example"}


def worth(trial: Any, cost: Cost | None, sign: float) -> float | None:
    """What the algorithm is given as a trial's score, and by which the best is chosen: its value, less `cost.doubling` for each time that
    its cost is twice as much (more, where less of the value is better); None where it failed."""
    if trial.value is None or cost is None or not cost.doubling or not trial.cost:
        return trial.value
    return trial.value - sign * cost.doubling * math.log2(trial.cost)


def front(trials: Sequence[Any], sign: float) -> list[Any]:
    """Of trials (`trials.Trial`), those on the front, the cheapest first; of rounds of one setting the last counts, of equals the
    first.

    Args:
        sign: 1 where more of the value is better, -1 where less is.
    """
    last = {trial.setting: trial for trial in sorted(trials, key=lambda one: (one.epochs or math.inf, one.number))
            if trial.value is not None and trial.cost is not None}
    found: list[Any] = []
    for trial in sorted(last.values(), key=lambda one: (one.cost or 0.0, -sign * (one.value or 0.0), one.number)):
        if not found or sign * (trial.value or 0.0) > sign * (found[-1].value or 0.0):
            found.append(trial)
    return found


def lines(content: Any) -> list[str]:
    """The front in words, of what search.json holds."""
    if not content.get("front"):
        return []
    objective, measure = content["objective"].partition("/")[2], content["cost"]["measure"]
    trials = {trial["trial"]: trial for trial in content["trials"]}
    on = [trials[number] for number in content["front"]]
    return [f"Trial {one['trial']}: {formatting.title_within(objective)} {formatting.number(one['value'], objective)} with "
            f"{formatting.number(one['cost'])} {UNITS[measure]}" for one in on]


def picture(trials: Sequence[Any], on_front: Sequence[Any], best: Any, objective: str, cost: Cost) -> "Figure":
    """The score of every trial over its cost, and the front as steps."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from pipelines.base.figures import BLUE, GREY, ORANGE, new_figure, style

    having = [trial for trial in trials if trial.value is not None and trial.cost is not None]
    percent = 100.0 if formatting.is_percent(objective) else 1.0
    with style():
        figure = new_figure(7.0, 4.2)
        axis = figure.subplots()
        axis.set_title(f"{formatting.title(objective)}{' (%)' if percent > 1 else ''} against {UNITS[cost.measure]}")
        axis.set_xlabel(UNITS[cost.measure])
        spread = [trial.cost or 0.0 for trial in having]
        if min(spread) > 0 and max(spread) > 5 * min(spread):
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        others = [trial for trial in having if trial not in on_front]
        axis.plot([trial.cost for trial in others], [percent * (trial.value or 0.0) for trial in others], "o", color=GREY, alpha=0.6,
                  label="other trials")
        axis.plot([trial.cost for trial in on_front], [percent * (trial.value or 0.0) for trial in on_front], "o-", color=BLUE,
                  drawstyle="steps-post", label="front")
        if best in having:
            axis.plot([best.cost], [percent * (best.value or 0.0)], "o", color=ORANGE, markersize=8, label="best")
        for trial in on_front:
            axis.annotate(str(trial.number), (trial.cost, percent * (trial.value or 0.0)), textcoords="offset points", xytext=(5, 5))
        if cost.limit is not None:
            axis.axvline(cost.limit, color=GREY, linestyle="--", linewidth=1.0, label="limit")
        axis.legend(loc="lower right")
    return figure


def _short(value: float) -> str:
    """20,000 as `20 k`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g}"


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
