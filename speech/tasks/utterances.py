"""Recordings of any length, as CTC and Whisper hear them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipelines.data.lengths import Lengths
from pipelines.data.source import Source, Tensors
from pipelines.serving.output import WARNING
from pipelines.task.contract import Requests, Splits
from pipelines.task.units import Units
from speech.data import audio
from speech.data.features import rounded, without_offset
from speech.data.recordings import facts_of, pieces
from speech.data.splits import load_transcripts, merge_for
from speech.metrics import sound_figures
from speech.models import steps_of, stride_of
from speech.settings import Transcription
from speech.tasks.recordings import Recordings, SoundFiles, part_name, silent


class Utterances(Recordings):
    """Facts: `mean`, `std`, `speakers` (see speech.data.splits.load_transcripts), and `merge` under a pretrained encoder."""

    experiment: Transcription

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        """To a quarter of a second: few different shapes, little padding."""
        return Lengths("length", max(1, self.experiment.data.rate // 4))

    @cached_property
    def requests(self) -> Requests:
        return UtteranceFiles(self)

    def splits(self) -> Splits:
        splits = load_transcripts(self.experiment, self.decode, self.front_end)
        merge = self.facts.get("merge") if self.facts else self._merge_for(splits)  # a run stays as it was begun
        return self.with_noise_note(self.with_encoder(replace(splits, facts={**splits.facts, "merge": merge}) if merge else splits))

    @property
    def merge(self) -> int:
        """Steps of a pretrained encoder that become one of the output."""
        return self.facts.get("merge") or 1

    def _merge_for(self, splits: Splits) -> int | None:
        """What the experiment says, else what train's recordings bear; None without a pretrained encoder under CTC."""
        settings = self.experiment.model
        if not hasattr(settings, "merge"):
            return None
        return settings.merge or merge_for(splits.train, lambda lengths, merge: steps_of(
            settings, self.front_end.frames(lengths), self.front_end, merge))

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One recording: samples int16 [length], length, tokens int32 [most_tokens] from 0, token_count."""
        samples = without_offset(raw["samples"][None, :raw["length"]], raw["length"][None])[0]
        return {"samples": samples, "length": raw["length"], **{name: raw[name] for name in ("tokens", "token_count") if name in raw}}

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Any, Tensors]:
        """{"features" [batch, frames, width] float32, "frames" [batch] int32}; the frames, which augmentation may change, and `changes`."""
        waveforms, lengths = self.waveforms(examples, keys)
        features = tf.ensure_shape(self.normalized(waveforms, lengths, keys), [None, None, self.front_end.width])
        frames = self.front_end.frames(lengths)
        return {"features": features, "frames": frames}, {"frames": frames, **self.changes(keys)}

    def waveforms(self, examples: Tensors, keys: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Waveforms [batch, samples] float32 and how many of each count, augmented where there are keys."""
        waveforms, lengths = tf.cast(examples["samples"], tf.float32) / 32768.0, examples["length"]
        if keys is not None and self.augmenter.on_waveforms:
            waveforms, lengths = self.augmenter.waveforms(waveforms, lengths, keys, window=False)
        return waveforms, lengths

    def steps(self, frames: tf.Tensor) -> tf.Tensor:
        """Steps of the model's output for so many frames."""
        return steps_of(self.experiment.model, frames, self.front_end, self.merge)

    @property
    def seconds(self) -> float:
        """Of one step of the model's output."""
        return stride_of(self.experiment.model, self.front_end, self.merge) * self.front_end.seconds

    def frame_counts(self, inputs: Any) -> tf.Tensor:
        return self.steps(inputs["frames"])

    def units(self, source: Source) -> Units:
        return sound_figures.units(source, facts_of(source).speakers, self.facts.get("speakers") or [], self.experiment.data.group_by)

    def receive(self, raw: Tensors) -> Tensors:
        """Waveforms [batch, samples] float32 and their lengths to int16, zeros behind each."""
        lengths = tf.minimum(raw["length"], tf.shape(raw["samples"])[1])
        own = tf.range(tf.shape(raw["samples"])[1])[None] < lengths[:, None]
        samples = tf.cast(rounded(tf.where(own, raw["samples"], 0.0)) * 32768.0, tf.int16)
        return {"samples": without_offset(samples, lengths), "length": lengths,
                WARNING: tf.where(silent(samples, lengths), "silence: nothing is louder than -60 dB", "")}


class UtteranceFiles(SoundFiles):
    """Long recordings come in pieces."""

    read_at_once = (4, 16)
    longest = 60.0
    input: Utterances

    def read_part(self, path: Path, start: float, duration: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Long recordings come in pieces, each named `file#t=start,end` in seconds; at most data.max_seconds are in memory."""
        data, piece = self.input.experiment.data, self.input.experiment.evaluate.piece
        longest, at = max(data.max_seconds, 3 * piece), start
        left = duration if duration is not None else audio.header(path).seconds - start
        while True:
            more = left > longest
            whole = audio.read(path, data.rate, channel=data.channel, start=at, duration=longest if more else duration and left,
                               longest=longest)
            parts = pieces(whole, data.rate, piece)
            for first, last in parts[:-1] if more else parts:  # the last is cut again together with what follows
                begin, end = at + first / data.rate, at + last / data.rate
                name = part_name(path, start, duration) if at == start and len(parts) == 1 else f"{path}#t={begin:.2f},{end:.2f}"
                yield name, {"samples": whole[first:last], "length": last - first}
            if not more:
                return
            at, left = at + parts[-1][0] / data.rate, left - parts[-1][0] / data.rate
