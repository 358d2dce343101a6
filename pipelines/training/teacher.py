"""A student learns from a teacher's answers, too (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", arXiv:1503.02531).

The teacher sees what the student sees, augmentation included (Beyer et al. 2022, arXiv:2106.05237). It stands before the pure step, where
inputs and targets are made: its answers come with the targets, its weights never change and are no part of the run. So the promises
of the step hold as they are.
"""

from typing import Any

import keras
import tensorflow as tf

from pipelines.config.train_settings import Teacher
from pipelines.data.source import Tensors
from pipelines.task.contract import Output, Task
from pipelines.training.totals import losses

OWN, ANSWERED = "own", "answered"  # entries of the targets of a training batch


class Taught:
    """A task whose training targets hold a teacher's outputs, too; in everything else it is the task itself.

    Args:
        task: the student's.
        teacher: a model that takes the student's inputs; built under the strategy's scope.
    """

    def __init__(self, task: Task, teacher: keras.Model, settings: Teacher):
        self.whole, self._teacher, self.output = task, teacher, _TaughtOutput(task.output, settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def prepare(self, examples: Tensors, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> tuple[Any, Any]:
        """As the task's; when training, targets are {OWN: the task's, ANSWERED: the teacher's outputs [batch, classes] float32}."""
        inputs, targets = self.whole.prepare(examples, keys=keys, seed=seed, epoch=epoch)
        if keys is None:
            return inputs, targets
        answered = tf.cast(self._teacher(inputs, training=False), tf.float32)
        return inputs, {OWN: targets, ANSWERED: tf.stop_gradient(answered)}


class _TaughtOutput:
    """A student's output: its loss takes in the distance to the teacher's answers."""

    def __init__(self, whole: Output, settings: Teacher):
        self.whole, self._settings = whole, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def loss(self, outputs: Any, targets: Any, training: bool, mask: tf.Tensor | None = None) -> Any:
        """The task's, [batch] float32; when training with the share `weight` of what the task calls the distance to the teacher."""
        if not training:
            return self.whole.loss(outputs, _own(targets), training)
        settings = self._settings
        soft = self.whole.soft_loss(outputs, targets[ANSWERED], settings.temperature)
        own, counts = losses(self.whole, outputs, targets[OWN], training, mask)
        if counts is None:
            return settings.weight * soft + (1.0 - settings.weight) * own
        return settings.weight * soft * counts + (1.0 - settings.weight) * own, counts

    def example_weights(self, targets: Any) -> tf.Tensor | None:
        return self.whole.example_weights(_own(targets))

    def scores(self, outputs: Any, targets: Any) -> Tensors:
        return self.whole.scores(outputs, _own(targets))


def _own(targets: Any) -> Any:
    """The task's targets, of a batch to train on or to judge."""
    return targets[OWN] if isinstance(targets, dict) and set(targets) == {OWN, ANSWERED} else targets
