"""nlp.classification: one label of a text, with rejection, or several."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from nlp import models, tokens
from nlp.data.facts import TextFacts
from nlp.metrics import baseline, judging
from nlp.settings import Hashed, Linear, TextClassification, Words
from nlp.tasks.texts import Texts
from nlp.tokens.base import FIRST, PAD
from pipelines.base.formatting import escaped
from pipelines.data.source import Source, Tensors
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.classes import MEANINGS, Classes
from pipelines.outputs.cross_entropy import class_weights
from pipelines.outputs.labels import Labels
from pipelines.task.contract import Answers, Condensed, Features, Task
from pipelines.task.input import alone
from pipelines.task.results import Baseline, Judgement

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

PROJECTED = 2000  # words shown in the projector
COUNTED = 5000  # texts whose words are counted for it, where tokens have no names
SHOWN = 60  # words of a text in TensorBoard
SCORED = 100_000  # texts at most to which classifiers of words are fitted


class TextClasses(Classes):
    """One label a text; where texts can be rejected, `threshold` is chosen on validation.

    Targets are {"label", "weight"}: of a text of no class the number of classes, and 0 (see nlp.data.splits).
    """

    answers = Answers({**MEANINGS, "label": "the most probable class; where texts can be rejected, the name for those below the threshold"})
    experiment: TextClassification

    @property
    def outside(self) -> str:
        """The label of a rejected text."""
        reject = self.experiment.reject
        return (reject.label if reject else None) or "out_of_scope"

    @property
    def threshold(self) -> float | None:
        """The confidence below which a text is rejected."""
        return self.facts.get("threshold") if self.experiment.reject else None

    def name_of(self, label: Any) -> str:
        """A label in words."""
        return self.classes[label] if label < len(self.classes) else self.outside

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        found = super().targets(examples, changes)
        return {**found, "weight": examples["weight"]} if found else {}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """Cross-entropy in nats, [batch] float32, with smoothing when training.

        A text of no class has no loss in evaluation; in training its target is the uniform distribution.
        """
        label, count = targets["label"], len(self.classes)
        if not training:
            known = tf.minimum(label, count - 1)  # of texts of no class, whose weight is 0
            return super().loss(outputs, known, training) * targets["weight"]
        if self.experiment.reject is None:
            return super().loss(outputs, label, training)
        return super().loss(outputs, tf.where((label == count)[:, None], 1.0 / count, tf.one_hot(label, count)), training)

    def example_weights(self, targets: Any) -> tf.Tensor | None:
        weights = class_weights(self.experiment.loss.class_weights, self.classes, self.facts["class_counts"])
        return None if weights is None else tf.gather(tf.constant([*weights, 1.0], tf.float32), targets["label"])  # 1: of no class

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """Accuracy, over the texts of the classes."""
        return {"accuracy": super().scores(outputs, targets["label"])["accuracy"] * targets["weight"]}

    def respond(self, answers: Tensors) -> Tensors:
        """label and confidence, and probabilities [batch, classes] float32."""
        response = super().respond(answers)
        if self.threshold is None:
            return response
        sure = response["confidence"] >= tf.constant(self.threshold, tf.float32)
        return {**response, "label": tf.where(sure, response["label"], self.outside)}

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return judging.condensed(answers["probabilities"], targets["label"]), targets

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        if self.experiment.reject is None:
            return {}
        return {"threshold": judging.reject_threshold(answers["confidence"], answers["predicted"], targets["label"], len(self.classes),
                                                      self.experiment.reject.accept)}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        return judging.judge_one(answers, targets["label"], self.classes, source, self.experiment.evaluate, self.threshold,
                                 self.input.units(source))

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        _explain(self, model, judgement, source)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, Linear) else baseline.fit_classifier(train, len(self.classes), many=False)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """A text of no class does not count."""
        label = targets["label"]
        return np.where(label < len(self.classes), answers["predicted"] == label, np.nan).astype(np.float64)


class TextLabels(Labels):
    """Several labels a text."""

    experiment: TextClassification

    @property
    def width(self) -> int:
        """Outputs of the model."""
        return len(self.classes)

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        _explain(self, model, judgement, source)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, Linear) else baseline.fit_classifier(train, len(self.classes), many=True)


def _explain(output: Any, model: keras.Model, judgement: Judgement, source: Source) -> None:
    from nlp.metrics import attribution

    if "worst_mistakes" in judgement.tables:
        attribution.add_words(output.task, model, judgement, source)


class TextTask(Task):
    """What tasks on texts share, whatever is said of them.

    Its output says how many numbers the model gives (`width`) and how a target is written (`name_of`).
    """

    input_class = Texts
    input: Texts
    output: Any
    experiment: Any

    def facts_error(self) -> str | None:
        wanted = ("backbone", "tokenizer", "pool") if self.experiment.own_tokens else (
            () if isinstance(self.experiment.cutting, Hashed) else ("vocabulary",))
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def model(self) -> keras.Model:
        tokenizer = self.input.tokenizer
        return models.build(self.experiment.model, size=tokenizer.size, classes=self.output.width, facts=self.facts,
                            limit=self.experiment.cutting.limit, letters=tokenizer.letters)

    def learn_fixed(self, model: keras.Model, train: Source) -> None:
        if self.facts.get("words"):
            from nlp.models import word_scores

            scored = tokens.cut_labelled(fitting_part(train, SCORED), self.input.tokenizer)
            word_scores.fit(model.get_layer("features").get_layer("words"), scored)

    def initialise(self, model: keras.Model, batches: Iterator[tuple[Any, Any]]) -> None:
        settings = self.experiment.model
        if getattr(settings, "counts_tokens", False):
            from nlp.models.bag import count_tokens, set_rarity, set_ratios

            size = self.input.tokenizer.size
            if settings.naive_bayes:
                set_ratios(model, count_tokens(batches, size, self.output.width))
            else:
                set_rarity(model, count_tokens(batches, size, 1)[:, 0], self.facts["splits"]["train"]["examples"])

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
            texts = [["?" if number < FIRST else vocabulary[number - FIRST] for number in row[row != PAD].tolist()]
                     for row in ids]
        else:
            rows = source.gather((step * len(ids) + tf.range(len(ids), dtype=tf.int64)) % len(source))
            targets = alone(self.output.targets(rows))
            texts = [[word.decode("utf-8", "replace") for word in row] for row in self.input.tokenizer.words(rows["text"]).to_list()]
        labels = (targets["label"] if isinstance(targets, dict) else targets).numpy()
        return [(self.output.name_of(label), " ".join(words[:SHOWN]) + (" ..." if len(words) > SHOWN else ""))
                for label, words in zip(labels, texts)]


class Classification(TextTask):
    """nlp.classification. Facts: `classes`, `class_counts`, `vocabulary` (see nlp.data.splits), and `threshold`, chosen on validation."""

    facts_schema = TextFacts
    hub_name = "text-classification"
    of_one = TextClasses  # the output of one label a text
    output: TextClasses | TextLabels
    experiment: TextClassification

    def __init__(self, experiment: TextClassification, facts: dict[str, Any] | None = None):
        self.output_class = TextLabels if experiment.data.labels == "many" else self.of_one
        super().__init__(experiment, facts)

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        if not isinstance(self.experiment.model, Linear):
            return None
        from nlp.models import linear

        some, tokenizer = fitting_part(train, SCORED), self.input.tokenizer
        fitted = linear.fit(tokens.cut_labelled(some, tokenizer), tokenizer, len(self.output.classes), groups=some.groups,
                            seed=self.experiment.train.seed)
        linear.put(model, fitted)
        return f"Linear support vector machines on tf-idf features: {fitted.how}."
