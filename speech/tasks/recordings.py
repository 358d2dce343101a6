"""The input of every task on recordings: from waveforms to features, and recordings as they arrive."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.data.source import Source, Tensors
from pipelines.serving.output import WARNING
from pipelines.task.contract import Decoding, Input, PreparedForm, Read, Requests, Signature, Splits
from pipelines.task.form import Field
from speech.data import audio, pretrained, yamnet
from speech.data.augment import Augmenter
from speech.data.features import FrontEnd, without_offset
from speech.data.manifests import BadRow, find_recordings
from speech.data.recordings import PreparedRecordings, facts_of
from speech.settings import Kernel, SoundClassification, SoundRegression, Transcription, Yamnet

ENCODER = ("backbone", "converter", "encoder")  # the facts of a pretrained encoder
SILENT = round(32768 * audio.SILENT)  # peak, of 16 bits, below which nothing is audible: -60 dB


class Recordings(Input):
    """Holds the front end and the augmentation. Facts: `mean`, `std` of the features of train."""

    decoding = Decoding("source")
    experiment: SoundClassification | SoundRegression | Transcription
    encoder_facts: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, task: Any):
        super().__init__(task)
        rate = self.experiment.data.rate
        self.augmenter = Augmenter(self.experiment.augment, rate)
        self.front_end = self._front_end(rate)

    def _front_end(self, rate: int) -> FrontEnd:
        """The experiment's, or that of a pretrained encoder, whose facts are read from its preset where there are none yet."""
        if not self.experiment.own_front_end:
            return FrontEnd(self.experiment.frontend, rate)
        if self.facts and (missing := next((name for name in ENCODER if self.facts.get(name) is None), None)):
            raise ConfigError(f"facts of the run: {missing}: field required; the file is damaged, or belongs to another experiment")
        model, augment = self.experiment.model, self.experiment.augment
        self.encoder_facts = {name: self.facts[name] for name in ENCODER} if self.facts else self._learned(model)
        front_end = pretrained.front_end(self.encoder_facts, rate)
        banded = next((name for name in ("warp", "frequency_masks") if getattr(augment, name)), None)
        if banded and not len(front_end.centres):
            raise ConfigError(f"augment.{banded}: changes bands of frequency, and the encoder of model.preset hears the waveform itself; "
                              "leave it out (speed and noise are for such encoders, too)")
        return front_end

    def _learned(self, model: Any) -> dict[str, Any]:
        """The facts of a pretrained encoder, by its preset. Raises ConfigError where the model cannot have it."""
        if isinstance(model, Kernel | Yamnet):
            return yamnet.learn(model.preset)
        return pretrained.learn(model.preset, whole=getattr(model, "own_decoder", False), words=isinstance(self.experiment, Transcription))

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        rate = self.experiment.data.rate
        meanings = {
            "samples": f"recordings at {rate:,} Hz, of one channel (mono), full scale -1 to 1; the shorter padded at the end with anything",
            "length": "samples of each recording",
            WARNING: "why the answer means little, such as silence; empty where nothing is wrong",
        }
        return Signature(meanings, {"samples": f"tf.random.uniform([1, {rate}], -1, 1)  # a second", "length": f"tf.constant([{rate}])"})

    @cached_property
    def prepared_form(self) -> PreparedForm:
        return PreparedRecordingsForm(self)

    def changes(self, keys: tf.Tensor | None, window: int | None = None) -> Tensors:
        """What augmentation does to times in recordings: {"times": [batch, 2]}, as Augmenter.times has it; {} where it does nothing."""
        moves = keys is not None and bool(self.experiment.augment.speed or self.experiment.augment.shift)
        return {"times": self.augmenter.times(keys, window)} if moves else {}

    def features_error(self) -> str | None:
        """Why the facts do not belong to this front end; None where they do."""
        width = self.front_end.width
        wrong = next((name for name in ("mean", "std") if len(self.facts[name]) != width), None)
        return f"{wrong}: {len(self.facts[wrong])} numbers for {width} bands of the features" if wrong else None

    def with_noise_note(self, splits: Splits) -> Splits:
        """The splits, with a note on the noise, which is read now where a training begins. Raises DataError as read_noise."""
        noises = None if self.facts else self.augmenter.noises  # a finished run needs none
        return replace(splits, notes=(*splits.notes, noises.note)) if noises and noises.note else splits

    def with_encoder(self, splits: Splits) -> Splits:
        """The splits, with the facts of a pretrained encoder."""
        return replace(splits, facts={**splits.facts, **self.encoder_facts})

    def normalized(self, waveforms: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor | None = None) -> tf.Tensor:
        """Waveforms [batch, samples] float32 to the model's input [batch, frames, width] float32, masked where there are keys."""
        mean, std = (tf.constant(self.facts[name], tf.float32) for name in ("mean", "std"))
        features = self.front_end(waveforms, lengths)
        if keys is not None:
            features = self.augmenter.warped(features, keys, tf.constant(self.front_end.centres, tf.float32))
        features = self.front_end.normalized(features, lengths, mean, std)
        if keys is None:
            return features
        return self.augmenter.features(features, self.front_end.frames(lengths), keys, self.front_end.seconds)

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"samples": tf.TensorSpec([None, None], tf.float32), "length": tf.TensorSpec([None], tf.int32)}


