"""The training examples that are most like an input in the features of a run's encoder: what its answer rests on, for `quartet nearest`.

Features are compared by the cosine of their differences from train's mean, which all vectors have in common. Those of train are kept as
training kept them (`data.cache`), so that the second question takes no time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.data.example_texts import texts
from pipelines.data.source import Source, Tensors, label_of
from pipelines.encoders.features import FEATURES, Computing, own_columns
from pipelines.serving.answers import respond
from pipelines.serving.embed import require_encoder, vectors
from pipelines.serving.load import LoadedRun

TINY = 1e-12


@dataclass(frozen=True)
class Neighbour:
    """A training example near an input.

    Attributes:
        name: where it lies.
        text: what it is, where that is a text; else None.
        label: its class, or its labels, where it has one.
        similarity: -1 to 1.
    """

    name: str
    text: str | None
    label: str | None
    similarity: float


class Nearest:
    """The training examples of a run, to be asked for the nearest ones."""

    def __init__(self, run: LoadedRun, say: Callable[[str], None]):
        """
        Args:
            run: of a pretrained encoder, on one device.
            say: is told how far the computing of features is, where they are not kept.

        Raises:
            ConfigError: the run has no encoder that makes one vector of an input, or its features cannot be kept.
            DataError: the data that it was trained on cannot be read.
        """
        require_encoder(run)
        self.train: Source = run.task.splits().train
        self.classes: list[str] = run.task.facts.get("classes") or []
        seed = run.experiment.train.seed
        computing = Computing.of(run.task, run.model, self.train, run.machine, run.experiment.data, seed, say)
        kept = computing.source(self.train) if computing is not None else None
        if kept is None:
            raise ConfigError(f"{run.folder.path}: the features of its training data cannot be kept: there is no room for them, or "
                              "data.cache is none, or data.streaming is set")
        features = np.array(kept.arrays[FEATURES], np.float32)[:, :own_columns(run.model)]
        self.mean = features.mean(0, dtype=np.float64).astype(np.float32)
        self.directions = self._directions(features)

    def _directions(self, features: np.ndarray) -> np.ndarray:
        features = features - self.mean
        return features / np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), TINY)

    def of(self, vector: np.ndarray, count: int) -> list[Neighbour]:
        """The `count` nearest, nearest first; `vector` as `answered` gives it, [width] float32."""
        cosine = self.directions @ self._directions(vector)
        return [self._neighbour(int(number), float(cosine[number])) for number in np.argsort(-cosine, kind="stable")[:count]]

    def _neighbour(self, number: int, similarity: float) -> Neighbour:
        label = label_of(self.train, number, self.classes)
        return Neighbour(self.train.name(number), texts(self.train, [number])[0], label, similarity)


def answered(run: LoadedRun, examples: Tensors) -> Tensors:
    """The run's answer with `vector` [batch, width] float32, in graph; for `Predictor`."""
    return {**respond(run, examples), **vectors(run, examples)}
