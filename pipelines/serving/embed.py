"""The vectors that a pretrained encoder makes of inputs, for search, clusters or models elsewhere: what `quartet embed` writes, and the
training examples that are nearest by them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import write_whole
from pipelines.config.registry import part
from pipelines.data.source import Source, Tensors, label_of, texts
from pipelines.encoders.features import FEATURES, Computing, own_columns
from pipelines.reports import predictions
from pipelines.serving import presets
from pipelines.serving.answers import respond
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import WARNING, Prediction
from pipelines.task.contract import Task

ENDINGS = (".npz", *predictions.ENDINGS)


def vectors(run: LoadedRun, examples: Tensors) -> Tensors:
    """Examples as `Task.receive` gives them into {"vector": [batch, width] float32}, of the encoder alone, in graph."""
    inputs, _ = run.task.prepare({name: value for name, value in examples.items() if name != WARNING})
    return {"vector": tf.cast(run.model.get_layer("features")(inputs, training=False), tf.float32)[:, :own_columns(run.model)]}


def of_preset(handle: str) -> LoadedRun:
    """An encoder by itself, as a run that was never trained. Raises ConfigError."""
    return presets.of_preset(handle, "encode", what="encoder of images, texts or recordings")


def one_by_one(run: LoadedRun) -> LoadedRun:
    """The run; of one whose encoder makes vectors of several inputs to compare them, its encoder as a run that takes one. A domain's
    `encode` module has `one_by_one`, from such a task to that of one input, None for others."""
    encode = part(run.experiment.task.partition(".")[0], "encode")
    task: Task | None = getattr(encode, "one_by_one", lambda task: None)(run.task)
    if task is None:
        return run
    with run.machine.strategy.scope():
        model = task.model()
    mine, theirs = (one.get_layer("features").get_layer("backbone") for one in (model, run.model))
    mine.set_weights(theirs.get_weights())
    return replace(run, task=task, model=model, experiment=task.experiment)


def require_encoder(run: LoadedRun) -> None:
    """Raises ConfigError for a run whose model has no pretrained encoder, or one that gives a vector for each moment."""
    features = next((layer for layer in run.model.layers if layer.name == "features"), None)
    if features is None or len(features.output_shape) != 2:
        raise ConfigError(f"{run.folder.path}: its model has no pretrained encoder that makes one vector of an input; `quartet embed` "
                          "takes runs with model.name: pretrained, and presets")


def write(path: Path, answered: Iterable[Prediction]) -> None:
    """Writes `input` and `vector` of each, whole: as arrays in an .npz, else as columns of a table. Inputs without one are left out.

    Raises:
        DataError: there are none, or the system refuses.
    """
    kept = [(one.name, one.values["vector"]) for one in answered if one.error is None]
    if not kept:
        raise DataError("no input could be read")
    names, found = [name for name, _ in kept], np.stack([vector for _, vector in kept])
    try:
        if path.suffix.lower() == ".npz":
            content: dict[str, Any] = {"input": np.array(names), "vector": found}
            write_whole(path, lambda file: np.savez(file, **content))
        else:
            predictions.write(path, {"input": names, "vector": list(found)})
    except OSError as error:
        raise DataError(f"--output: {path} cannot be written: {error.strerror or error}") from error


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