class SoundFiles(Requests):
    """The bytes of sound files."""

    takes_files = True
    decodes_uploads = True
    sends = 'the bytes of a sound file; in JSON {"b64": "..."}'
    longest: ClassVar[float] = 600.0  # s; of a recording in one request
    input: Recordings

    def read(self, inputs: list[str]) -> Iterator[Read]:
        for part in find_recordings(inputs, self.input.experiment.data):
            if isinstance(part, BadRow):
                yield part.where, DataError(part.why)
                continue
            try:
                yield from self.read_part(*part)
            except DataError as error:
                path, start, duration = part
                yield part_name(path, start, duration), error

    @abstractmethod
    def read_part(self, path: Path, start: float, duration: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """A recording, or the part of it from `start` for `duration` (s; None: to its end), as named raw examples. Raises DataError."""

    def take(self, sent: Any) -> dict[str, Any]:
        if not isinstance(sent, bytes):
            raise DataError('send the bytes of a sound file; in JSON as {"b64": "..."}')
        data = self.input.experiment.data
        if audio.header(sent).seconds > self.longest:
            raise DataError(f"lasts over {self.longest:.0f} s; send it in parts")
        samples = audio.read(sent, data.rate, channel=data.channel, longest=data.max_seconds)
        return {"samples": samples, "length": len(samples)}

    def slow_upload(self, sent: bytes) -> bool:
        return audio.is_long(sent)

    def form(self) -> list[Field]:
        return [Field("sound")]

    def sample(self) -> dict[str, Any]:
        """A second of silence."""
        return {"samples": np.zeros(self.input.experiment.data.rate, np.float32), "length": self.input.experiment.data.rate}


class PreparedRecordingsForm(PreparedForm):
    """Recordings with what is known of each."""

    def extras(self, source: Source) -> dict[str, list[str]]:
        known = facts_of(source)
        every = {name: getattr(known, name) for name in ("names", "files", "labels", "texts", "speakers")}
        return {name: [str(one).encode("utf-8", "backslashreplace").decode() for one in values]
                for name, values in every.items() if values is not None}

    def from_prepared(self, splits: Splits) -> Splits:
        sources: dict[str, Any] = {name: PreparedRecordings(source) for name in ("train", "validation", "test")
                                   if (source := getattr(splits, name)) is not None}
        return replace(splits, **sources)


def silent(samples: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Whether recordings are silent, int16 [batch, samples] with int32 [batch]: [batch] bool; in graph."""
    return tf.reduce_max(tf.abs(tf.cast(without_offset(samples, lengths), tf.int32)), axis=1) < SILENT


def part_name(path: object, start: float, duration: float | None) -> str:
    """The name of a part of a recording: `file#t=start,end` in seconds, or the file where it is the whole."""
    if not start and duration is None:
        return str(path)
    return f"{path}#t={start:g}" + (f",{start + duration:g}" if duration else "")
