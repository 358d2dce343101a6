"""What tasks with one label per example share: loss, scores, chance, and the answer in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Tensors
from pipelines.task.contract import Task
from pipelines.task.labels import class_weights, cross_entropy, largest_share, softened


class SingleLabel(Task):
    """One of `classes` for each example. Facts: `classes`, and `class_counts` of train; settings: `loss` is a ClassificationLoss.

    Outputs of the model are logits [batch, classes]; targets are labels [batch] int32 or, while training on mixed examples, the share of
    each class [batch, classes] float32.
    """

    watch = ("accuracy", "max")
    answers = {"label": "the most probable class", "confidence": "its probability", "probabilities": "of each class"}
    experiment: Any

    @property
    def classes(self) -> list[str]:
        return self.facts["classes"]

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

    def targets(self, examples: Tensors) -> Tensors:
        return {"label": examples["label"]}

    def chance(self) -> tuple[str, float] | None:
        return largest_share(self.facts["class_counts"])

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return (answers["predicted"] == targets["label"]).astype(np.float64)

    def respond(self, answers: Tensors) -> Tensors:
        """label [batch] string, confidence [batch] float32, probabilities [batch, classes] float32."""
        probabilities = answers["probabilities"]
        label = tf.gather(tf.constant(self.classes), tf.argmax(probabilities, -1))
        return {"label": label, "confidence": tf.reduce_max(probabilities, -1), "probabilities": probabilities}
