"""Recordings of one length: the window in which a label is heard."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source, Tensors, stored_label
from pipelines.serving.output import WARNING
from pipelines.task.contract import Cheap, PreparedForm, Requests, Splits
from pipelines.task.results import Judgement
from pipelines.task.units import Units
from speech.data import audio, pretrained, whisper_tokens
from speech.data.features import rounded, without_offset
from speech.data.recordings import facts_of, waveform
from speech.data.splits import load_classified, load_numbers, sounds_as_they_are
from speech.metrics import sound_figures
from speech.models import kernel
from speech.models.yamnet import is_yamnet
from speech.settings import SoundClassification, SoundRegression
from speech.tasks.recordings import PreparedRecordingsForm, Recordings, SoundFiles, part_name, silent

CHEAP = "kernel machine on cepstral statistics"
PICTURES = 12  # recordings of the report that are shown as spectrograms
SHORTEST = 0.1  # s; of a shorter recording little can be said, unless the window is short, too
SLIVER = 0.1  # of a piece that is left of a recording: it is not answered by itself
LONGER = 1.5  # times the window from which too much of a recording is ignored


def keyword_of(experiment: SoundClassification, classes: Sequence[str]) -> str | None:
    """evaluate.keyword. Raises ConfigError where it is none of the classes."""
    keyword = experiment.evaluate.keyword
    if keyword is not None and keyword not in classes:
        raise ConfigError(f"evaluate.keyword: the data have no class {keyword!r}; there are {listed(classes, 'and')}"
                          f"{did_you_mean(keyword, classes)}")
    return keyword


class Windows(Recordings):
    """The loudest `data.seconds` of each recording. Facts: `classes`, `mean`, `std`, `speakers` of train (see speech.data.splits)."""

    experiment: SoundClassification | SoundRegression

    def __init__(self, task: Any):
        super().__init__(task)
        data = self.experiment.data
        self.window = max(self.front_end.hop, round(data.seconds * data.rate))
        silence = getattr(self.experiment.model, "silence", None)
        self.silence = round((self.front_end.silence if silence is None else silence) * data.rate)  # behind the window
        self.frames = int(self.front_end.frames(tf.constant(self.window + self.silence)))
        if self.encoder_facts:
            pretrained.check_frames(self.encoder_facts, self.frames)

    def splits(self) -> Splits:
        if isinstance(self.experiment, SoundRegression):
            splits = load_numbers(self.experiment, self.decode, self.front_end, self.facts)
        elif self.experiment.untrained:
            splits = sounds_as_they_are(self.experiment, self.facts.get("classes"))
        else:
            splits = load_classified(self.experiment, self.decode, self.front_end, judging=bool(self.facts))
            keyword_of(self.experiment, self.facts.get("classes") or splits.facts["classes"])
        augment = self.experiment.augment
        if augment.copies:
            from speech.data.augment import with_copies

            splits = replace(splits, train=with_copies(splits.train, augment, self.experiment.data.rate, self.experiment.train.seed))
        return self.with_noise_note(self.with_encoder(splits))

    def with_encoder(self, splits: Splits) -> Splits:
        splits = super().with_encoder(splits)
        heard = None if is_yamnet(self.encoder_facts) else "loudness"
        pool = self.facts.get("pool") if self.facts else heard  # a run stays as it was begun
        splits = replace(splits, facts={**splits.facts, "pool": pool}) if self.encoder_facts and pool else splits
        model = self.experiment.model
        language = getattr(model, "names", None)
        if language is None:
            return splits
        names = self.facts["names"] if self.facts else whisper_tokens.names(model.preset, language, splits.facts["classes"])
        return replace(splits, facts={**splits.facts, "names": names})

    @cached_property
    def requests(self) -> Requests:
        return WindowFiles(self)

    @cached_property
    def prepared_form(self) -> PreparedForm:
        return PreparedWindows(self)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One recording to the model's window, int16 [window]."""
        samples = to_window(raw["samples"][None], raw["length"][None], self.window)[0]
        own = {TARGET: raw[TARGET]} if TARGET in raw else stored_label(raw)
        return {"samples": samples, **own}

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[tf.Tensor, Tensors]:
        """Features [batch, frames, width] float32, normalised; and `changes`, of times in the window."""
        return self.features(tf.cast(examples["samples"], tf.float32) / 32768.0, keys), self.changes(keys, self.window)

    def features(self, waveforms: tf.Tensor, keys: tf.Tensor | None = None) -> tf.Tensor:
        """Waveforms [batch, window] to the model's input, augmented where there are keys."""
        lengths = tf.fill(tf.shape(waveforms)[:1], self.window)
        if keys is not None and self.augmenter.on_waveforms:
            waveforms, _ = self.augmenter.waveforms(waveforms, lengths, keys, window=True)
        waveforms, lengths = tf.pad(waveforms, [[0, 0], [0, self.silence]]), lengths + self.silence
        return tf.ensure_shape(self.normalized(waveforms, lengths, keys), [None, self.frames, self.front_end.width])

    @property
    def cheap(self) -> Cheap:
        mels = self.experiment.frontend.mels if self.experiment.frontend.kind == "mfcc" else None  # of coefficients, the bands behind them

        def describe(features: tf.Tensor) -> tf.Tensor:
            return kernel.cepstral_statistics(self._decibels(features), mels)

        width = int(self._decibels(tf.zeros([1, self.frames, self.front_end.width])).shape[-1])
        return Cheap(CHEAP, describe, kernel.blocks(width, mels))

    def _decibels(self, features: tf.Tensor) -> tf.Tensor:
        return self.front_end.decibels(features, *(tf.constant(self.facts[name], tf.float32) for name in ("mean", "std")))

    def units(self, source: Source) -> Units:
        return sound_figures.units(source, facts_of(source).speakers, self.facts.get("speakers") or [], self.experiment.data.group_by)

    def heard_note(self, source: Source) -> list[str]:
        """What the report says of speakers that were heard in training."""
        note = sound_figures.speakers_in_train(facts_of(source).speakers, self.facts.get("speakers") or [])
        return [note] if note else []

    def draw(self, judgement: Judgement, source: Source, numbers: Sequence[int], captions: Sequence[Sequence[str]], title: str) -> None:
        """Spectrograms, as the model has them."""
        some = numbers[:PICTURES]
        if not some:
            return
        waves = tf.stack([to_window(*_batch(waveform(source, number)), self.window)[0] for number in some])
        seen = self.front_end.bands(self.features(tf.cast(waves, tf.float32) / 32768.0)).numpy()
        named = [f"{', '.join(lines)}: {Path(source.name(number)).name}" for number, lines in zip(some, captions)]
        judgement.figures["worst_mistakes"] = sound_figures.spectrograms(
            [[one] for one in seen], named, ["model input"], hop=self.front_end.seconds, title=title)

    def receive(self, raw: Tensors) -> Tensors:
        """Waveforms [batch, samples] float32 and their lengths to int16 [batch, window]."""
        samples = tf.cast(rounded(raw["samples"]) * 32768.0, tf.int16)
        return {"samples": tf.ensure_shape(to_window(samples, raw["length"], self.window), [None, self.window]),
                WARNING: self._warnings(samples, raw["length"])}

    def _warnings(self, samples: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Why an answer means little, [batch] string: the recording is much longer than the window, very short, or silent."""
        rate, longest = self.experiment.data.rate, self.window * LONGER
        seconds = tf.strings.as_string(tf.cast(lengths, tf.float32) / rate, precision=1)
        part = tf.strings.join(["of ", seconds, f" s only the loudest {self.window / rate:.1f} s were heard"])
        warning = tf.where(tf.cast(lengths, tf.float32) > longest, part, "")
        milliseconds = tf.strings.as_string(1000 * lengths // rate)
        short = tf.strings.join(["lasts only ", milliseconds, " ms, of which little can be said"])
        warning = tf.where(lengths < self.shortest, short, warning)
        if "_silence_" in self.facts.get("classes", ()):
            return warning
        return tf.where(silent(samples, lengths), "silence: nothing is louder than -60 dB", warning)

    @property
    def shortest(self) -> int:
        """Samples below which an answer means little."""
        return max(1, min(round(SHORTEST * self.experiment.data.rate), self.window // 4))


class WindowFiles(SoundFiles):
    """A recording is answered as a whole."""

    input: Windows

    def typical(self) -> list[dict[str, Any]]:
        """Noise, shorter than the window, of its length, and longer."""
        draw = np.random.default_rng(0)
        return [{"samples": draw.uniform(-0.1, 0.1, count).astype(np.float32), "length": count}
                for count in (self.input.window // 2, self.input.window, 2 * self.input.window)]

    def read_part(self, path: Path, start: float, duration: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        data, piece = self.input.experiment.data, getattr(self.input.experiment.evaluate, "piece", None)
        if piece is not None:
            yield from self._pieces(path, start, duration, piece)
            return
        if duration is None and audio.header(path).seconds > self.longest:
            raise DataError(f"lasts over {self.longest:.0f} s; python -m speech.listen finds commands in long recordings")
        samples = audio.read(path, data.rate, channel=data.channel, start=start, duration=duration, longest=data.max_seconds)
        yield part_name(path, start, duration), {"samples": samples, "length": len(samples)}

    def _pieces(self, path: Path, start: float, duration: float | None, piece: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """One after the other, each named `file#t=start,end` in seconds; the last may be shorter."""
        data = self.input.experiment.data
        end = audio.header(path).seconds if duration is None else start + duration
        for number in range(max(1, math.ceil((end - start) / piece - SLIVER))):
            first = start + number * piece
            samples = audio.read(path, data.rate, channel=data.channel, start=first, duration=min(piece, end - first), longest=piece)
            yield f"{path}#t={first:.2f},{min(first + piece, end):.2f}", {"samples": samples, "length": len(samples)}


class PreparedWindows(PreparedRecordingsForm):
    """Copies are part of what is kept."""

    input: Windows

    @property
    def settings_not_in_data(self) -> tuple[str, ...]:
        copies = self.input.experiment.augment.copies  # which are drawn with train.seed
        return tuple(name for name in super().settings_not_in_data if not (copies and name == "train"))

    def from_prepared(self, splits: Splits) -> Splits:
        if isinstance(self.input.experiment, SoundClassification):
            keyword_of(self.input.experiment, self.input.facts.get("classes") or splits.facts["classes"])
        return super().from_prepared(splits)


def _batch(samples: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(samples[None]), tf.constant([len(samples)], tf.int32)


def to_window(samples: tf.Tensor, lengths: tf.Tensor, window: int) -> tf.Tensor:
    """Recordings as windows of one length: shorter ones centred in silence, the loudest part of longer ones. In graph.

    Args:
        samples: [batch, any] int16; what lies behind the lengths is ignored.
        lengths: [batch] int32.

    Returns:
        [batch, window] int16, less each recording's mean. The loudest part is found exactly, in whole numbers, so it is the same in any
        batch.
    """
    size = tf.shape(samples)[1]
    lengths = tf.minimum(lengths, size)
    samples = without_offset(samples, lengths)
    # energy of every stretch of `window` samples that lies within a recording
    energy = tf.cumsum(tf.square(tf.cast(samples, tf.int64)), axis=1)
    energy = tf.pad(energy, [[0, 0], [1, 0]])
    first = tf.maximum(size - window, 0) + 1
    stretches = energy[:, size - first + 1:] - energy[:, :first]
    inside = tf.range(first)[None] <= (lengths - window)[:, None]
    loudest = tf.argmax(tf.where(inside, stretches, tf.constant(-1, tf.int64)), axis=1, output_type=tf.int32)
    start = tf.where(lengths > window, loudest, -((window - lengths) // 2))
    where = start[:, None] + tf.range(window)[None]
    own = (where >= 0) & (where < lengths[:, None])
    windows = tf.gather(samples, tf.clip_by_value(where, 0, tf.maximum(size - 1, 0)), batch_dims=1)
    return tf.where(own, windows, tf.zeros([], tf.int16))
