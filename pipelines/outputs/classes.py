"""One of several classes for each example: loss, scores, judgement, the cheap kernel machine beside it, and the answer in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.fitting import kernel
from pipelines.outputs import classification, classifier
from pipelines.outputs.baselines import kernel_baseline
from pipelines.outputs.cross_entropy import class_weights, cross_entropy, largest_share, softened
from pipelines.outputs.of_classes import OfClasses
from pipelines.task.contract import Answers, Condensed, Features, SetScores
from pipelines.task.results import Baseline, Judgement

MEANINGS = {"label": "the most probable class", "confidence": "its probability", "probabilities": "of each class"}


class Classes(OfClasses):
    """One of `classes` for each example. Facts: `classes`, and `class_counts` of train; settings: `loss` is a ClassificationLoss.

    Outputs of the model are logits [batch, classes]; targets are labels [batch] int32 or, while training on mixed examples, the share of
    each class [batch, classes] float32.
    """

    watch = ("accuracy", "max")
    answers = Answers(MEANINGS)

    @property
    def width(self) -> int:
        """Outputs of the model."""
        return len(self.classes)

    def name_of(self, target: Any) -> str:
        """A target in words: a class number, or the shares of the classes, [classes], of which the largest is named."""
        return self.classes[int(target if np.ndim(target) == 0 else np.argmax(target))]

    fitted_to = staticmethod(kernel.label_of)

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """{"label"}; of examples that were mixed with a `partner`, what each `share` [batch] leaves of both."""
        if "label" not in examples:
            return {}
        label = tf.cast(examples["label"], tf.int32)
        if not changes or "partner" not in changes:
            return {"label": label}
        own, share = tf.one_hot(label, len(self.classes)), changes["share"][:, None]
        return {"label": share * own + (1.0 - share) * tf.gather(own, changes["partner"])}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """Cross-entropy in nats, [batch] float32; with label smoothing when training."""
        return cross_entropy(outputs, targets, smoothing=self.experiment.loss.label_smoothing if training else 0.0)

    def soft_loss(self, outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
        return softened(outputs, teacher, temperature)

    def example_weights(self, targets: Any) -> tf.Tensor | None:
        weights = class_weights(self.experiment.loss.class_weights, self.classes, self.facts["class_counts"])
        if weights is None:
            return None
        each = tf.constant(weights, tf.float32)
        return tf.gather(each, targets) if targets.shape.rank == 1 else tf.linalg.matvec(targets, each)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """Accuracy; with mixed targets, against the class that weighs most."""
        labels = targets if targets.shape.rank == 1 else tf.argmax(targets, -1, tf.int32)
        return {"accuracy": tf.cast(tf.argmax(outputs, -1, tf.int32) == labels, tf.float32)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        """Probabilities [batch, classes] float32."""
        return {"probabilities": tf.nn.softmax(tf.cast(model(inputs), tf.float32))}

    def respond(self, answers: Tensors) -> Tensors:
        """label [batch] string, confidence [batch] float32, probabilities [batch, classes] float32."""
        probabilities = answers["probabilities"]
        label = tf.gather(tf.constant(self.classes), tf.argmax(probabilities, -1))
        return {"label": label, "confidence": tf.reduce_max(probabilities, -1), "probabilities": probabilities}

    def chance(self) -> tuple[str, float] | None:
        return largest_share(self.facts["class_counts"])

    # ---- judging

    @property
    def set_scores(self) -> SetScores:
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            from sklearn.metrics import f1_score

            return {"macro_f1": float(f1_score(targets["label"], answers["predicted"], average="macro", zero_division=0))}

        return SetScores({"macro_f1": "max"}, compute)

    @property
    def columns(self) -> list[int]:
        """Classes whose probabilities are kept for every example."""
        return []

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return classification.condensed(answers["probabilities"], targets["label"], self.columns), targets

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings = self.experiment.evaluate
        answered = classification.of_condensed(answers, targets["label"], self.classes, self.columns)
        judgement = classifier.judgement(answered, settings, self.input.units(source), source.name)
        worst = classification.worst_mistakes(answered, settings.worst)
        captions = [(f"{self.classes[one.predicted]} {one.confidence:.0%}", f"is {self.classes[one.true]}") for one in worst]
        self.input.draw(judgement, source, [one.number for one in worst], captions, "Worst mistakes: predicted, and true class")
        self.add(judgement, answered, source)
        return judgement

    def add(self, judgement: Judgement, answered: classification.Classified, source: Source) -> None:
        """Adds what a domain's own classes say of a split."""

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        cheap = self.input.cheap
        if cheap is None or getattr(self.experiment.model, "is_baseline", False):
            return None
        return kernel_baseline(cheap.name, train, features, cheap.describe, len(self.classes), blocks=cheap.blocks)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return (answers["predicted"] == targets["label"]).astype(np.float64)
