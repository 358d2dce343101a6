"""How the inputs of a task are decoded, and its answers worded, without TensorFlow: a decoder for each task that has one.

The decoding itself is in files of `decoders`, which import nothing of this project: an export has a copy beside the model. They have
`decode(settings, given) -> the model's input [1, ...]`, of a path or a text, and may have `words(settings, answers)`.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from extensions.convert.decoders import images, recordings, texts
from pipelines.outputs.classes import Classes
from pipelines.task.contract import Task

QUIET = 0.01  # of full scale: recordings of less than that from peak to peak may be warned of as silence


class Decoder:
    """Of a task that needs Quartet to decode its inputs.

    Attributes:
        file: decodes them by itself; None: `why` it cannot.
        settings: of the file, JSON, with `needs`, packages to install.
    """

    file: Path | None = None
    why = "decoding its inputs needs Quartet"

    def __init__(self, task: Task):
        self.task: Any = task
        self.settings: dict[str, Any] = {}

    def decode(self, row: dict[str, Any]) -> np.ndarray | None:
        """The model's input [1, ...] of one raw example, as `receive` and `prepare` give it, to rounding.

        None: they are needed, as they know more, or warn of something.
        """
        return None

    def word(self, answers: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """As `Output.respond`, of arrays, which costs one small answer less; None: only `respond` knows."""
        return self._label(answers["probabilities"]) if type(self.task.output).respond is Classes.respond else None

    def _label(self, shares: np.ndarray) -> dict[str, np.ndarray]:
        label = np.array([self.task.output.classes[best].encode() for best in shares.argmax(-1)], object)
        return {"label": label, "confidence": shares.max(-1), "probabilities": shares}


class ImageDecoder(Decoder):
    """Of vision.classification."""

    file = Path(images.__file__)

    def __init__(self, task: Task):
        super().__init__(task)
        self.settings = {"needs": images.NEEDS, "image_size": self.task.input.image_size, "channels": self.task.facts["channels"],
                         "resize": self.task.experiment.data.resize}

    def decode(self, row: dict[str, Any]) -> np.ndarray | None:
        return images.decode(self.settings, io.BytesIO(row["image"])) if self.task.input.is_simple(row) else None


class RecordingDecoder(Decoder):
    """Of speech.classification."""

    why = "only log-mel features are computed with numpy alone"

    def __init__(self, task: Task):
        super().__init__(task)
        experiment, front = self.task.experiment, self.task.input.front_end
        settings = experiment.frontend
        if self.task.input.encoder_facts or settings.kind != "log_mel":
            return
        self.file = Path(recordings.__file__)
        self.settings = {
            "needs": recordings.NEEDS, "rate": front.rate, "channel": experiment.data.channel, "window": self.task.input.window,
            "silence": self.task.input.silence, "fft": front.fft, "hop": front.hop, "frame": front.window, "mels": settings.mels,
            "low": settings.low, "high": settings.high or front.rate / 2, "top_db": settings.top_db, "normalize": settings.normalize}
        self._whole = {**self.settings, "facts": self.task.facts}

    def decode(self, row: dict[str, Any]) -> np.ndarray | None:
        """Not of what may be silence, is longer than the window, or very short: the task may warn of these."""
        samples = np.asarray(row["samples"], np.float32)[:int(row["length"])]
        if self.file is None or not self.task.input.shortest <= len(samples) <= self.task.input.window or np.ptp(samples) < QUIET:
            return None
        return recordings.features(self._whole, samples)


class TextDecoder(Decoder):
    """Of nlp.classification."""

    why = "only hashed n-grams and whole words are cut with Python alone"

    def __init__(self, task: Task):
        super().__init__(task)
        experiment = self.task.experiment
        self.many = experiment.data.labels == "many"
        if experiment.own_tokens or experiment.cutting.name not in ("hashed", "words"):
            return
        self.file = Path(texts.__file__)
        self.settings = {"needs": texts.NEEDS, **experiment.cutting.model_dump(mode="json"), "many": self.many,
                         "outside": self.task.output.outside if experiment.reject else None}
        self._whole = {**self.settings, "facts": self.task.facts}
        self._nothing = set(texts.decode(self._whole, "")[0].tolist())

    def decode(self, row: dict[str, Any]) -> np.ndarray | None:
        """Not of letters that Python's Unicode tables may have otherwise than TensorFlow's, nor of what is warned of as unknown."""
        text = row["text"].decode("utf-8", "replace")
        if self.file is None or not (text.isascii() and text.isprintable()):
            return None
        ids = texts.decode(self._whole, text)
        return None if self._nothing.issuperset(ids[0].tolist()) else ids

    def word(self, answers: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        if self.many:
            return None
        response = self._label(answers["probabilities"])
        threshold = self.task.facts.get("threshold") if self.task.experiment.reject else None
        if threshold is not None:
            response["label"][response["confidence"] < np.float32(threshold)] = self.task.output.outside.encode()
        return response


DECODERS: dict[str, type[Decoder]] = {
    "vision.classification": ImageDecoder, "speech.classification": RecordingDecoder, "nlp.classification": TextDecoder}


def decoder_of(task: Task) -> Decoder:
    """The decoder of a task."""
    return DECODERS.get(task.experiment.task, Decoder)(task)
