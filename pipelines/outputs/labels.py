"""Several labels for each example, or none: loss, scores, the threshold, judgement, and the answer in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.outputs import label_metrics
from pipelines.outputs.cross_entropy import softened
from pipelines.task.contract import Answers, Output
from pipelines.task.results import Judgement

MEANINGS = {"labels": "the labels whose probability reaches the threshold, most probable first", "probabilities": "of each label"}


class Labels(Output):
    """Any of `classes` for each example. Facts: `classes`, `class_counts` of train, and `threshold`, chosen on validation.

    Outputs of the model are logits [batch, labels]; targets are [batch, labels] float32 of 0 and 1.
    """

    watch = ("example_f1", "max")
    answers = Answers(MEANINGS)

    @property
    def classes(self) -> list[str]:
        classes: list[str] = self.facts["classes"]
        return classes

    @property
    def threshold(self) -> float:
        """The probability from which a label is given."""
        return float(self.facts.get("threshold", label_metrics.EVEN))

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
        """Binary cross-entropy in nats, summed over the labels, [batch] float32."""
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets, tf.cast(outputs, tf.float32)), -1)

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
        given = tf.gather(probabilities, order, batch_dims=1) >= tf.constant(self.threshold, tf.float32)
        chosen = tf.ragged.boolean_mask(tf.gather(tf.constant(self.classes), order), given)
        return {"labels": tf.strings.reduce_join(chosen, axis=1, separator=self.experiment.data.label_separator),
                "probabilities": probabilities}

    # ---- judging

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"threshold": label_metrics.label_threshold(answers["probabilities"], targets["label"])}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings = self.experiment.evaluate
        judgement = label_metrics.judge_many(answers["probabilities"], targets["label"], self.classes, source, settings,
                                             self.facts.get("threshold"), self.input.units(source))
        worst = judgement.tables["worst_mistakes"]
        captions = [(str(row["predicted"]), f"is {row['true']}") for row in worst]
        self.input.draw(judgement, source, [row["number"] for row in worst], captions, "Worst mistakes: given, and true labels")
        return judgement

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """The F1 of each example's labels."""
        return label_metrics.example_f1(answers["probabilities"] >= np.float32(self.threshold), targets["label"])
