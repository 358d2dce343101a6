"""Text per recording, by CTC: from samples to words, and how they are judged."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.lengths import Lengths, stacked
from pipelines.data.source import Source, Tensors
from pipelines.serving.output import WARNING
from pipelines.task import intervals
from pipelines.task.contract import Features, Splits
from pipelines.task.results import Baseline, Judgement, Metric
from speech.data import audio
from speech.data.facts import TranscriptFacts
from speech.data.features import rounded, without_offset
from speech.data.recordings import facts_of, pieces
from speech.data.splits import load_transcripts, merge_for
from speech.data.tokens import SPACE, Alphabet, normalized
from speech.metrics import baseline, sound_figures, word_errors
from speech.models import ctc, steps_of, stride_of, transcript_model
from speech.settings import Transcription
from speech.tasks.base import SpeechTask, part_name, silent

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

WORST = 20  # utterances aligned in the report
SHOWN, TIMED = 6, 16  # recordings in TensorBoard each epoch, and behind the real-time factor
BLANK = (
    "the decoder writes nothing but blanks. Usual causes: too few epochs or too low a learning rate (CTC begins with blanks and leaves "
    "them after some hundred steps), too high a learning rate (look at the gradient norm), transcripts that do not belong to their "
    "recordings, a wrong sample rate, recordings too short for their transcripts, or silent ones (quartet check looks for these)")


class TranscriptionTask(SpeechTask):
    """speech.transcription. Facts: `unit`, `tokens`, `most_tokens`, `mean`, `std`, `speakers` (see speech.data.splits.load_transcripts),
    and `merge` under a pretrained encoder."""

    hub_task = "automatic-speech-recognition"
    kept = TranscriptFacts
    watch = ("token_error_rate", "min")
    length = "length"
    usual_output = -1
    english = False  # whether numbers may be written in digits and said in English
    details = ("words", "starts", "ends")
    read_at_once = (4, 16)
    longest = 60.0
    gives = {
        "text": "the transcript",
        "confidence": "mean over time of the best token's probability; not calibrated",
        "words": "the words of the text, padded with empty ones",
        "starts": "when each word begins, s; -1 where there is none",
        "ends": "when each word ends, s; -1 where there is none",
    }
    experiment: Transcription

    @property
    def length_unit(self) -> int:  # type: ignore[override]
        """A quarter of a second: few different shapes, little padding."""
        return max(1, self.experiment.data.rate // 4)

    @property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.facts["unit"], tuple(self.facts["tokens"]))

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
                ) -> tuple[Any, Any]:
        """({"features" [batch, frames, width] float32, "frames" [batch] int32}, {"tokens", "token_count", "frames"})."""
        waveforms, lengths = tf.cast(examples["samples"], tf.float32) / 32768.0, examples["length"]
        if keys is not None and self.augmenter.on_waveforms:
            waveforms, lengths = self.augmenter.waveforms(waveforms, lengths, keys, window=False)
        features = tf.ensure_shape(self.normalized(waveforms, lengths, keys), [None, None, self.front_end.width])
        frames = self.front_end.frames(lengths)
        targets = {name: examples[name] for name in ("tokens", "token_count") if name in examples}
        return {"features": features, "frames": frames}, {**targets, "frames": frames}

    def model(self) -> keras.Model:
        return transcript_model(self.experiment.model, width=self.front_end.width, tokens=len(self.facts["tokens"]), facts=self.facts)

    def steps(self, frames: tf.Tensor) -> tf.Tensor:
        """Steps of the model's output for so many frames."""
        return steps_of(self.experiment.model, frames, self.front_end, self.merge)

    def moments(self, inputs: Any) -> tf.Tensor:
        return self.steps(inputs["frames"])

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """CTC loss in nats, [batch] float32; 0 for a recording with too few steps for its transcript."""
        return ctc.loss(tf.cast(outputs, tf.float32), self.steps(targets["frames"]), targets["tokens"], targets["token_count"])

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """Of greedy search: wrong tokens as a share of the reference's, and the share of recordings for which anything is written."""
        decoded, _, _ = ctc.greedy(tf.cast(outputs, tf.float32), self.steps(targets["frames"]))
        wrong = ctc.errors(decoded, targets["tokens"], targets["token_count"])
        return {"token_error_rate": wrong / tf.maximum(tf.cast(targets["token_count"], tf.float32), 1.0),
                "written_share": tf.cast(decoded[:, 0] > 0, tf.float32)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        """tokens [batch, steps] int32 from 1, padded with 0; the step at which each begins; confidence [batch] float32."""
        logits, steps = tf.cast(model(inputs), tf.float32), self.steps(inputs["frames"])
        tokens, at, confidence = ctc.greedy(logits, steps)
        settings = self.experiment.evaluate
        if settings.search == "beam":
            tokens = ctc.beam(logits, steps, settings.beam)
            at = ctc.aligned(logits, steps, tokens)
        return {"tokens": tokens, "at": at, "confidence": confidence}

    def targets(self, examples: Tensors) -> Tensors:
        return {name: examples[name] for name in ("length", "tokens", "token_count") if name in examples}

    def texts(self, tokens: np.ndarray) -> list[str]:
        """Decoded tokens [n, steps], from 1, as texts."""
        return [self.alphabet.text([number - 1 for number in row if number > 0]) for row in tokens.tolist()]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        mfcc = self.experiment.frontend.kind == "mfcc"

        def seen(source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return features(source, lambda inputs: baseline.statistics_by_part(
                self.front_end.bands(inputs["features"]), inputs["frames"], mfcc))

        return baseline.nearest(train, seen, self._transcripts)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return baseline.word_accuracy(self._transcripts(targets), self.texts(answers["tokens"]))

    def _transcripts(self, targets: dict[str, np.ndarray]) -> list[str]:
        """Transcripts as train's tokens write them."""
        return [self.alphabet.text(row[:count].tolist()) for row, count in zip(targets["tokens"], targets["token_count"])]

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings, known = self.experiment.evaluate, facts_of(source)
        references = [normalized(text, self.experiment.tokens) for text in known.texts or ()]
        hypotheses = self.texts(answers["tokens"])
        counted = word_errors.count(references, hypotheses)
        known_speakers = self.facts.get("speakers") or []
        units = sound_figures.units(source, known.speakers, known_speakers, self.experiment.data.group_by)
        named = [source.name(number) for number in range(len(references))]
        metrics = word_errors.metrics(counted, resamples=settings.bootstrap, units=units)
        metrics["normalized_wer"] = word_errors.normalized(known.texts or (), hypotheses, resamples=settings.bootstrap, units=units,
                                                           english=self.english)
        judgement = Judgement(metrics=metrics, notes=units.notes())
        judgement.predictions = {"recording": named, "said": references, "written": hypotheses, "words": counted.words,
                                 "errors": counted.errors, "confidence": answers["confidence"]}
        rate = self._token_errors(answers, targets, references)
        if rate is not None:
            judgement.metrics["token_error_rate"] = intervals.mean(rate, resamples=settings.bootstrap, units=units)
        judgement.tables["per_speaker"] = word_errors.per_speaker(counted, known.speakers)
        judgement.tables["per_word"] = word_errors.per_word(counted)
        worst = word_errors.worst(counted, min(settings.worst, WORST))
        judgement.tables["worst_utterances"] = [self._row(number, counted, source, answers) for number in worst]
        if worst:
            judgement.listings["worst_utterances"] = [
                (f"{row['recording']}: {row['wrong']} of {row['words_said']} words wrong, confidence {100 * row['confidence']:.0f} %",
                 f"{row['said']}\n{row['written']}") for row in judgement.tables["worst_utterances"]]
        judgement.tables = {name: rows for name, rows in judgement.tables.items() if rows}
        seconds = float(targets["length"].sum()) / self.experiment.data.rate
        errors = counted.table.sum(0)
        judgement.notes.append(f"{int(counted.words.sum()):,} words in {seconds:,.0f} s: {errors[1]:,} substituted, {errors[2]:,} deleted, "
                          f"{errors[3]:,} inserted; {settings.search} search.")
        note = sound_figures.speakers_in_train(known.speakers, known_speakers)
        if note:
            judgement.notes.append(note)
        if hypotheses and not any(hypotheses):
            judgement.notes.append(f"{BLANK[0].upper()}{BLANK[1:]}.")
        return judgement

    def _token_errors(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], references: list[str]) -> np.ndarray | None:
        """Token error rate of each recording, [n]; None where the targets are in another alphabet, as new data may be."""
        if "tokens" not in targets:
            return None
        tokens, counts = targets["tokens"], targets["token_count"]
        known = len(self.alphabet.tokens)
        texts = [self.alphabet.text(row[:count].tolist()) if row.max(initial=0) < known else None for row, count in zip(tokens, counts)]
        if sum(text == truth for text, truth in zip(texts, references)) < len(references) / 2:
            return None
        wrong = ctc.errors(tf.constant(answers["tokens"]), tf.constant(tokens), tf.constant(counts)).numpy()
        return wrong / np.maximum(counts, 1)

    def _row(self, number: int, counted: word_errors.Counted, source: Source, answers: dict[str, np.ndarray]) -> dict[str, Any]:
        first, second = word_errors.lines(counted.pairs[number])
        return {"recording": source.name(number), "words_said": int(counted.words[number]), "wrong": int(counted.errors[number]),
                "said": first, "written": second, "confidence": float(answers["confidence"][number])}

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Audio, spectrograms before and after augmentation, and each hypothesis under its reference.

        Texts each epoch; sounds and figures only now and then where epochs are short.
        """
        count = min(SHOWN, len(inputs["frames"]))
        lengths, said = examples["length"].numpy(), self._references(targets, count)
        before, _ = self.prepare({name: value[:count] for name, value in examples.items()})
        answers = self.answer(lambda batch: model(batch, training=False), before)
        written = self.texts(answers["tokens"].numpy())
        blocks = ["\n".join(word_errors.lines(word_errors.align(truth.split(), guess.split()))) for truth, guess in zip(said, written)]
        writer.text("predictions on train (said, written)", "```\n" + "\n\n".join(blocks) + "\n```", step)
        if not self.drawing.due():
            return
        pictures = [[self.front_end.bands(batch["features"][row]).numpy()[:int(batch["frames"][row])] for batch in (before, inputs)]
                    for row in range(count)]
        clips = [examples["samples"][row].numpy()[:lengths[row]] / np.float32(32768.0) for row in range(count)]
        with self.drawing:
            writer.audio("recordings", clips, self.experiment.data.rate, step, captions=said)
            hop = self.front_end.seconds
            writer.figure("features", sound_figures.spectrograms(pictures, said, ["as recorded", "after augmentation"], hop=hop), step)

    def _references(self, targets: Any, count: int) -> list[str]:
        tokens, counts = targets["tokens"].numpy(), targets["token_count"].numpy()
        return [self.alphabet.text(tokens[row][:counts[row]].tolist()) for row in range(count)]

    def remark(self, metrics: dict[str, float]) -> str | None:
        """The usual causes where every recording of an epoch, of validation or else of train, gets an empty transcript."""
        share = metrics.get("validation/written_share", metrics.get("train/written_share", 1.0))
        return BLANK if share == 0.0 else None

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """Adds the real-time factor: seconds of computing for a second of sound, front end and search included, on some recordings."""
        rows = [self.decode({name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()})
                for number in range(min(TIMED, len(source)))]
        spec = {name: tf.TensorSpec([None] if name == "samples" else value.shape, value.dtype) for name, value in rows[0].items()}
        batch = stacked(rows, spec, Lengths(self.length or "", self.length_unit))

        def transcribe(given: Tensors) -> Tensors:
            return self.respond(self.answer(lambda x: model(x, training=False), self.prepare(given)[0]))

        run = tf.function(transcribe, autograph=False)
        run(batch)  # traces
        began = perf_counter()
        run(batch)
        seconds = float(batch["length"].numpy().sum()) / self.experiment.data.rate
        judgement.metrics["real_time_factor"] = Metric((perf_counter() - began) / seconds, n=len(rows))

    def receive(self, raw: Tensors) -> Tensors:
        """Waveforms [batch, samples] float32 and their lengths to int16, zeros behind each."""
        lengths = tf.minimum(raw["length"], tf.shape(raw["samples"])[1])
        own = tf.range(tf.shape(raw["samples"])[1])[None] < lengths[:, None]
        samples = tf.cast(rounded(tf.where(own, raw["samples"], 0.0)) * 32768.0, tf.int16)
        return {"samples": without_offset(samples, lengths), "length": lengths,
                WARNING: tf.where(silent(samples, lengths), "silence: nothing is louder than -60 dB", "")}

    def read_part(self, path: Path, start: float, duration: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Long recordings come in pieces, each named `file#t=start,end` in seconds; at most data.max_seconds are in memory."""
        data, piece = self.experiment.data, self.experiment.evaluate.piece
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

    def respond(self, answers: Tensors) -> Tensors:
        """text [batch] string, confidence [batch], words [batch, most] string, starts and ends [batch, most] float32, s."""
        alphabet, tokens = self.alphabet, answers["tokens"]
        plain = [token.replace(SPACE, " ") if alphabet.unit == "subwords" else token for token in alphabet.tokens]
        strings = tf.gather(tf.constant(["", *plain]), tokens)
        is_blank = tf.gather(tf.constant([True, *(token == " " for token in alphabet.tokens)]), tokens)
        before = tf.pad(is_blank[:, :-1], [[0, 0], [1, 0]], constant_values=True)
        begins = tf.gather(tf.constant([False, *alphabet.begins_word()]), tokens) | (~is_blank & before)
        if alphabet.unit == "subwords":  # a lone SPACE begins the word that follows it
            lone = tf.gather(tf.constant([False, *(token == SPACE for token in alphabet.tokens)]), tokens)
            begins = (begins & ~lone) | (tf.pad(lone[:, :-1], [[0, 0], [1, 0]]) & ~lone & ~is_blank)
            is_blank = is_blank | lone
        number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)  # of the word, from 1
        most = tf.maximum(tf.reduce_max(number), 1)
        batch = tf.shape(tokens)[0]
        rows = tf.range(batch)[:, None] * (most + 1) + tf.where(is_blank, 0, number)
        second = stride_of(self.experiment.model, self.front_end, self.merge) * self.front_end.seconds
        at = tf.cast(answers["at"], tf.float32) * second

        def by_word(reduce: Any, values: tf.Tensor) -> tf.Tensor:
            reduced = reduce(tf.reshape(values, [-1]), tf.reshape(rows, [-1]), batch * (most + 1))
            return tf.reshape(reduced, [batch, most + 1])[:, 1:]

        there = by_word(tf.math.unsorted_segment_max, tf.where(is_blank, 0, 1)) > 0
        starts = tf.where(there, by_word(tf.math.unsorted_segment_min, at), -1.0)
        ends = tf.where(there, by_word(tf.math.unsorted_segment_max, at + second), -1.0)
        hit = (tf.where(is_blank, 0, number)[:, None] == tf.range(1, most + 1)[None, :, None])
        words = tf.strings.strip(tf.strings.reduce_join(tf.where(hit, strings[:, None], ""), axis=2))
        text = tf.strings.strip(tf.strings.reduce_join(words, axis=1, separator=" "))
        return {"text": text, "confidence": answers["confidence"], "words": words, "starts": starts, "ends": ends}


