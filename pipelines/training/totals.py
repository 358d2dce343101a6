"""The sums from which an epoch's metrics are computed: of the loss, of weights (1 or 0), of the columns of each score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.task.contract import Task
from pipelines.task.intervals import Statistic
from pipelines.task.own_metrics import own_statistics


@dataclass(frozen=True)
class ScoreSums:
    """How the scores of a task stand among the totals, [2 + columns]: the sums of the losses and of what they count, then those of scores.

    Attributes:
        columns: name -> how many sums a score has.
        statistics: name -> what its metric is of the sums; of any other score the metric is the mean of its one column.
    """

    columns: Mapping[str, int]
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    counted: bool = False  # losses count pixels or tokens; then the number of examples stands last

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def size(self) -> int:
        """Of the totals."""
        return 2 + sum(self.columns.values()) + self.counted

    def totals(self, loss: tf.Tensor, count: tf.Tensor, scores: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        """The totals of a batch, float32; in graph.

        Args:
            loss, count: sums over the examples that the mask [batch] counts.
        """
        each = (tf.reshape(tf.cast(scores[name], tf.float32), [-1, width]) for name, width in self.columns.items())
        sums = [tf.reduce_sum(values * mask[:, None], 0) for values in each]
        return tf.concat([tf.stack([loss, count]), *sums, *([tf.reduce_sum(mask)[None]] if self.counted else [])], 0)

    def examples(self, totals: np.ndarray) -> float:
        """How many examples the totals are of."""
        return float(totals[-1 if self.counted else 1])

    def metrics(self, totals: np.ndarray) -> dict[str, float]:
        """The mean loss and the metrics of all scores, from totals."""
        count = max(self.examples(totals), 1.0)
        found, place = {"loss": float(totals[0]) / max(float(totals[1]), 1.0)}, 2
        for name, width in self.columns.items():
            found[name] = metric_of(totals[place:place + width], count, self.statistics.get(name))
            place += width
        return found


def metric_of(sums: np.ndarray, count: float, statistic: Statistic | None) -> float:
    """The metric of a score whose sums over `count` examples are [columns]."""
    return float(statistic(np.asarray(sums, np.float64)[None])[0] if statistic else sums[0] / count)


def losses(output: Any, outputs: Any, targets: Any, training: bool, mask: tf.Tensor | None = None,
           ) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The losses of a batch and what each counts, [batch] float32; None where each counts once. In graph.

    Args:
        mask: [batch] float32, which examples count, for a loss that asks for it (`Learning.masked`).
    """
    asked = mask is not None and output.learning.masked
    found = output.loss(outputs, targets, training, mask) if asked else output.loss(outputs, targets, training)
    if isinstance(found, tuple):
        return tf.cast(found[0], tf.float32), tf.cast(found[1], tf.float32)
    return tf.cast(found, tf.float32), None


def find_scores(task: Task, model: keras.Model, spec: Mapping[str, tf.TensorSpec],
                scored: Callable[[Any, Any], Mapping[str, tf.Tensor]] | None = None) -> ScoreSums:
    """The task's scores, from a trace on symbols (nothing is computed).

    Args:
        spec: name -> spec of one decoded example.
        scored: (outputs, targets) -> scores; None for the task's own.

    Raises:
        ConfigError: a score is neither a number for each example nor sums that the output has a statistic of.
    """
    counted: list[bool] = []

    def scores(examples: Any) -> dict:
        inputs, targets = task.prepare(examples)
        outputs = model(inputs, training=False)
        if scored is None:
            counted.append(losses(task.output, outputs, targets, training=False)[1] is not None)
        return dict((scored or task.output.scores)(outputs, targets))

    one = {key: tf.TensorSpec([1, *value.shape], value.dtype) for key, value in spec.items()}
    shapes = {name: value.shape for name, value in
              tf.function(scores, autograph=False).get_concrete_function(one).structured_outputs.items()}
    statistics = {**task.output.statistics, **own_statistics(task)}
    for name, shape in shapes.items():
        if shape.rank not in ((2,) if name in statistics else (1, None)):  # an edit distance knows no shape beforehand
            raise ConfigError(f"{task.experiment.task}: the score {name} has the shape {shape}; it must be [batch], a number for each "
                              "example whose mean is the metric, or [batch, sums] with the metric of the sums in Output.statistics")
    return ScoreSums({name: int(shape[1]) if shape.rank == 2 else 1 for name, shape in shapes.items()}, statistics, any(counted))
