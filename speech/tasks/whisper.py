"""Text per recording, by Whisper whole: used as it is, or trained further. See speech.tasks.transcript for what is alike."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.outputs.tokens import behind
from pipelines.task.contract import Answers, Features, Requests, Splits
from pipelines.task.results import Baseline
from speech.data import pretrained
from speech.data.splits import load_transcripts
from speech.data.tokens import normalized
from speech.data.whisper_tokens import WhisperAlphabet, WhisperTokens, learn
from speech.tasks.transcript import Transcript
from speech.tasks.utterances import UtteranceFiles, Utterances

TOKENS = ("tokens", "merges", "marks")  # the facts of the tokenizer
STAMP = 0.02  # s from one token of time to the next
PHRASES = {
    "phrases": "the parts of the text between time stamps, padded with empty ones",
    "starts": "when each phrase begins, s; -1 where there is none",
    "ends": "when each phrase ends, s; -1 where there is none, or where none was written",
}


class WhisperUtterances(Utterances):
    """Whole windows of 30 s. Facts: also those of the tokenizer, `tokens`, `merges` and `marks` (see speech.data.whisper_tokens)."""

    @cached_property
    def requests(self) -> Requests:
        return WhisperFiles(self)

    @cached_property
    def window(self) -> int:
        """Samples that the encoder takes."""
        return pretrained.most_frames(self.encoder_facts) * self.front_end.hop

    def splits(self) -> Splits:
        model = self.experiment.model
        known = {name: self.facts[name] for name in TOKENS} if self.facts else learn(model.preset, model.language, model.times)
        splits = load_transcripts(self.experiment, self.decode, self.front_end, encoder=WhisperTokens(known),
                                  longest=self.window / self.experiment.data.rate)
        splits.facts.update(known, unit="pieces")
        return self.with_noise_note(self.with_encoder(splits))

    def features_error(self) -> str | None:
        missing = next((name for name in TOKENS if self.facts.get(name) is None), None)
        if missing:
            return f"{missing}: field required"
        size, marks = self.encoder_facts["backbone"]["config"].get("vocabulary_size"), self.facts["marks"]
        if len(self.facts["tokens"]) != size:
            return f"tokens: {len(self.facts['tokens']):,}, and the decoder writes {size}"
        numbers = [*marks["prompt"], *marks["languages"], *marks["suppressed"], *marks["suppressed_first"], marks["end"],
                   marks.get("times") or 0]
        if not max(numbers) < size or (-1 in marks["prompt"]) != bool(marks["languages"]):
            return f"marks: they do not belong to {size:,} tokens"
        return super().features_error()

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Any, Tensors]:
        """{"features" [batch, frames, mels] of whole windows, "frames", "tokens" where transcripts are}."""
        waveforms, lengths = self.waveforms(examples, keys)
        heard, silence = lengths, self.experiment.model.silence
        size = tf.maximum(-(-tf.shape(waveforms)[1] // self.window), 1) * self.window
        if silence is not None:  # of a recording of one window; longer ones are heard window by window
            heard = tf.where(lengths < self.window, tf.minimum(lengths + round(silence * self.experiment.data.rate), self.window), lengths)
            size = tf.where(tf.reduce_max(heard) <= self.window, tf.reduce_max(heard), size)
        own = tf.range(size)[None] < lengths[:, None]
        whole = tf.where(own, tf.pad(waveforms, [[0, 0], [0, tf.maximum(size - tf.shape(waveforms)[1], 0)]])[:, :size], 0.0)
        features = self.normalized(whole, tf.fill(tf.shape(lengths), size), keys)  # silence, too, has features
        inputs = {"features": tf.ensure_shape(features, [None, None, self.front_end.width]), "frames": self.front_end.frames(heard)}
        if "tokens" in examples:
            prompt = tf.constant(self.prompt)
            inputs["tokens"] = tf.concat([tf.tile(prompt[None], [tf.shape(features)[0], 1]), examples["tokens"]], 1)
        return inputs, {}

    @property
    def prompt(self) -> list[int]:
        """As trained with: of a language that is recognised, the first one."""
        marks = self.facts["marks"]
        return [marks["languages"][0] if number < 0 else number for number in marks["prompt"]]


class WhisperFiles(UtteranceFiles):
    """Each costs as much as 30 s."""

    read_at_once = (4, 4)


class WhisperTranscript(Transcript):
    """Written token by token by Whisper's own decoder."""

    input: WhisperUtterances
    _written: tuple[dict[str, Any], WhisperAlphabet] | None = None

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        phrases = PHRASES if self.experiment.model.times else {}
        return Answers({"text": "the transcript", "confidence": "mean probability of the written tokens; not calibrated", **phrases},
                       details=tuple(phrases))

    @property
    def english(self) -> bool:  # type: ignore[override]
        return self.experiment.model.language == "en" or not (self.experiment.model.language or self.facts["marks"]["languages"])

    @property
    def alphabet(self) -> WhisperAlphabet:
        """Built once for the same facts."""
        if self._written is None or self._written[0] is not self.facts:
            self._written = self.facts, WhisperAlphabet.of(self.facts["tokens"])
        return self._written[1]

    def _behind(self, outputs: tf.Tensor, targets: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Logits behind the prompt and each token, the tokens that stand there, and which of them count: [batch, most + 1, ...]."""
        return behind(outputs[:, len(self.input.prompt) - 1:], targets["tokens"], targets["token_count"], self.facts["marks"]["end"])

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """Cross-entropy in nats, the mean over each recording's tokens, [batch] float32."""
        logits, truth, own = self._behind(outputs, targets)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, tf.cast(logits, tf.float32))
        return tf.reduce_sum(losses * own, 1) / tf.reduce_sum(own, 1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """Share of the tokens that are not the most probable ones behind those before them in the transcript."""
        logits, truth, own = self._behind(outputs, targets)
        wrong = tf.cast(tf.argmax(logits, -1, tf.int32) != truth, tf.float32)
        return {"token_error_rate": tf.reduce_sum(wrong * own, 1) / tf.reduce_sum(own, 1)}

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """tokens [batch, most] int32 from 1, 0 where there is none; confidence [batch] float32."""
        return dict(model({name: inputs[name] for name in ("features", "frames")}))

    def texts(self, tokens: np.ndarray) -> list[str]:
        """Written tokens [n, most], from 1, as texts that are compared with transcripts."""
        return [normalized(text, self.experiment.tokens) for text in super().texts(tokens)]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if self.experiment.untrained else super().baseline(train, features)

    def _token_errors(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], references: list[str]) -> np.ndarray | None:
        return None if self.experiment.model.times else super()._token_errors(answers, targets, references)  # transcripts have no stamps

    def respond(self, answers: Tensors) -> Tensors:
        """text [batch] string, confidence [batch] float32; with model.times also phrases, starts and ends [batch, most], s."""
        tokens = answers["tokens"]
        written = tf.gather(tf.constant([b"", *self.alphabet.pieces]), tokens)
        found = {"text": _joined(written), "confidence": answers["confidence"]}
        first = self.facts["marks"].get("times")
        if first is None:
            return found
        stamp = tokens > first
        seconds = tf.cast(answers["at"], tf.float32) * self.input.front_end.seconds + tf.cast(tokens - 1 - first, tf.float32) * STAMP
        spoken = (tokens > 0) & ~stamp
        begins, ends = stamp & tf.pad(spoken[:, 1:], [[0, 0], [0, 1]]), stamp & tf.pad(spoken[:, :-1], [[0, 0], [1, 0]])
        phrase = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
        hit = phrase[:, None] == tf.range(1, tf.maximum(tf.reduce_max(phrase), 1) + 1)[:, None]

        def at(stamps: tf.Tensor) -> tf.Tensor:
            return tf.reduce_max(tf.where(hit & stamps[:, None], seconds[:, None], -1.0), 2)

        return {**found, "phrases": _joined(tf.where(hit & spoken[:, None], written[:, None], b"")), "starts": at(begins), "ends": at(ends)}


def _joined(written: tf.Tensor) -> tf.Tensor:
    """What tokens write, joined over the last axis, as text."""
    text = tf.strings.unicode_transcode(tf.strings.reduce_join(written, axis=-1), "UTF-8", "UTF-8", errors="ignore")
    return tf.strings.strip(text)
