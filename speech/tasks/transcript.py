"""The output of transcription by CTC: text per recording, and how it is judged."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.lengths import stacked
from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.contract import Answers, Features, Learning, Output
from pipelines.task.results import Baseline, Judgement, Metric
from speech.data.recordings import facts_of
from speech.data.tokens import SPACE, Alphabet, normalized
from speech.metrics import baseline, sound_figures, word_errors
from speech.models import ctc
from speech.settings import Transcription
from speech.tasks.utterances import Utterances

if TYPE_CHECKING:
    pass

WORST = 20  # utterances aligned in the report
SHOWN, TIMED = 6, 16  # recordings in TensorBoard each epoch, and behind the real-time factor
BLANK = (
    "the decoder writes nothing but blanks. Usual causes: too few epochs or too low a learning rate (CTC begins with blanks and leaves "
    "them after some hundred steps), too high a learning rate (look at the gradient norm), transcripts that do not belong to their "
    "recordings, a wrong sample rate, recordings too short for their transcripts, or silent ones (quartet check looks for these)")


class Transcript(Output):
    """By CTC. Facts: `unit`, `tokens`, `most_tokens`."""

    watch = ("token_error_rate", "min")
    learning = Learning(blank=-1)
    english = False  # whether numbers may be written in digits and said in English
    answers = Answers({
        "text": "the transcript",
        "confidence": "mean over time of the best token's probability; not calibrated",
        "words": "the words of the text, padded with empty ones",
        "starts": "when each word begins, s; -1 where there is none",
        "ends": "when each word ends, s; -1 where there is none",
    }, details=("words", "starts", "ends"))
    experiment: Transcription
    input: Utterances

    @property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.facts["unit"], tuple(self.facts["tokens"]))

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """{"tokens", "token_count"}, to learn from with the "frames" that are heard, to be judged with the "length" of the recording."""
        beside = {"length": examples["length"]} if changes is None else {name: changes[name] for name in changes if name != "times"}
        return {**{name: examples[name] for name in ("tokens", "token_count") if name in examples}, **beside}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """CTC loss in nats, [batch] float32; 0 for a recording with too few steps for its transcript."""
        return ctc.loss(tf.cast(outputs, tf.float32), self.input.steps(targets["frames"]), targets["tokens"], targets["token_count"])

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """Of greedy search: wrong tokens as a share of the reference's, and the share of recordings for which anything is written."""
        decoded, _, _ = ctc.greedy(tf.cast(outputs, tf.float32), self.input.steps(targets["frames"]))
        wrong = ctc.errors(decoded, targets["tokens"], targets["token_count"])
        return {"token_error_rate": wrong / tf.maximum(tf.cast(targets["token_count"], tf.float32), 1.0),
                "written_share": tf.cast(decoded[:, 0] > 0, tf.float32)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        """tokens [batch, steps] int32 from 1, padded with 0; the step at which each begins; confidence [batch] float32."""
        logits, steps = tf.cast(model(inputs), tf.float32), self.input.steps(inputs["frames"])
        tokens, at, confidence = ctc.greedy(logits, steps)
        settings = self.experiment.evaluate
        if settings.search == "beam":
            tokens = ctc.beam(logits, steps, settings.beam)
            at = ctc.aligned(logits, steps, tokens)
        return {"tokens": tokens, "at": at, "confidence": confidence}

    def texts(self, tokens: np.ndarray) -> list[str]:
        """Decoded tokens [n, steps], from 1, as texts."""
        return [self.alphabet.text([number - 1 for number in row if number > 0]) for row in tokens.tolist()]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        mfcc = self.experiment.frontend.kind == "mfcc"

        def seen(source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return features(source, lambda inputs: baseline.statistics_by_part(
                self.input.front_end.bands(inputs["features"]), inputs["frames"], mfcc))

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
        known_speakers, units = self.facts.get("speakers") or [], self.input.units(source)
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

    def remark(self, metrics: dict[str, float]) -> str | None:
        """The usual causes where every recording of an epoch, of validation or else of train, gets an empty transcript."""
        share = metrics.get("validation/written_share", metrics.get("train/written_share", 1.0))
        return BLANK if share == 0.0 else None

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """Adds the real-time factor: seconds of computing for a second of sound, front end and search included, on some recordings."""
        rows = [self.input.decode({name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()})
                for number in range(min(TIMED, len(source)))]
        spec = {name: tf.TensorSpec([None] if name == "samples" else value.shape, value.dtype) for name, value in rows[0].items()}
        batch = stacked(rows, spec, self.input.lengths)

        def transcribe(given: Tensors) -> Tensors:
            return self.respond(self.answer(lambda x: model(x, training=False), self.task.prepare(given)[0]))

        run = tf.function(transcribe, autograph=False)
        run(batch)  # traces
        began = perf_counter()
        run(batch)
        seconds = float(batch["length"].numpy().sum()) / self.experiment.data.rate
        judgement.metrics["real_time_factor"] = Metric((perf_counter() - began) / seconds, n=len(rows))

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
        second = self.input.seconds
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
