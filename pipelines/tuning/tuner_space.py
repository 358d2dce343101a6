"""A search space in Keras Tuner's terms, and back: values of a trial, the number of points, places in the unit cube.

Keras Tuner's Choice takes values of one plain type only, and its stepped ranges add up rounding. So whatever has few values
(choices, truth values, stepped ranges, ranges of whole numbers) is a Choice of places in the list of those values, a range of more
steps an Int of its places, and only ranges without steps are Keras Tuner's own. Oracles and journal see places; everybody else
sees values.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.config.space import Dimension

FEW = 1000  # values of a range that are listed one by one


def values_of(dimension: Dimension) -> list[Any] | None:
    """Every value that a searched setting may have, in order; None for a continuous range or one of too many values to list."""
    if dimension.kind in ("choice", "boolean"):
        return list(dimension.values)
    count = steps(dimension)
    return None if count is None or count > FEW else [value_at(dimension, place) for place in range(count)]


def steps(dimension: Dimension) -> int | None:
    """How many values a range has; None without steps: for any number within its ends, and for whole ones on a log scale."""
    low, high, step = dimension.low, dimension.high, dimension.step
    assert low is not None and high is not None
    if dimension.scale == "log":
        return None if step is None else int(math.log(high / low) / math.log(step) + 1e-9) + 1
    if step is None and dimension.kind != "int":
        return None
    return int((high - low) / (step or 1) + 1e-9) + 1


def value_at(dimension: Dimension, place: int) -> float | int:
    """The value of a place, from 0, of a range with steps."""
    assert dimension.low is not None
    number = dimension.low * dimension.step ** place if dimension.scale == "log" and dimension.step is not None else (
        dimension.low + place * (dimension.step or 1))
    return round(number) if dimension.kind == "int" else float(f"{number:.12g}")


def hyperparameters(dimensions: Sequence[Dimension]) -> Any:
    """The space as `keras_tuner.HyperParameters`; dimensions stand after those that their `when` names."""
    import keras_tuner

    space = keras_tuner.HyperParameters()
    by_name = {dimension.name: dimension for dimension in dimensions}
    for dimension in dimensions:
        with contextlib.ExitStack() as conditions:
            for other, wanted in dimension.when.items():
                conditions.enter_context(space.conditional_scope(other, _places(by_name[other], wanted)))
            listed = values_of(dimension)
            if listed is not None:
                space.Choice(dimension.name, list(range(len(listed))))
            elif dimension.step is not None:
                space.Int(dimension.name, 0, (steps(dimension) or 1) - 1)
            elif dimension.kind == "int":
                space.Int(dimension.name, dimension.low, dimension.high, sampling=dimension.scale)
            else:
                space.Float(dimension.name, dimension.low, dimension.high, sampling=dimension.scale)
    return space


def decoded(dimensions: Sequence[Dimension], places: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial from what an oracle chose; settings that do not matter for it (`when`) are left out."""
    settings: dict[str, Any] = {}
    for dimension in dimensions:
        if dimension.name not in places or not active(dimension, settings):
            continue
        listed, place = values_of(dimension), places[dimension.name]
        if listed is not None:
            settings[dimension.name] = listed[place]
        elif dimension.step is not None:
            settings[dimension.name] = value_at(dimension, place)
        else:  # six digits tell settings apart, and can be read
            settings[dimension.name] = int(place) if dimension.kind == "int" else float(f"{place:.6g}")
    return settings


def placed(dimensions: Sequence[Dimension], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an oracle would have chosen for the settings `values`, as `decoded` gives them back; None where the space does not hold them."""
    settings: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    for dimension in dimensions:
        if not active(dimension, seen):
            continue
        value: Any = values.get(dimension.name)
        seen[dimension.name] = value
        listed = values_of(dimension)
        places: Sequence[Any]
        if listed is not None:
            places = [place for place, each in enumerate(listed) if _among(value, (each,))]
        elif not dimension.takes(value):
            return None
        elif dimension.step is not None:
            places = [place for place in range(steps(dimension) or 0) if math.isclose(value_at(dimension, place), value)]
        else:
            places = [int(value) if dimension.kind == "int" else float(value)]
        if not places:
            return None
        settings[dimension.name] = places[0]
    return settings


def active(dimension: Dimension, values: Mapping[str, Any]) -> bool:
    """Whether a setting matters under the values of those before it."""
    return all(other in values and _among(values[other], wanted) for other, wanted in dimension.when.items())


def count(dimensions: Sequence[Dimension], most: int) -> int:
    """How many different settings the space holds; `most` where there are as many or more."""

    def below(place: int, values: dict[str, Any], limit: int) -> int:
        if place == len(dimensions):
            return 1
        dimension = dimensions[place]
        if not active(dimension, values):
            return below(place + 1, values, limit)
        listed = values_of(dimension)
        if listed is None:
            return limit
        count = 0
        for value in listed:
            count += below(place + 1, {**values, dimension.name: value}, limit - count)
            if count >= limit:
                return limit
        return count

    return below(0, {}, most)


def check(dimensions: Sequence[Dimension], algorithm: str, trials: int) -> None:
    """Whether the space suits the search.

    Raises:
        ConfigError: it is empty, holds fewer settings than there are trials, or a grid has a range without steps.
    """
    if not dimensions:
        raise ConfigError("tune.space: there is nothing to search; name settings in the experiment, such as\n"
                          "  tune: {space: {train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}}}")
    if algorithm == "grid":
        for dimension in dimensions:
            if values_of(dimension) is None and dimension.step is not None:
                raise ConfigError(f"tune.space[{dimension.name}]: a grid of {steps(dimension):,} steps; at most {FEW:,} are tried one by "
                                  "one: give a larger `step`, or take another tune.algorithm")
            if values_of(dimension) is None:
                raise ConfigError(f"tune.space[{dimension.name}]: a grid needs points: give `step`"
                                  f"{' (on a log scale the ratio of neighbours)' if dimension.scale == 'log' else ''}, or a choice")
        return  # a grid ends when all its points are tried
    there = count(dimensions, trials)
    if there < trials and algorithm != "hyperband":
        raise ConfigError(f"tune.trials: {trials} trials, and the space holds only {there} different settings; set tune.trials: {there} "
                          "with tune.algorithm: grid to try each once, or widen tune.space")


def coordinates(dimensions: Sequence[Dimension], values: Mapping[str, Any]) -> list[float]:
    """Where a trial lies: each setting as a number that grows evenly with it (its logarithm on a log scale), nan where it has none."""
    row = []
    for dimension in dimensions:
        value = values.get(dimension.name, _MISSING)
        if value is _MISSING:
            row.append(math.nan)
        elif dimension.kind in ("choice", "boolean"):
            row.append(float(next(place for place, each in enumerate(dimension.values) if _among(value, (each,)))))
        else:
            row.append(math.log(value) if dimension.scale == "log" else float(value))
    return row


_MISSING = object()


def _places(dimension: Dimension, wanted: Sequence[Any]) -> list[Any]:
    """Where the values that a condition names stand, as an oracle sees them."""
    listed = values_of(dimension)
    if listed is not None:
        return [place for place, value in enumerate(listed) if _among(value, wanted)]
    if dimension.step is None:
        return list(wanted)
    return [place for place in range(steps(dimension) or 0) if _among(value_at(dimension, place), wanted)]


def _among(value: Any, wanted: Sequence[Any]) -> bool:
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in wanted)
