"""One label per recording: from samples to probabilities, and how they are judged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.source import Source, Tensors
from pipelines.encoders import blend
from pipelines.fitting import kernel
from pipelines.reports import classification, classifier
from pipelines.reports.baselines import kernel_baseline
from pipelines.serving.output import WARNING
from pipelines.task.contract import Condensed, Features, Splits
from pipelines.task.intervals import resampled_by_counts
from pipelines.task.results import Baseline, Judgement
from pipelines.task.single_label import SingleLabel
from pipelines.task.units import Units
from speech.data import audio, pretrained, whisper_tokens
from speech.data.facts import CommandFacts
from speech.data.features import rounded, without_offset
from speech.data.recordings import facts_of, waveform
from speech.data.splits import load_commands
from speech.metrics import detection, sound_figures
from speech.models import command_model
from speech.models import kernel as cepstra
from speech.settings import Commands, Kernel, PretrainedCommands
from speech.tasks.base import SpeechTask, part_name, silent

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

CHEAP = "kernel machine on cepstral statistics"
PICTURES = 12  # mistakes shown as spectrograms
WHOLE = 64  # classes up to which each is the keyword once, and all probabilities are kept
SHORTEST = 0.1  # s; of a shorter recording little can be said, unless the window is short, too
LONGER = 1.5  # times the window from which too much of a recording is ignored
SHOWN = 6  # recordings in TensorBoard each epoch


class CommandTask(SpeechTask, SingleLabel):
    """speech.commands. Facts: `classes`, `class_counts`, `mean`, `std`, `speakers` of train (see speech.data.splits)."""

    hub_task = "audio-classification"
    kept = CommandFacts
    gives = SingleLabel.answers
    experiment: Commands

    def __init__(self, experiment: Commands, facts: dict[str, Any] | None = None):
        super().__init__(experiment, facts)
        self.window = max(self.front_end.hop, round(experiment.data.seconds * experiment.data.rate))
        silence = getattr(experiment.model, "silence", None)
        self.silence = round((self.front_end.silence if silence is None else silence) * experiment.data.rate)  # behind the window
        self.frames = int(self.front_end.frames(tf.constant(self.window + self.silence)))
        if self.encoder_facts:
            pretrained.check_frames(self.encoder_facts, self.frames)

    def splits(self) -> Splits:
        splits = load_commands(self.experiment, self.decode, self.front_end, judging=bool(self.facts))
        self._chosen(self.facts.get("classes") or splits.facts["classes"])
        augment = self.experiment.augment
        if augment.copies:
            from speech.data.augment import with_copies

            splits = replace(splits, train=with_copies(splits.train, augment, self.experiment.data.rate, self.experiment.train.seed))
        return self.with_noise_note(self.with_encoder(splits))

    def with_encoder(self, splits: Splits) -> Splits:
        splits = super().with_encoder(splits)
        pool = self.facts.get("pool") if self.facts else "loudness"  # a run stays as it was begun
        splits = replace(splits, facts={**splits.facts, "pool": pool}) if self.encoder_facts and pool else splits
        model = self.experiment.model
        language = getattr(model, "names", None)
        if language is None:
            return splits
        names = self.facts["names"] if self.facts else whisper_tokens.names(model.preset, language, splits.facts["classes"])
        return replace(splits, facts={**splits.facts, "names": names})

    def unfit(self) -> str | None:
        names = self.facts.get("names")
        if self.experiment.model.name == "pretrained" and (names is not None) != (self.experiment.model.names is not None):
            return "names: field required" if names is None else "names: the experiment has no model.names"
        if names is not None:
            settings = self.encoder_facts["backbone"]["config"]
            if len(names["first"]) != len(self.facts["classes"]) or len(names["prompt"]) > settings.get("max_decoder_sequence_length", 0):
                return f"names: they do not belong to {len(self.facts['classes'])} classes, or to this encoder"
            if max(*names["prompt"], *names["first"]) >= settings.get("vocabulary_size", 0):
                return "names: the decoder has no such tokens"
        if getattr(self.experiment.model, "fitted", False) and not self.facts.get("class_counts"):
            return "class_counts: field required"
        return super().unfit()

    @property
    def no_matter(self) -> tuple[str, ...]:  # type: ignore[override]
        copies = self.experiment.augment.copies  # which are drawn with train.seed
        return tuple(name for name in super().no_matter if not (copies and name == "train"))

    def restored(self, splits: Splits) -> Splits:
        self._chosen(self.facts.get("classes") or splits.facts["classes"])
        return super().restored(splits)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One recording to the model's window, int16 [window]."""
        samples = to_window(raw["samples"][None], raw["length"][None], self.window)[0]
        return {"samples": samples, **({"label": tf.cast(raw["label"], tf.int32)} if "label" in raw else {})}

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[tf.Tensor, Any]:
        """Features [batch, frames, width] float32, normalised; labels [batch] int32."""
        waveforms = tf.cast(examples["samples"], tf.float32) / 32768.0
        return self.features(waveforms, keys), examples.get("label")

    def features(self, waveforms: tf.Tensor, keys: tf.Tensor | None = None) -> tf.Tensor:
        """Waveforms [batch, window] to the model's input, augmented where there are keys."""
        lengths = tf.fill(tf.shape(waveforms)[:1], self.window)
        if keys is not None and self.augmenter.on_waveforms:
            waveforms, _ = self.augmenter.waveforms(waveforms, lengths, keys, window=True)
        waveforms, lengths = tf.pad(waveforms, [[0, 0], [0, self.silence]]), lengths + self.silence
        return tf.ensure_shape(self.normalized(waveforms, lengths, keys), [None, self.frames, self.front_end.width])

    def model(self) -> keras.Model:
        return command_model(self.experiment.model, frames=self.frames, width=self.front_end.width, classes=len(self.classes),
                             facts=self.facts, describe=self._statistics)

    def _statistics(self, features: tf.Tensor) -> tf.Tensor:
        """The model's input as [batch, values]: what the cheap baseline, and the model `kernel`, know of a recording; in graph."""
        return cepstra.cepstral_statistics(self._decibels(features), self._mels)

    def _decibels(self, features: tf.Tensor) -> tf.Tensor:
        return self.front_end.decibels(features, *(tf.constant(self.facts[name], tf.float32) for name in ("mean", "std")))

    @property
    def _mels(self) -> int | None:
        """Where features are coefficients, of how many bands."""
        return self.experiment.frontend.mels if self.experiment.frontend.kind == "mfcc" else None

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        seed, settings = self.experiment.train.seed, self.experiment.model
        if isinstance(settings, PretrainedCommands) and settings.fitted:
            return blend.fit_model(self, model, train, features, self._statistics, blocks=self._blocks, seed=seed)
        if not isinstance(settings, Kernel):
            return None
        how = kernel.fit_model(model, train, features, self._statistics, blocks=self._blocks, seed=seed)
        return f"{CHEAP}: {how}."

    @property
    def _blocks(self) -> list[int]:
        return cepstra.blocks(int(self._decibels(tf.zeros([1, self.frames, self.front_end.width])).shape[-1]), self._mels)

    @property
    def _columns(self) -> list[int]:
        """Classes whose probabilities are kept for every recording: all where they are few, else the keyword's."""
        if len(self.classes) <= WHOLE:
            return list(range(len(self.classes)))
        chosen = self._chosen(self.classes)
        return [] if chosen is None else [self.classes.index(chosen)]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        if isinstance(self.experiment.model, Kernel):
            return None
        return kernel_baseline(CHEAP, train, features, self._statistics, len(self.classes), blocks=self._blocks)

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return classification.condensed(answers["probabilities"], targets["label"], self._columns), targets

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings = self.experiment.evaluate
        answered = classification.of_condensed(answers, targets["label"], self.classes, self._columns)
        known = facts_of(source)
        heard = self.facts.get("speakers") or []
        units = sound_figures.units(source, known.speakers, heard, self.experiment.data.group_by)
        judgement = classifier.judgement(answered, settings, units, source.name)
        judgement.tables["per_speaker"] = sound_figures.accuracy_by_speaker(answered.hits, known.speakers)
        note = sound_figures.speakers_in_train(known.speakers, heard)
        if note:
            judgement.notes.append(note)
        self._keyword(judgement, answered, units)
        worst = classification.worst_mistakes(answered, min(settings.worst, PICTURES))
        if worst:
            waves = tf.stack([to_window(*_batch(waveform(source, mistake.number)), self.window)[0] for mistake in worst])
            seen = self.front_end.bands(self.features(tf.cast(waves, tf.float32) / 32768.0)).numpy()
            captions = [f"{self.classes[m.predicted]} {m.confidence:.0%}, is {self.classes[m.true]}: {Path(source.name(m.number)).name}"
                        for m in worst]
            judgement.figures["worst_mistakes"] = sound_figures.spectrograms(
                [[one] for one in seen], captions, ["model input"], hop=self.front_end.seconds,
                title="Worst mistakes: predicted, and true class")
        judgement.tables = {name: rows for name, rows in judgement.tables.items() if rows or name != "per_speaker"}
        return judgement

    def _chosen(self, classes: list[str]) -> str | None:
        """evaluate.keyword. Raises ConfigError where it is none of the classes."""
        keyword = self.experiment.evaluate.keyword
        if keyword is not None and keyword not in classes:
            raise ConfigError(f"evaluate.keyword: the data have no class {keyword!r}; there are {listed(classes, 'and')}"
                              f"{did_you_mean(keyword, classes)}")
        return keyword

    def _keyword(self, judgement: Judgement, answered: classification.Classified, units: Units) -> None:
        """The DET curve of one class, such as a keyword, and each class's equal error rate."""
        if not answered.columns:
            judgement.notes.append(f"No DET curve: with more than {WHOLE} classes it is drawn only for evaluate.keyword.")
        scores = answered.columns
        present = [number for number in scores if 0 < np.sum(answered.labels == number) < len(answered.labels)]
        if not present:
            return
        rates = {number: detection.equal_error_rate(scores[number], answered.labels == number) for number in present}
        chosen = self._chosen(self.classes)
        sure = {number: float(scores[number][answered.labels == number].mean()) for number in present}
        hardest = sorted(present, key=lambda number: (-rates[number], sure[number]))
        main = self.classes.index(chosen) if chosen is not None else hardest[0]
        shown = [number for number in dict.fromkeys([main, *hardest]) if number in rates][:4]
        curves = {f"{self.classes[number]}, EER {100 * rates[number]:.1f} %":
                  detection.det_curve(scores[number], answered.labels == number)[1:] for number in shown}
        judgement.figures["det"] = detection.figure(curves)
        hits = answered.labels == main

        if main not in rates:
            return

        def rate(counts: np.ndarray) -> np.ndarray:
            return detection.equal_error_rates(scores[main], hits, counts)

        resamples = min(200, self.experiment.evaluate.bootstrap)
        judgement.metrics["class_eer"] = resampled_by_counts(rate, len(hits), resamples=resamples, width=6, units=units)
        judgement.tables["detection"] = [{"class": self.classes[number], "eer": rates[number]} for number in hardest]
        judgement.notes.append(f"The first DET curve, and class_eer, are of the class {self.classes[main]!r}" + (
            " (evaluate.keyword)." if chosen else ", the hardest to tell from all others; evaluate.keyword chooses another."))

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Audio, spectrograms before and after augmentation, and the model's answers; only now and then where epochs are short."""
        if not self.drawing.due():
            return
        names = [self.classes[int(label)] for label in targets.numpy()[:SHOWN]]
        waves = examples["samples"][:SHOWN].numpy() / np.float32(32768.0)
        before = self.features(tf.constant(waves))
        shares = self.answer(lambda batch: model(batch, training=False), before)["probabilities"].numpy()
        captions = [f"{name}; answered {self.classes[int(share.argmax())]} {share.max():.0%}" for name, share in zip(names, shares)]
        pairs = [[first, second] for first, second in zip(*(self.front_end.bands(batch).numpy() for batch in (before, inputs)))]
        hop = self.front_end.seconds
        with self.drawing:
            writer.audio("recordings", waves, self.experiment.data.rate, step, captions=captions)
            writer.figure("features", sound_figures.spectrograms(pairs, captions, ["as recorded", "after augmentation"], hop=hop), step)

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
        if "_silence_" in self.classes:
            return warning
        return tf.where(silent(samples, lengths), "silence: nothing is louder than -60 dB", warning)

    @property
    def shortest(self) -> int:
        """Samples below which an answer means little."""
        return max(1, min(round(SHORTEST * self.experiment.data.rate), self.window // 4))

    def typical(self) -> list[dict[str, Any]]:
        """Noise, shorter than the window, of its length, and longer."""
        draw = np.random.default_rng(0)
        return [{"samples": draw.uniform(-0.1, 0.1, count).astype(np.float32), "length": count}
                for count in (self.window // 2, self.window, 2 * self.window)]

    def read_part(self, path: Path, start: float, duration: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        data = self.experiment.data
        if duration is None and audio.header(path).seconds > self.longest:
            raise DataError(f"lasts over {self.longest:.0f} s; python -m speech.listen finds commands in long recordings")
        samples = audio.read(path, data.rate, channel=data.channel, start=start, duration=duration, longest=data.max_seconds)
        yield part_name(path, start, duration), {"samples": samples, "length": len(samples)}


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
