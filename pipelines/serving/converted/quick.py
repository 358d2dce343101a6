"""A converted model behind a server: one input alone is decoded and its answer worded by numpy, where its task can do that.

The graph that decodes a batch takes several times as long for one small input as LiteRT takes to answer it.
"""

from typing import Any

import tensorflow as tf

from pipelines.serving.answers import WARNING
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import Prediction
from pipelines.serving.predict import UNREADABLE, Predictor


class QuickPredictor(Predictor):
    """Answers as a Predictor does, with a run that `converted` loaded."""

    def __init__(self, run: LoadedRun, *, batch: int | None = None):
        super().__init__(run, batch=batch)
        task: Any = run.task
        self._core, self._names = task.core, list(task.outputs)
        self._word = tf.function(task.respond, autograph=False, input_signature=[dict(task.outputs)])

    def together(self, read: list[Any]) -> list[Prediction]:
        if len(read) == 1:
            name, row = read[0][:2]
            try:
                values = self.run.task.quickly(row)
            except UNREADABLE:  # the long way says what is wrong
                values = None
            if values is not None:
                return [Prediction(name, self._values(self._worded(self._core(values)), 0))]
        return super().together(read)

    def _worded(self, answers: list[Any]) -> dict[str, Any]:
        named = dict(zip(self._names, answers))
        worded = self.run.task.worded(named)
        if worded is None:
            worded = {name: value.numpy() for name, value in self._word({name: tf.constant(one) for name, one in named.items()}).items()}
        return {name: worded.get(name, [b""]) for name in self.outputs if name in worded or name == WARNING}


def predictor(run: LoadedRun, batch: int | None = None) -> Predictor:
    """What serves a run, or a model converted from one."""
    return QuickPredictor(run, batch=batch) if hasattr(run.task, "core") else Predictor(run, batch=batch)
