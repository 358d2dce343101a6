"""Several labels for each example, or none: loss, scores, thresholds, judgement, the cheap kernel machine beside it, answers in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.fitting import kernel
from pipelines.outputs import label_metrics
from pipelines.outputs.baselines import kernel_baseline
from pipelines.outputs.cross_entropy import class_weights, softened
from pipelines.outputs.of_classes import OfClasses
from pipelines.task.contract import Answers, Features, SetScores
from pipelines.task.results import Baseline, Judgement

MEANINGS = {"labels": "the labels whose probability reaches their threshold, most probable first", "probabilities": "of each label"}


class Labels(OfClasses):
    """Any of `classes` for each example. Facts: `classes`, `class_counts` of train, `thresholds`, chosen on validation; settings: `loss` is
    a ClassificationLoss.

    Outputs of the model are logits [batch, labels]; targets are [batch, labels] float32 of 0 and 1.
    """

    watch = ("example_f1", "max")
    answers = Answers(MEANINGS)

    @property
    def width(self) -> int:
        """Outputs of the model."""
        return len(self.classes)

    fitted_to = staticmethod(kernel.label_of)

    @property
    def thresholds(self) -> np.ndarray:
        """The probability from which each label is given, [labels] float32; older runs have one `threshold` for all."""
        chosen = self.facts.get("thresholds") or [self.facts.get("threshold") or label_metrics.EVEN] * len(self.classes)
        return np.array(chosen, np.float32)

    def name_of(self, label: Any) -> str:
        """Labels, [labels] of 0 and 1, in words; of mixed examples those that weigh half or more."""
        return ", ".join(self.classes[place] for place in np.flatnonzero(np.asarray(label) >= 0.5)) or "no label"

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """{"label"}; of examples that were mixed with a `partner`, what each `share` [batch] leaves of both."""
        if "label" not in examples:
            return {}
        label = examples["label"]
        if not changes or "partner" not in changes:
            return {"label": label}
        share = changes["share"][:, None]
        return {"label": share * label + (1.0 - share) * tf.gather(label, changes["partner"])}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tf.Tensor:
        """Binary cross-entropy in nats, summed over the labels, [batch] float32; when training a label that is there weighs as
        loss.class_weights says."""
        logits = tf.cast(outputs, tf.float32)
        weights = self._weights if training else None
        if weights is None:
            return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), -1)
        return tf.reduce_sum(tf.nn.weighted_cross_entropy_with_logits(targets, logits, tf.constant(weights, tf.float32)), -1)

    @property
    def _weights(self) -> list[float] | None:
        """Of each label where it is there; None where all are 1."""
        setting, counts = self.experiment.loss.class_weights, self.facts["class_counts"]
        if setting != "balanced":
            return class_weights(setting, self.classes, counts)
        examples = self.facts["splits"]["train"]["examples"]
        return [max(examples - count, 1) / max(count, 1) for count in counts]

    def soft_loss(self, outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
        """The divergence of each label by itself, summed."""
        pairs = [tf.stack([tf.cast(logits, tf.float32), tf.zeros_like(logits, tf.float32)], -1) for logits in (outputs, teacher)]
        return tf.reduce_sum(softened(pairs[0], pairs[1], temperature), -1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """example_f1: 2 |given and true| / (|given| + |true|) of each example, at probability 0.5."""
        given = tf.cast(tf.cast(outputs, tf.float32) >= 0.0, tf.float32)
        true = tf.cast(targets >= 0.5, tf.float32)
        both, sizes = tf.reduce_sum(given * true, -1), tf.reduce_sum(given + true, -1)
        return {"example_f1": tf.where(sizes > 0, 2.0 * both / tf.maximum(sizes, 1.0), 1.0)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        """Probabilities [batch, labels] float32, of each label by itself."""
        return {"probabilities": tf.nn.sigmoid(tf.cast(model(inputs), tf.float32))}

    def respond(self, answers: Tensors) -> Tensors:
        """labels [batch] string, joined by data.label_separator; probabilities [batch, labels] float32."""
        probabilities = answers["probabilities"]
        order = tf.argsort(-probabilities, stable=True)
        given = tf.gather(probabilities >= tf.constant(self.thresholds), order, batch_dims=1)
        chosen = tf.ragged.boolean_mask(tf.gather(tf.constant(self.classes), order), given)
        return {"labels": tf.strings.reduce_join(chosen, axis=1, separator=self.experiment.data.label_separator),
                "probabilities": probabilities}

    # ---- judging

    @property
    def set_scores(self) -> SetScores:
        """With the thresholds that are best for these answers, as `choose` takes them for validation."""
        return SetScores(dict.fromkeys(label_metrics.SET_SCORES, "max"),
                         lambda answers, targets: label_metrics.set_scores(answers["probabilities"], targets["label"]))

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"thresholds": label_metrics.label_thresholds(answers["probabilities"], targets["label"]).tolist()}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings = self.experiment.evaluate
        chosen = "thresholds" in self.facts or self.facts.get("threshold") is not None
        judgement = label_metrics.judge_many(answers["probabilities"], targets["label"], self.classes, source, settings,
                                             self.thresholds if chosen else None, self.input.units(source))
        worst = judgement.tables["worst_mistakes"]
        captions = [(str(row["predicted"]), f"is {row['true']}") for row in worst]
        self.input.draw(judgement, source, [row["number"] for row in worst], captions, "Worst mistakes: given, and true labels")
        return judgement

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        cheap = self.input.cheap
        if cheap is None or getattr(self.experiment.model, "is_baseline", False):
            return None
        return kernel_baseline(cheap.name, train, features, cheap.describe, len(self.classes), blocks=cheap.blocks, several=True)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """The F1 of each example's labels."""
        return label_metrics.example_f1(answers["probabilities"] >= self.thresholds, targets["label"])
