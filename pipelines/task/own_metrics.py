"""Metrics of the experiment's own, `evaluate.metrics`: computed beside the scores of the task, and added to what is judged."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.config.schema import METRICS
from pipelines.data.source import Tensors
from pipelines.task import intervals
from pipelines.task.results import Judgement
from pipelines.task.units import EXAMPLES

if TYPE_CHECKING:
    from pipelines.task.contract import Task


def own_scores(task: "Task", outputs: Any, targets: Any) -> Tensors:
    """evaluate.metrics: name -> [batch] float32, NaN where an example does not count. In graph.

    Args:
        outputs, targets: as `Output.loss` has them.

    Raises:
        ConfigError: one that gives anything but a number for each example.
    """
    import tensorflow as tf

    values = {}
    for one in task.experiment.evaluate.metrics:
        value = tf.convert_to_tensor(METRICS.build(one, outputs=outputs, targets=targets, facts=task.facts))
        if value.shape.rank != 1:
            raise ConfigError(f"evaluate.metrics: {one.name} gives the shape {value.shape}, not [batch]: a number for each example")
        values[one.name] = tf.cast(value, tf.float32)
    return values


def add_own(judgement: Judgement, values: Mapping[str, np.ndarray], resamples: int) -> None:
    """Adds the metrics of the experiment's own, values [n] of each example by name, with their intervals and beside each prediction."""
    for name, each in values.items():
        counts, units = ~np.isnan(each), judgement.units or EXAMPLES
        if units.of is not None:
            units = units.pick(counts) if len(units.of) == len(each) else EXAMPLES
        judgement.metrics[name] = intervals.mean(each[counts].astype(np.float64), resamples=resamples, units=units)
        if judgement.predictions and all(len(column) == len(each) for column in judgement.predictions.values()):
            judgement.predictions = {**judgement.predictions, name: each}


