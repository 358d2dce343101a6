"""The sums from which an epoch's metrics are computed: [2 + scores], of the loss, of weights (1 or 0), of each score."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from pipelines.task.contract import Task


def find_scores(task: Task, model: keras.Model, spec: Mapping[str, tf.TensorSpec],
                scored: Callable[[Any, Any], Mapping[str, tf.Tensor]] | None = None) -> list[str]:
    """The names of the task's scores, from a trace on symbols (nothing is computed).

    Args:
        spec: name -> spec of one decoded example.
        scored: (outputs, targets) -> scores; None for the task's own.
    """
    def scores(examples: Any) -> dict:
        inputs, targets = task.prepare(examples)
        return dict((scored or task.output.scores)(model(inputs, training=False), targets))

    one = {key: tf.TensorSpec([1, *value.shape], value.dtype) for key, value in spec.items()}
    return list(tf.function(scores, autograph=False).get_concrete_function(one).structured_outputs)


def means(totals: Any, score_names: Sequence[str]) -> dict[str, float]:
    """Totals into their means."""
    count = max(float(totals[1]), 1.0)
    return {"loss": float(totals[0]) / count, **{name: float(value) / count for name, value in zip(score_names, totals[2:])}}
