"""One input alone, answered by a converted core: decoded and worded by numpy, where its task can do that.

The graph that decodes a batch takes several times as long for one small input as LiteRT takes to answer it.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from extensions.convert.core import prepared
from extensions.convert.decoding import decoder_of
from pipelines.serving.answers import WARNING, stacked
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import Prediction
from pipelines.serving.predict import UNREADABLE, Predictor

NOTHING = np.array([b""], object)  # no warning


class QuickPredictor(Predictor):
    """Answers as a Predictor does: a batch with what the run has, one input alone with a core."""

    def __init__(self, run: LoadedRun, core: Any, outputs: dict[str, tf.TensorSpec], *, by_numpy: bool = True, batch: int | None = None):
        """
        Args:
            core: a function of arrays, as runtimes.load gives it.
            outputs: specs of its answers, in their order.
            by_numpy: inputs may be decoded by `Decoder.decode`; else TensorFlow decodes them, to the bit as in a batch.
        """
        super().__init__(run, batch=batch)
        self._core, self._names, self._by_numpy, self.decoder = core, list(outputs), by_numpy, decoder_of(run.task)
        self.beside = {name: spec for name, spec in _beside(run.task, self.inputs).items() if name != WARNING}
        self._word = tf.function(run.task.output.respond, autograph=False, input_signature=[dict(outputs) | self.beside])
        self._prepare = tf.function(lambda raw: prepared(run.task, raw), autograph=False, input_signature=[self.inputs])

    def together(self, read: list[Any]) -> list[Prediction]:
        if len(read) == 1:
            name, row = read[0][:2]
            try:
                values, more = self._input(row)
            except UNREADABLE:  # the long way says what is wrong
                values = None
            if values is not None:
                return [Prediction(name, self._rows(self._worded(self._core(values), more))[0])]
        return super().together(read)

    def _input(self, row: dict[str, Any]) -> tuple[Any, Any]:
        """(the core's input [1, ...], or None where a batch's way has to be gone; its warning and what stands beside answers, [1, ...])."""
        if self._by_numpy and not self.beside:
            return self.decoder.decode(row), {}
        values, more = self._prepare(stacked(self.run.task, [row]))
        (values,) = tf.nest.flatten(values)
        return values.numpy(), {name: value.numpy() for name, value in more.items()}

    def _worded(self, answers: list[Any], more: dict[str, Any]) -> dict[str, Any]:
        named, warning = dict(zip(self._names, answers)) | {name: more[name] for name in self.beside}, more.get(WARNING, NOTHING)
        worded = self.decoder.word(named)
        if worded is None:
            worded = {name: value.numpy() for name, value in self._word({name: tf.constant(one) for name, one in named.items()}).items()}
        return {name: worded.get(name, warning) for name in self.outputs if name in worded or name == WARNING}


def _beside(task: Any, inputs: dict[str, tf.TensorSpec]) -> dict[str, tf.TensorSpec]:
    """Specs of what `prepared` gives beside the model's input."""
    traced = tf.function(lambda raw: prepared(task, raw)[1], autograph=False).get_concrete_function(inputs)
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in traced.structured_outputs.items()}
