"""speech.verification: whether two recordings are of one voice."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source, Tensors
from pipelines.data.split import choose
from pipelines.serving.output import WARNING
from pipelines.task import intervals
from pipelines.task.contract import Answers, Condensed, Features, Output, Requests, SetScores, Signature, Splits
from pipelines.task.form import Field
from pipelines.task.results import Baseline, Judgement
from speech.data.facts import VoiceFacts
from speech.data.recordings import facts_of
from speech.data.voices import load_voices
from speech.metrics import voices as voice_metrics
from speech.models import voices
from speech.settings import VOICE_MODELS, Plda, SpeakerVerification
from speech.tasks.classification import WindowTask
from speech.tasks.windows import WindowFiles, Windows

SOUNDS = ("sound", "other")  # of a request
OTHER = "other_"  # before the names of what belongs to the second recording
VECTOR = "vector"
STEEPEST = 1.0 - 1e-6  # cosine, beyond which an angle has no slope


class VoiceWindows(Windows):
    """A recording; to be answered, two."""

    experiment: SpeakerVerification  # type: ignore[assignment]

    def splits(self) -> Splits:
        return self.with_noise_note(load_voices(self.experiment, self.decode, self.front_end, self.facts.get("voices")))

    @cached_property
    def requests(self) -> Requests:
        return TwoFiles(self)

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        one = super().signature
        return replace(one, meanings={**one.meanings, f"{OTHER}samples": "the recordings with which these are compared, as `samples`",
                                      f"{OTHER}length": "samples of each of these"},
                       examples={**one.examples, **{OTHER + name: example for name, example in one.examples.items()}})

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        one = super().raw_spec()
        return {**one, **{OTHER + name: spec for name, spec in one.items()}}

    def receive(self, raw: Tensors) -> Tensors:
        """As `Windows.receive`, of both recordings: {"samples", "other_samples"}, int16 [batch, window] each; a warning is of either."""
        first, second = (super(VoiceWindows, self).receive({name: raw[before + name] for name in ("samples", "length")})
                         for before in ("", OTHER))
        warning = tf.where(first[WARNING] == "", tf.where(second[WARNING] == "", "", tf.strings.join(["the other: ", second[WARNING]])),
                           first[WARNING])
        return {"samples": first["samples"], f"{OTHER}samples": second["samples"], WARNING: warning}

    def _warnings(self, samples: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Also that a recording is much shorter than the joined ones of train, whose scores say more."""
        found, join, rate = super()._warnings(samples, lengths), self.experiment.data.join, self.experiment.data.rate
        if join is None:
            return found
        seconds = tf.strings.as_string(tf.cast(lengths, tf.float32) / rate, precision=1)
        short = tf.strings.join(["lasts only ", seconds, f" s, and the model learned from {join:g} s (data.join)"])
        return tf.where((found == "") & (lengths < round(join * rate / 2)), short, found)

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Any, Tensors]:
        """As `Windows.prepare`; of two recordings {"first", "second"}."""
        inputs, changes = super().prepare(examples, keys=keys, seed=seed, epoch=epoch)
        if f"{OTHER}samples" not in examples:
            return inputs, changes
        second, _ = super().prepare({"samples": examples[f"{OTHER}samples"]})
        return {"first": inputs, "second": second}, changes


class TwoFiles(WindowFiles):
    """Two sound files. `predict` compares the first recording that it is given with each of the others; an input may also be JSON that
    holds both, as a client sends them."""

    decodes_uploads = True
    sends = 'two sound files; in JSON {"sound": {"b64": "..."}, "other": {"b64": "..."}}'
    input: VoiceWindows

    def read(self, inputs: list[str]) -> Iterator[Any]:
        known: tuple[str, dict[str, Any]] | None = None
        sent = [text for text in inputs if text.lstrip().startswith("{")]
        yield from Requests.read(self, sent)
        files, compared = [text for text in inputs if text not in sent], False
        for name, one, *_ in super().read(files):
            if known is not None:
                compared = True
                yield name, one if isinstance(one, Exception) else _pair(known[1], one)
            elif isinstance(one, Exception):
                raise DataError(f"{name}: {one}; the first recording is the voice with which the others are compared")
            else:
                known = (name, one)
                self.notes.append(f"Compared with {name}")
        if files and not compared:
            raise DataError("give two recordings or more: the first is compared with each of the others")

    def take(self, sent: Any) -> dict[str, Any]:
        if not isinstance(sent, dict) or set(sent) != set(SOUNDS):
            raise DataError(f"send {self.sends}")
        return _pair(*(self._one(name, sent[name]) for name in SOUNDS))

    def _one(self, name: str, sent: Any) -> dict[str, Any]:
        try:
            return super().take(sent)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None

    def form(self) -> list[Field]:
        return [Field("sound", "sound", "a voice"), Field("sound", "other", "the same voice, or another?")]

    def sample(self) -> dict[str, Any]:
        return _pair(super().sample(), super().sample())

    def typical(self) -> list[dict[str, Any]]:
        each = super().typical()
        return [_pair(one, other) for one, other in zip(each, each[1:] + each[:1])]


