"""The scale in which numbers are learned: of mean 0 and deviation 1 over train, of the number itself or of its logarithm."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source
from pipelines.outputs.settings import NumberTarget

SKEWED = 1.0  # skewness from which a logarithm is tried
TINY = 1e-12
FAR = 10.0  # deviations below the mean of the logarithm at which numbers that have none, such as 0, are put


def learn(train: Source, names: Sequence[str], target: NumberTarget) -> tuple[list[dict[str, Any]], list[str]]:
    """The fact `targets`, and notes on it.

    Args:
        train: its `number_targets` have a column for each name.

    Raises:
        DataError: a column without two different numbers, or one not above 0 where target.scale is log.
    """
    values = train.number_targets
    assert values is not None
    targets, notes = [], list[str]()
    for place, title in enumerate(names):
        def own(value: Any, place: int = place) -> Any:
            return value[place] if isinstance(value, list) else value

        known = values[~np.isnan(values[:, place]), place].astype(np.float64)
        if not len(known) or known.min() == known.max():
            there = f"the number {known[0]:g} alone" if len(known) else "no number"
            raise DataError(f"column {title} (data.label_key): train has {there}; a regression needs different ones")
        if target.scale == "log" and known.min() <= 0:
            raise DataError(f"{train.name(int(np.nanargmin(values[:, place])))}: {known.min():g} in column {title} has no logarithm; set "
                            "target.scale: linear")
        log = target.scale == "log" or (target.scale == "auto" and _skewed(known))
        scaled = np.log(known) if log else known
        if log and target.scale == "auto":
            notes.append(f"{title}: its logarithm is learned, since train is above 0 and skewed ({_skewness(known):.1f}, of the logarithm "
                         f"{_skewness(scaled):.1f}); target.scale: linear learns the number itself")
        targets.append({"name": title, "unit": own(target.unit), "mean": float(known.mean()), "std": float(known.std()),
                        "low": own(target.low), "high": own(target.high), "scale": "log" if log else "linear",
                        "centre": float(scaled.mean()), "spread": float(scaled.std())})
    return targets, notes


def _skewness(values: np.ndarray) -> float:
    return float(np.mean(((values - values.mean()) / max(values.std(), TINY)) ** 3))


def _skewed(values: np.ndarray) -> bool:
    return bool(values.min() > 0) and _skewness(values) > SKEWED and abs(_skewness(np.log(values))) < _skewness(values) / 2


class Scales:
    """From numbers [batch, columns] float32 in the data's units to the learned scale and back, in graph.

    Args:
        targets: the fact.
    """

    def __init__(self, targets: Sequence[dict[str, Any]]):
        def each(values: Sequence[float]) -> tf.Tensor:
            return tf.constant([list(values)], tf.float32)

        self.centre, self.spread = each([one["centre"] for one in targets]), each([one["spread"] for one in targets])
        self.log = tf.constant([[one["scale"] == "log" for one in targets]])
        self.least = each([math.exp(max(one["centre"] - FAR * one["spread"], -80.0)) if one["scale"] == "log" else 1.0 for one in targets])
        self.low = each([-math.inf if one["low"] is None else one["low"] for one in targets])
        self.high = each([math.inf if one["high"] is None else one["high"] for one in targets])

    def learned(self, numbers: tf.Tensor) -> tf.Tensor:
        """In the learned scale; NaN stays."""
        scaled = tf.where(self.log, tf.math.log(tf.where(self.log, tf.maximum(numbers, self.least), 1.0)), numbers)
        return tf.where(tf.math.is_nan(numbers), numbers, (scaled - self.centre) / self.spread)

    def numbers(self, learned: tf.Tensor) -> tf.Tensor:
        """In the data's units, within what is possible."""
        scaled = learned * self.spread + self.centre
        numbers = tf.where(self.log, tf.exp(tf.minimum(tf.where(self.log, scaled, 0.0), 80.0)), scaled)
        return tf.minimum(tf.maximum(numbers, self.low), self.high)
