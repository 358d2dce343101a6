"""nlp.tagging: things named in a text, such as persons and places, each a span of its characters with a type."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.data.facts import TagFacts
from nlp.data.tags import SPANS, load_tags
from nlp.metrics import entities, span_dictionary, span_judging
from nlp.models import crf, tagger
from nlp.settings import TextTagging
from nlp.tasks.places import PlaceTask
from nlp.tasks.texts import Texts, unpacked
from nlp.tokens.base import PAD
from nlp.tokens.offsets import in_characters, placed_tokens
from nlp.tokens.shapes import shapes
from pipelines.data.lengths import Lengths
from pipelines.data.source import Source, Tensors
from pipelines.outputs.of_classes import OfClasses
from pipelines.task import intervals
from pipelines.task.contract import Answers, Condensed, Features, Splits
from pipelines.task.results import Baseline, Judgement

COUNT = "entities"  # the entry that counts the spans of an example


class TaggedTexts(Texts):
    """Inputs of the model are [batch, time, 2] int32, tokens and how their words are written. Examples have `starts` and `ends`,
    [batch, time] int32, between which characters the word of each token lies, and `spans` [batch, n, 3] int32."""

    experiment: TextTagging  # type: ignore[assignment]
    offsets = True

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        return Lengths("length", most=self.experiment.limit, others={SPANS: COUNT})

    def splits(self) -> Splits:
        return load_tags(self.experiment, self.facts)

    def receive(self, raw: Tensors) -> Tensors:
        """As Texts; the texts pass by, as answers have parts of them."""
        return {**super().receive(raw), "text": raw["text"]}

    def _cut(self, raw: Tensors) -> Tensors:
        texts = raw["text"]
        ids, starts, ends = placed_tokens(self.tokenizer, texts, self.experiment.limit)
        padded = self._padded(ids)
        tokens = tf.stack([padded["tokens"], shapes(texts, starts, ends).to_tensor()], -1)
        _, places = in_characters(texts, starts, ends)
        return {"tokens": tokens, "length": padded["length"], **dict(zip(("starts", "ends"), places))}

    def _others(self, raw: Tensors) -> Tensors:
        """Spans as numbers, with their count."""
        rest = super()._others(raw)
        if SPANS not in rest:
            return rest
        numbers, count = unpacked(rest.pop(SPANS), 3)
        return {**rest, SPANS: numbers, COUNT: count}

    def _warnings(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return super()._warnings(texts, ids[..., 0])


class Tags(OfClasses):
    """Facts: `classes`, the types, and `class_counts`; settings: `loss` is a TagLoss.

    Outputs of the model are logits of the tags of nlp.metrics.entities, [batch, time, tags], with model.chain as `logits` beside
    `transitions`; targets are `spans` [batch, n, 3] int32, and `starts` and `ends`, [batch, time] int32 each.
    """

    watch = ("entity_f1", "max")
    answers = Answers(
        {"labels": "type of each thing that was found, in their order in the text", "texts": "the characters of each",
         "starts": "the first character of each, from 0, in the text as it was sent", "ends": "the character behind the last of each",
         "scores": "mean probability of the words of each, 0 to 1", "count": "how many there are"},
        ranked=("labels", "texts", "starts", "ends", "scores"), beside=("starts", "ends"))
    experiment: TextTagging

    @property
    def width(self) -> int:
        """Tags that are told apart."""
        return 1 + 2 * len(self.classes)

    # ---- learning

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name: examples[name] for name in (SPANS, "starts", "ends")} if SPANS in examples else {}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropy of the words, and their number; with model.chain of the sequences, which count as their words do."""
        if self.experiment.model.chain:
            return self._chain_loss(outputs, targets)
        logits = tf.cast(outputs, tf.float32)
        tags = entities.tags_of(targets[SPANS], targets["starts"], targets["ends"])
        counted = tf.cast(tags != entities.IGNORED, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(tags, 0), logits)
        smooth = self.experiment.loss.label_smoothing if training else 0.0
        if smooth:
            losses = (1.0 - smooth) * losses + smooth * (tf.reduce_logsumexp(logits, -1) - tf.reduce_mean(logits, -1))
        return tf.reduce_sum(losses * counted, 1), tf.reduce_sum(counted, 1)

    def _chain_loss(self, outputs: Tensors, targets: Any) -> tuple[tf.Tensor, tf.Tensor]:
        logits, transitions = (tf.cast(outputs[name], tf.float32) for name in ("logits", "transitions"))
        places = targets["starts"], targets["ends"]
        there, tags, logits = entities.words_first(*places, entities.tags_of(targets[SPANS], *places), logits)
        whole, own = crf.log_partition(logits, transitions, there), crf.score(logits, transitions, tf.maximum(tags, 0), there)
        return tf.where(tf.reduce_any(there, 1), whole - own, 0.0), tf.reduce_sum(tf.cast(there, tf.float32), 1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """entity_f1: of each example the spans found rightly, found and true."""
        given = self._found(self._tagged(outputs), targets)
        return {"entity_f1": entities.counts(given[SPANS], targets[SPANS])}

    @property
    def statistics(self) -> Mapping[str, intervals.Statistic]:
        return {"entity_f1": span_judging.f1}

    # ---- answers

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """The most probable tag of each token, [batch, time] int32, and its probability, float32; 0 where there is padding. With
        model.chain `logits` [batch, time, tags] and `transitions` [batch, tags, tags]: which tokens begin words is known later."""
        there = inputs[..., 0] != PAD
        given = self._tagged(model(inputs))
        return given if self.experiment.model.chain else {
            name: tf.where(there, value, tf.zeros([], value.dtype)) for name, value in given.items()}

    def _tagged(self, outputs: Any) -> Tensors:
        if self.experiment.model.chain:
            return {name: tf.cast(value, tf.float32) for name, value in outputs.items()}
        chances = tf.nn.softmax(tf.cast(outputs, tf.float32))
        return {"tags": tf.argmax(chances, -1, tf.int32), "chances": tf.reduce_max(chances, -1)}

    def _found(self, answers: Any, places: Any) -> Tensors:
        """The spans that answers say, as nlp.metrics.entities.found."""
        starts, ends = (tf.convert_to_tensor(places[name]) for name in ("starts", "ends"))
        if not self.experiment.model.chain:
            return entities.found(tf.convert_to_tensor(answers["tags"]), tf.convert_to_tensor(answers["chances"]), starts, ends)
        there, logits, *places = entities.words_first(starts, ends, answers["logits"], starts, ends)
        tags, chances = crf.decode(logits, tf.convert_to_tensor(answers["transitions"]), there)
        return entities.found(tags, chances, *(tf.where(there, place, 0) for place in places))

    def respond(self, answers: Tensors) -> Tensors:
        """labels and texts [batch, most] string, starts and ends [batch, most] int32, scores [batch, most] float32, and count [batch]
        int32; 0 and empty behind the last."""
        given = self._found(answers, answers)
        count = tf.reduce_sum(tf.cast(given[SPANS][..., 1] > 0, tf.int32), 1)
        most = tf.maximum(tf.reduce_max(count), 1)
        spans, scores = given[SPANS][:, :most], given["scores"][:, :most]
        starts, ends, kinds = tf.unstack(spans, axis=-1)
        there = ends > 0
        texts = tf.fill(tf.shape(starts), "")
        if "text" in answers:
            seen = tf.strings.substr(answers["text"], tf.zeros_like(count), tf.reduce_max(ends, 1), unit="UTF8_CHAR")
            texts = tf.strings.substr(tf.repeat(seen[:, None], most, 1), starts, ends - starts, unit="UTF8_CHAR")
        return {"labels": tf.where(there, tf.gather(tf.constant(self.classes), kinds), ""), "texts": texts, "starts": starts, "ends": ends,
                "scores": scores, "count": count}

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """The spans that were found, and the true ones; a baseline gives them as they are."""
        if SPANS in answers:
            return answers, {SPANS: targets[SPANS]}
        given = self._found(answers, answers)
        most = max(int((given[SPANS][..., 1].numpy() > 0).sum(1).max(initial=0)), 1)
        return {SPANS: given[SPANS][:, :most].numpy(), "scores": given["scores"][:, :most].numpy()}, {SPANS: targets[SPANS]}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        return span_judging.judge(self, answers[SPANS], targets[SPANS], source)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """F1 of each text; one without spans, true or found, does not count."""
        return span_judging.by_text(answers[SPANS], targets[SPANS])

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return span_dictionary.fit(train)


class Tagging(PlaceTask):
    """nlp.tagging. Facts: `classes`, `class_counts`, and those of an encoder."""

    input_class = TaggedTexts
    output_class = Tags
    facts_schema = TagFacts
    hub_name = "token-classification"
    samples = "texts with their spans"
    input: TaggedTexts
    output: Tags
    experiment: TextTagging

    def passed_by(self, examples: Tensors) -> Tensors:
        """Where texts are served, these, too."""
        return {**super().passed_by(examples), **{name: examples[name] for name in ("text",) if name in examples}}

    def model(self) -> keras.Model:
        return tagger.build(self.experiment.model, facts=self.facts, classes=self.output.width)

    def marked(self, source: Source, numbers: list[int]) -> list[str]:
        return span_judging.marked_texts(source, numbers, self.output.classes)
