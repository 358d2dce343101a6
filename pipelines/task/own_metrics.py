"""Metrics of the experiment's own, `evaluate.metrics`: computed beside the scores of the task, and added to what is judged."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.config.schema import METRICS, STATISTICS
from pipelines.data.source import Tensors
from pipelines.task import intervals
from pipelines.task.results import Judgement
from pipelines.task.units import EXAMPLES

if TYPE_CHECKING:
    from pipelines.task.contract import Task


def own_scores(task: "Task", outputs: Any, targets: Any) -> Tensors:
    """evaluate.metrics: name -> [batch] float32, or [batch, sums] of one with a statistic; NaN where an example does not count. In graph.

    Args:
        outputs, targets: as `Output.loss` has them.

    Raises:
        ConfigError: one that gives anything else.
    """
    import tensorflow as tf

    values = {}
    for one in task.experiment.evaluate.metrics:
        value = tf.convert_to_tensor(METRICS.build(one, outputs=outputs, targets=targets, facts=task.facts))
        if value.shape.rank != (2 if type(one) in STATISTICS else 1):
            raise ConfigError(f"evaluate.metrics: {one.name} gives the shape {value.shape}, not [batch]: a number for each example, or "
                              "[batch, sums] where it is registered with a statistic of them")
        values[one.name] = tf.cast(value, tf.float32)
    return values


def own_statistics(task: "Task") -> dict[str, intervals.Statistic]:
    """Of those in evaluate.metrics that give sums: name -> what makes the metric [m] of sums [m, sums]."""
    return {one.name: STATISTICS[type(one)] for one in task.experiment.evaluate.metrics if type(one) in STATISTICS}


def add_own(judgement: Judgement, values: Mapping[str, np.ndarray], task: "Task") -> None:
    """Adds the metrics of the experiment's own, as `own_scores` gives them of all examples, with their intervals; those of one number
    beside each prediction, too."""
    statistics = own_statistics(task)
    for name, each in values.items():
        counts, units = ~np.isnan(each.reshape(len(each), -1)).any(1), judgement.units or EXAMPLES
        if units.of is not None:
            units = units.pick(counts) if len(units.of) == len(each) else EXAMPLES
        how: Any = {"resamples": task.experiment.evaluate.bootstrap, "units": units}
        some = each[counts].astype(np.float64)
        judgement.metrics[name] = intervals.interval(some, statistics[name], **how) if name in statistics else intervals.mean(some, **how)
        if each.ndim == 1 and judgement.predictions and all(len(column) == len(each) for column in judgement.predictions.values()):
            judgement.predictions = {**judgement.predictions, name: each}