def _pair(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **{OTHER + name: value for name, value in other.items()}}


class Voices(Output):
    """Outputs of the model are vectors [batch, width + 1] float32 as speech.models.voices has them, of a network {"vector", "cosines"};
    targets are the numbers of voices, {"label"} [batch] int64, of which train has the first. Facts: `voices`, and `calibration`, chosen
    on validation."""

    watch = ("eer", "min")
    answers = Answers({"score": "log-odds that both recordings are of one voice, where one and two were as likely before",
                       "probability": "the same as a probability", "same": "whether it is more than a half"})
    experiment: SpeakerVerification
    input: VoiceWindows

    @property
    def width(self) -> int:
        """Voices of train, which a model that is fitted at once tells apart."""
        return len(self.facts["voices"])

    def name_of(self, target: Any) -> str:
        """The voice of that number."""
        return self.facts["voices"][int(target)] if int(target) < self.width else "another voice"

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {"label": examples["label"]} if "label" in examples else {}

    def loss(self, outputs: Any, targets: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropy of the voice among those of train, in nats, with a margin when training; (loss, 1), or (0, 0) of other voices
        and of models that no step trains."""
        if not isinstance(outputs, dict):
            nothing = tf.zeros(tf.shape(outputs)[:1])
            return nothing, nothing
        settings, cosines = self.experiment.loss, tf.cast(outputs["cosines"], tf.float32)
        known = tf.cast(targets < self.width, tf.float32)
        own = tf.one_hot(targets, self.width)
        if training:
            angles = tf.acos(tf.clip_by_value(cosines, -STEEPEST, STEEPEST))
            cosines = tf.where(own > 0, tf.cos(tf.minimum(angles + settings.margin, np.pi)), cosines)
        losses = tf.nn.softmax_cross_entropy_with_logits(own, settings.scale * cosines)
        return losses * known, known

    def scores(self, outputs: Any, targets: tf.Tensor) -> Tensors:
        return {}

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """{"vector": [batch, width + 1]}; of two recordings [batch, 2, width + 1]."""
        if isinstance(inputs, dict):
            return {VECTOR: tf.stack([_vector(model(inputs[name])) for name in ("first", "second")], 1)}
        return {VECTOR: _vector(model(inputs))}

    def respond(self, answers: Tensors) -> Tensors:
        """score, probability [batch] float32, same [batch] bool."""
        first, second = answers[VECTOR][:, 0], answers[VECTOR][:, 1]
        scale, offset = self._line
        score = scale * (tf.reduce_sum(first[:, :-1] * second[:, :-1], 1) + first[:, -1] + second[:, -1]) + offset
        return {"score": score, "probability": tf.sigmoid(score), "same": score > 0.0}

    @property
    def _line(self) -> tuple[float, float]:
        scale, offset = self.facts.get("calibration") or (1.0, 0.0)
        return scale, offset

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return answers, targets

    @property
    def set_scores(self) -> SetScores:
        """The equal error rate of all pairs."""
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            return {"eer": voice_metrics.eer(self._pairs(answers, targets, self._some(len(targets["label"]))))}

        return SetScores({"eer": "min"}, compute)

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        """A model that is fitted at once is calibrated by folds of train, which hold more voices out than validation has."""
        pairs = self._pairs(answers, targets, self._some(len(targets["label"])), (1.0, 0.0))
        if isinstance(self.experiment.model, Plda) or not pairs.both:
            return {}
        scale, offset, _ = voices.calibration(pairs.scores, pairs.same)
        return {"calibration": [scale, offset]} if scale > 0 else {}

    def _some(self, count: int) -> np.ndarray:
        """The recordings whose pairs are judged."""
        most = self.experiment.evaluate.recordings
        return np.arange(count) if count <= most else choose(most, count=count, seed=self.experiment.data.split_seed, purpose="pairs")

    def _scores(self, vectors: np.ndarray, line: tuple[float, float] | None = None) -> np.ndarray:
        scale, offset = line or self._line
        return scale * voices.scores(vectors, vectors) + offset

    def _pairs(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], some: np.ndarray,
               line: tuple[float, float] | None = None) -> voice_metrics.Pairs:
        return voice_metrics.Pairs.of(self._scores(answers[VECTOR][some], line), targets["label"][some])

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings, some = self.experiment.evaluate, self._some(len(targets["label"]))
        units, names = self.input.units(source), [source.name(int(number)) for number in some]
        pairs, labels = self._pairs(answers, targets, some), targets["label"][some]
        speakers = list(facts_of(source).of(some).speakers or ())
        nearest, found = voice_metrics.found_voice(self._scores(answers[VECTOR][some]), labels)
        there = np.flatnonzero(np.isfinite(found))
        judgement = Judgement(units=units, notes=[*units.notes(), *self.input.heard_note(source)], predictions={
            "example": names, "voice": speakers, "most alike": [names[number] for number in nearest],
            "its voice": [speakers[number] for number in nearest]})
        if len(some) < len(source):
            judgement.notes.append(f"Of {len(source):,} recordings the pairs of {len(some):,} are judged (evaluate.recordings).")
        if len(there):
            judgement.metrics["found_voice"] = intervals.mean(found[there], resamples=settings.bootstrap, units=units.pick(some[there]))
            judgement.notes.append("found_voice: the recording that is most alike is of the same voice.")
        if not pairs.both:
            judgement.notes.append("There are no pairs of one voice, or none of two, so nothing is said of their errors.")
            return judgement
        judgement.metrics = {**pairs.metrics(settings.same_share, settings.bootstrap, units.pick(some)), **judgement.metrics}
        judgement.notes.append(f"Judged by all {len(pairs.scores):,} pairs of {len(some):,} recordings of {len(set(speakers)):,} voices, "
                               f"{int(pairs.same.sum()):,} of one voice. min_dcf is for a use in which {settings.same_share:.0%} are.")
        if self.facts.get("calibration") is None and not isinstance(self.experiment.model, Plda):
            judgement.notes.append("From what score on two voices are one is not known: that is chosen on validation; set data.validation: "
                                   "0.1.")
        judgement.figures |= {"det": voice_metrics.det(pairs), "scores": voice_metrics.histogram(pairs)}
        judgement.tables["per_voice"] = self._by_voice(pairs, labels, speakers, found)
        judgement.tables["worst_mistakes"] = [
            {"example": names[pairs.first[place]], "other": names[pairs.second[place]], "score": float(pairs.scores[place]),
             "is": "one voice" if pairs.same[place] else "two voices"} for place in pairs.worst(settings.worst)]
        return judgement

    def _by_voice(self, pairs: voice_metrics.Pairs, labels: np.ndarray, speakers: list[str], found: np.ndarray) -> list[dict[str, Any]]:
        """A row for each voice, the worst first: of the pairs in which it is, the equal error rate."""
        rows = []
        for voice in sorted(set(speakers)):
            label = labels[speakers.index(voice)]
            part = (labels[pairs.first] == label) | (labels[pairs.second] == label)
            own = voice_metrics.Pairs(pairs.first[part], pairs.second[part], pairs.scores[part], pairs.same[part], pairs.recordings)
            right = found[labels == label]
            rows.append({"voice": voice, "recordings": len(right), "eer": voice_metrics.eer(own) if own.both else None,
                         "found_voice": float(np.mean(right)) if np.isfinite(right).all() else None})
        return sorted(rows, key=lambda row: (-(row["eer"] if row["eer"] is not None else -1.0), row["voice"]))

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """Whether the most alike recording is of the same voice; NaN for those whose pairs are not judged."""
        found, some = np.full(len(targets["label"]), np.nan), self._some(len(targets["label"]))
        found[some] = voice_metrics.found_voice(self._scores(answers[VECTOR][some]), targets["label"][some])[1]
        return found

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        """Beside a network plda, beside plda the cosine of what it hears."""
        cheap, itself = self.input.cheap, isinstance(self.experiment.model, Plda)
        fitted = voices.fit_source(train, features, cheap.describe, voices.cosine if itself else voices.fit)
        layer = voices.TwoCovariances(name="baseline")
        layer.build([None, len(fitted.mean)])
        layer.put(fitted)
        return Baseline(f"{'cosine' if itself else 'linear discriminant analysis'} of cepstral statistics", answer=lambda inputs: {
            VECTOR: layer(cheap.describe(tf.cast(inputs, tf.float32)))})


def _vector(outputs: Any) -> tf.Tensor:
    return tf.cast(outputs[VECTOR] if isinstance(outputs, dict) else outputs, tf.float32)


class Verification(WindowTask):
    """speech.verification. Facts: those of `Windows`, `voices` and `calibration`."""

    input_class = VoiceWindows
    output_class = Voices
    facts_schema = VoiceFacts
    input: VoiceWindows
    output: Voices
    experiment: SpeakerVerification

    def model(self) -> keras.Model:
        given: dict[str, Any] = {"frames": self.input.frames, "width": self.input.front_end.width, "describe": self.input.cheap.describe}
        if isinstance(self.experiment.model, Plda):
            return VOICE_MODELS.build(self.experiment.model, **given)
        network = VOICE_MODELS.build(self.experiment.model, classes=self.experiment.loss.width, facts=self.facts, **given)
        return voices.with_voices(network, self.output.width)

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        if not isinstance(self.experiment.model, Plda):
            return None
        fitted = voices.fit_source(train, features, self.input.cheap.describe, voices.fit)
        model.get_layer("voices").put(fitted)
        return f"Linear discriminant analysis of {len(self.facts['voices'])} voices on cepstral statistics: {fitted.how}."

    def facts_error(self) -> str | None:
        return self.input.features_error()

    def written(self, answers: Tensors) -> list[str]:
        return [""] * int(answers[VECTOR].shape[0])
