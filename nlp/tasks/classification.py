"""Labels of a text: from stored strings to probabilities, rejection, and evaluation."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from nlp import models, tokens
from nlp.data import requests, splits
from nlp.data.facts import TextFacts
from nlp.metrics import baseline, judging
from nlp.settings import Hashed, Linear, TextClassification, Words, text_keys
from nlp.tokens.base import FIRST, PAD
from pipelines.base.formatting import escaped
from pipelines.data.source import Source, Tensors
from pipelines.fitting.folds import fitting_part
from pipelines.serving.output import WARNING
from pipelines.task.contract import Condensed, Features, Read, Splits
from pipelines.task.form import Field
from pipelines.task.labels import class_weights, softened
from pipelines.task.results import Baseline, Judgement
from pipelines.task.single_label import SingleLabel
from pipelines.task.units import units_of

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

PROJECTED = 2000  # words shown in the projector
COUNTED = 5000  # texts whose words are counted for it, where tokens have no names
SHOWN = 60  # words of a text in TensorBoard
SENTENCES = ("yes", "Is there a table for two on Friday evening?",
             "I have waited for an hour, the soup was cold, and nobody could tell us when the main course would come; never again!")
SCORED = 100_000  # texts at most to which classifiers of words are fitted
LONG = 1 << 14  # bytes of a text that is worth other threads
LARGE = 1 << 20  # bytes of a text that takes long to cut into words
BLANK = r"[\s\pZ\pC]*"  # only separators and invisible characters


class Classification(SingleLabel):
    """nlp.classification. Facts: `classes`, `class_counts`, `vocabulary` (see nlp.data.splits), and `threshold`, chosen on validation.

    Inputs of the model are token numbers [batch, time] int32; targets {"label", "weight"} (see nlp.data.splits).
    """

    length = "length"
    read_at_once = (256, 1024)
    meanings = {
        "text": "UTF-8, of any length; cut at the limit of tokens",
        "label": "the most probable class; where texts can be rejected, the name for those below the threshold",
        "labels": "the labels whose probability reaches the threshold, most probable first",
        "confidence": "the probability of the most probable class",
        "probabilities": "of each class",
        "warning": "why the answer is only a guess: an empty text, or one without any word of train; empty otherwise",
    }
    hub_task = "text-classification"
    sends = 'a text; in JSON a text or an object of columns such as {"text": "..."}'
    examples = {"text": "tf.constant(['a text, as it is'])"}
    kept = TextFacts
    experiment: TextClassification

    @property
    def length_most(self) -> int:  # type: ignore[override]
        return self.experiment.limit

    @property
    def length_unit(self) -> int:  # type: ignore[override]
        """An encoder costs what its tokens cost, padding among them, and may have no places beyond its limit."""
        return 1 if self.experiment.own_tokens else 8

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("tensorflow_text",) if self.experiment.own_tokens else ()

    @property
    def watch(self) -> tuple[str, str]:  # type: ignore[override]
        return ("example_f1", "max") if self.many else ("accuracy", "max")

    @property
    def many(self) -> bool:
        """Texts have several labels."""
        return self.experiment.data.labels == "many"

    @property
    def outside(self) -> str:
        """The label of a rejected text."""
        reject = self.experiment.reject
        return (reject.label if reject else None) or "out_of_scope"

    def unfit(self) -> str | None:
        wanted = ("backbone", "tokenizer", "pool") if self.experiment.own_tokens else (
            () if isinstance(self.experiment.cutting, Hashed) else ("vocabulary",))
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    @property
    def tokenizer(self) -> tokens.Tokenizer:
        cached = getattr(self, "_tokenizer", None)
        if cached is None or cached[0] is not self.facts:
            if self.experiment.own_tokens:
                from nlp.models import pretrained

                cached = self.facts, pretrained.tokenizer(self.experiment.model, self.facts)
            else:
                cached = self.facts, tokens.make(self.experiment.cutting, self.facts)
            self._tokenizer = cached
        return cached[1]

    def splits(self) -> Splits:
        return splits.load_texts(self.experiment, self.facts)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One text as {"tokens": [length] int32, "length"} with its label and weight."""
        ids = self.tokenizer.ids(raw["text"][None]).flat_values
        return {"tokens": ids, "length": tf.size(ids), **self._targets(raw)}

    def decode_batch(self, raw: Tensors) -> Tensors:  # type: ignore[override]
        """Texts [batch] as `decode` has each: one call of the string operations for the batch is 10 times as fast as one for each."""
        return {**self._cut(raw), **self._targets(raw)}

    def _targets(self, raw: Tensors) -> Tensors:
        targets: Tensors = {name: raw[name] for name in ("label", "weight") if name in raw}
        if "label" in targets and not self.many:
            targets["label"] = tf.cast(targets["label"], tf.int32)
        return targets

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Any]:
        """Token numbers [batch, time] int32, 0 where there is padding; {"label", "weight"}, or None where there are no labels."""
        targets = {name: examples[name] for name in ("label", "weight")} if "label" in examples else None
        return examples["tokens"], targets

    def model(self) -> keras.Model:
        return models.build(self.experiment.model, size=self.tokenizer.size, classes=len(self.classes), facts=self.facts,
                            limit=self.experiment.cutting.limit, letters=self.tokenizer.letters)

    def learn_fixed(self, model: keras.Model, train: Source) -> None:
        if self.facts.get("words"):
            from nlp.models import word_scores

            scored = tokens.cut_labelled(fitting_part(train, SCORED), self.tokenizer)
            word_scores.fit(model.get_layer("features").get_layer("words"), scored)

    def initialise(self, model: keras.Model, batches: Iterator[tuple[Any, Any]]) -> None:
        settings = self.experiment.model
        if getattr(settings, "counts_tokens", False):
            from nlp.models.bag import count_tokens, set_rarity, set_ratios

            if settings.naive_bayes:
                set_ratios(model, count_tokens(batches, self.tokenizer.size, len(self.classes)))
            else:
                set_rarity(model, count_tokens(batches, self.tokenizer.size, 1)[:, 0], self.facts["splits"]["train"]["examples"])

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        if not isinstance(self.experiment.model, Linear):
            return None
        from nlp.models import linear

        some = fitting_part(train, SCORED)
        fitted = linear.fit(tokens.cut_labelled(some, self.tokenizer), self.tokenizer, len(self.classes), groups=some.groups,
                            seed=self.experiment.train.seed)
        linear.put(model, fitted)
        return f"Linear support vector machines on tf-idf features: {fitted.how}."

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """Cross-entropy in nats, [batch] float32: of the classes, with smoothing when training; or summed over the labels (many).

        A text of no class has no loss in evaluation; in training its target is the uniform distribution.
        """
        logits, label = tf.cast(outputs, tf.float32), targets["label"]
        if self.many:
            return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(label, logits), -1)
        count = len(self.classes)
        if not training:
            known = tf.minimum(label, count - 1)  # of texts of no class, whose weight is 0
            return super().loss(logits, known, training) * targets["weight"]
        if self.experiment.reject is None:
            return super().loss(logits, label, training)
        return super().loss(logits, tf.where((label == count)[:, None], 1.0 / count, tf.one_hot(label, count)), training)

    def soft_loss(self, outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
        """With several labels, the divergence of each label by itself, summed."""
        if not self.many:
            return super().soft_loss(outputs, teacher, temperature)
        pairs = [tf.stack([tf.cast(logits, tf.float32), tf.zeros_like(logits, tf.float32)], -1) for logits in (outputs, teacher)]
        return tf.reduce_sum(softened(pairs[0], pairs[1], temperature), -1)

    def example_weights(self, targets: Any) -> tf.Tensor | None:
        weights = class_weights(self.experiment.loss.class_weights, self.classes, self.facts["class_counts"])
        return None if weights is None else tf.gather(tf.constant([*weights, 1.0], tf.float32), targets["label"])  # 1: of no class

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """One label: accuracy. Several: example_f1, 2 |given and true| / (|given| + |true|) of each text, at probability 0.5."""
        label = targets["label"]
        if not self.many:
            return {"accuracy": super().scores(outputs, label)["accuracy"] * targets["weight"]}
        given = tf.cast(tf.cast(outputs, tf.float32) >= 0.0, tf.float32)
        both, sizes = tf.reduce_sum(given * label, -1), tf.reduce_sum(given + label, -1)
        return {"example_f1": tf.where(sizes > 0, 2.0 * both / tf.maximum(sizes, 1.0), 1.0)}

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """Probabilities [batch, classes] float32: a softmax over the classes, or of each label by itself (many)."""
        return {"probabilities": tf.nn.sigmoid(tf.cast(model(inputs), tf.float32))} if self.many else super().answer(model, inputs)

    def chance(self) -> tuple[str, float] | None:
        return None if self.many else super().chance()

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, Linear) else baseline.fit_classifier(train, len(self.classes), self.many)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """With several labels a text its F1; a text of no class does not count."""
        label = targets["label"]
        if not self.many:
            return np.where(label < len(self.classes), answers["predicted"] == label, np.nan).astype(np.float64)
        return judging.example_f1(answers["probabilities"] >= np.float32(self.facts.get("threshold", judging.EVEN)), label)

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """With several labels a text everything is kept."""
        return (answers if self.many else judging.condensed(answers["probabilities"], targets["label"])), targets

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        if self.many:
            return {"threshold": judging.label_threshold(answers["probabilities"], targets["label"])}
        if self.experiment.reject is None:
            return {}
        threshold = judging.reject_threshold(answers["confidence"], answers["predicted"], targets["label"], len(self.classes),
                                             self.experiment.reject.accept)
        return {"threshold": threshold}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings, units = self.experiment.evaluate, units_of(source, self.experiment.data.group_by)
        if self.many:
            return judging.judge_many(answers["probabilities"], targets["label"], self.classes, source, settings,
                                      self.facts.get("threshold"), units)
        threshold = self.facts.get("threshold") if self.experiment.reject else None
        return judging.judge_one(answers, targets["label"], self.classes, source, settings, threshold, units)

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        from nlp.metrics import attribution

        if "worst_mistakes" in judgement.tables:
            attribution.add_words(self, model, judgement, source)

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        self._trained_on = source  # show_model takes words of it
        shown = self.samples(source, inputs.numpy(), targets, step)
        writer.text("texts as the model reads them", "\n\n".join(f"**{escaped(label)}** {escaped(text)}" for label, text in shown), step)

    def show_model(self, model: keras.Model, writer: "Writer", step: int) -> None:
        """The vectors of the most frequent words or pieces, for the projector; for hashed tokens, of words frequent in some of train."""
        names, rows = self._named_rows()
        if names and not getattr(self.experiment.model, "naive_bayes", False):  # then a token has one weight only
            vectors = tf.gather(model.get_layer("embedding").variable.value, rows)
            writer.projector("words", vectors.numpy(), names)

    def _named_rows(self) -> tuple[list[str], tf.Tensor]:
        """Words or pieces, and their rows of the embedding."""
        vocabulary = self.facts.get("vocabulary")
        if vocabulary:
            names = vocabulary[:PROJECTED]
            return names, tf.range(FIRST, FIRST + len(names))
        source: Source | None = getattr(self, "_trained_on", None)
        settings = self.experiment.cutting
        if source is None or self.experiment.own_tokens or not isinstance(settings, Hashed):
            return [], tf.zeros([0], tf.int32)
        texts = source.gather(tf.range(min(len(source), COUNTED), dtype=tf.int64))["text"]
        named = Words(name="words", lower=settings.lower, html=settings.html, limit=settings.limit, vocabulary=PROJECTED)
        names = tokens.learn(named, [texts])["vocabulary"]
        if not names:
            return [], tf.zeros([0], tf.int32)
        single = settings.model_copy(update={"words": 1, "characters": None})
        return names, tokens.make(single, {}).ids(tf.constant(names, tf.string, [len(names)]))[:, :1].flat_values

    def samples(self, source: Source, ids: np.ndarray, targets: Any, step: int = 0) -> list[tuple[str, str]]:
        """(label, words) of some texts: of the batch where tokens have names, else of as many others of the source, tokenised alike."""
        vocabulary = self.facts.get("vocabulary")
        if vocabulary:
            labels = targets["label"].numpy()
            texts = [["?" if number < FIRST else vocabulary[number - FIRST] for number in row[row != PAD].tolist()]
                     for row in ids]
        else:
            rows = source.gather((step * len(ids) + tf.range(len(ids), dtype=tf.int64)) % len(source))
            labels = rows["label"].numpy()
            texts = [[word.decode("utf-8", "replace") for word in row] for row in self.tokenizer.words(rows["text"]).to_list()]
        return [(self._label_text(label), " ".join(words[:SHOWN]) + (" ..." if len(words) > SHOWN else ""))
                for label, words in zip(labels, texts)]

    def _label_text(self, label: Any) -> str:
        if self.many:
            return ", ".join(self.classes[place] for place in np.flatnonzero(label)) or "no label"
        return self.classes[label] if label < len(self.classes) else self.outside

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"text": tf.TensorSpec([None], tf.string)}

    def receive(self, raw: Tensors) -> Tensors:
        """Texts [batch] string into token numbers [batch, time] int32, with a warning where the answer means little."""
        cut = self._cut(raw)
        return {**cut, WARNING: self._warnings(raw["text"], cut["tokens"])}

    def plain(self, row: dict[str, Any]) -> bool:
        return len(row["text"]) <= LONG and self.tokenizer.is_plain(row["text"])

    def receive_plain(self, raw: Tensors) -> Tensors:
        if self.tokenizer.cut_plain is None:
            return self.receive(raw)
        cut = self._padded(self.tokenizer.cut_plain(raw["text"]).ids)
        return {**cut, WARNING: self._warnings(raw["text"], cut["tokens"])}

    def _cut(self, raw: Tensors) -> Tensors:
        return self._padded(self.tokenizer.ids(raw["text"]))

    def _padded(self, ids: tf.RaggedTensor) -> Tensors:
        return {"tokens": ids.to_tensor(PAD), "length": tf.cast(ids.row_lengths(), tf.int32)}

    def _warnings(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Why an answer to these texts is only a guess, [batch] string: their tokens are those of an empty text."""
        with tf.init_scope():  # at once, and not with each batch
            nothing = self.tokenizer.ids(tf.constant([""]))[0].numpy()
        same = tf.reduce_all((ids == PAD) | tf.reduce_any(ids[..., None] == nothing, -1), -1)
        blank = tf.strings.regex_full_match(texts, BLANK)
        return tf.where(same, tf.where(blank, "the text is empty", "no word of the text is in the training data"), "")

    def read(self, inputs: list[str]) -> Iterator[Read]:
        yield from requests.read_texts(inputs, self.experiment.data)

    def take(self, sent: Any) -> dict[str, Any]:
        return requests.request_example(sent, self.experiment.data)

    def large(self, row: dict[str, Any]) -> bool:
        return len(row["text"]) > LARGE

    def typical(self) -> list[dict[str, Any]]:
        known = [word for word in self.facts.get("vocabulary") or () if word.isascii() and word.isalpha()][:40]
        return [{"text": text.encode()} for text in (*SENTENCES, " ".join(known)) if text]

    def form(self) -> list[Field]:
        keys = [str(key) for key in text_keys(self.experiment.data)]
        return [Field("text", key) for key in keys] if len(keys) > 1 else [Field("text")]

    def respond(self, answers: Tensors) -> Tensors:
        """label and confidence, or labels; and probabilities [batch, classes] float32."""
        probabilities = answers["probabilities"]
        names = tf.constant(self.classes)
        if self.many:
            order = tf.argsort(-probabilities, stable=True)
            given = tf.gather(probabilities, order, batch_dims=1) >= tf.constant(self.facts.get("threshold", judging.EVEN), tf.float32)
            chosen = tf.ragged.boolean_mask(tf.gather(names, order), given)
            separator = self.experiment.data.label_separator
            return {"labels": tf.strings.reduce_join(chosen, axis=1, separator=separator), "probabilities": probabilities}
        response = super().respond(answers)
        threshold = self.facts.get("threshold") if self.experiment.reject else None
        if threshold is None:
            return response
        sure = response["confidence"] >= tf.constant(threshold, tf.float32)
        return {**response, "label": tf.where(sure, response["label"], self.outside)}
