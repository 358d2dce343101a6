"""The weighted mean of two models that are fitted at once: a linear head on what a frozen encoder makes of an example, and a kernel machine
on features that nothing learns. They are wrong on different examples, so that their mean is often right where one of them is not.

The weights are chosen on folds of train: each is answered by both models as fitted to the others. Then both are fitted to all of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.special import softmax

from pipelines.data.source import ArraySource, Source
from pipelines.encoders import linear_head
from pipelines.encoders.features import FEATURES, TARGET, OnFeatures, parts
from pipelines.fitting import kernel
from pipelines.fitting.folds import fitting_part, folds
from pipelines.task.contract import Task
from pipelines.task.output import Features

FOLDS = 3
LEAST = 1e-7  # of a probability, so that one mistake made without a doubt does not choose the weights
ENCODER, KERNEL = "pretrained", "kernel"  # names of the two models within the whole


class WeightedMean(keras.layers.Layer):
    """Two models' logits [batch, classes] -> logits [batch, classes] float32 of the weighted mean of their probabilities.

    `share`, the first one's weight, is not trained.
    """

    def build(self, _):
        self.share = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.5), dtype="float32", trainable=False, name="share")

    def call(self, logits):
        first, second = (tf.nn.log_softmax(tf.cast(one, tf.float32)) for one in logits)
        share = tf.convert_to_tensor(self.share)
        return tf.reduce_logsumexp(tf.stack([first + tf.math.log(share), second + tf.math.log1p(-share)]), 0)

    def compute_output_spec(self, logits):
        return keras.KerasTensor(logits[0].shape, "float32")


def build(encoded: keras.Model, shape: Sequence[int], describe: Callable[[Any], tf.Tensor], *, support: int, classes: int) -> keras.Model:
    """The model from inputs [batch, *shape] float32 to logits [batch, classes]; no step trains any of it.

    Args:
        encoded: the encoder with its head.
        describe: the inputs -> [batch, width] float32 of the kernel machine, in graph.
        support: training examples that the kernel machine keeps.
    """
    machine = kernel.build(shape, describe, support=support, classes=classes)
    inputs = keras.Input(shape, dtype="float32", name="inputs")
    model = keras.Model(inputs, WeightedMean(dtype="float32", name="mean")([encoded(inputs), machine(inputs)]), name="blend")
    model.trainable = False
    return model


def fit_model(task: Task, model: keras.Model, train: Source, features: Features, describe: Callable[[Any], tf.Tensor], *,
              blocks: Sequence[int] = (), seed: int = 0) -> str:
    """Fits a model of `build` whose encoder stays as it is; says how. Arguments as those of `pipelines.fitting.kernel.fit_source`."""
    encoder, head = parts(model.get_layer(ENCODER))
    machine, width = model.get_layer(KERNEL).get_layer("machine"), int(encoder.output_shape[-1])
    part = fitting_part(train, kernel.MOST)
    values, targets = features(
        part, lambda inputs: tf.concat([tf.cast(encoder(inputs, training=False), tf.float32), describe(inputs)], 1))
    vectors, described, labels = values[:, :width], values[:, width:], targets["label"]
    fold = folds(labels, part.groups, len(labels), seed, FOLDS)

    def fitted(rows: np.ndarray) -> kernel.Fitted:
        """Of these examples; the head's weights are set, too."""
        groups = None if part.groups is None else part.groups[rows]
        some = ArraySource({FEATURES: vectors[rows], f"{TARGET}0": labels[rows]}, labels=labels[rows], groups=groups)
        linear_head.fit(OnFeatures(task, 0, 1), head, some, None, 1, seed)  # type: ignore[arg-type]
        return kernel.fit(described[rows], labels[rows], machine.classes, groups=groups, blocks=blocks, support=machine.support, seed=seed)

    right = np.empty((2, len(labels)))
    for number in range(fold.max() + 1):
        held = np.flatnonzero(fold == number)
        other = fitted(np.flatnonzero(fold != number)).logits(described[held])
        for place, logits in enumerate((np.asarray(head(vectors[held], training=False)), other)):
            right[place, held] = softmax(logits, axis=1)[np.arange(len(held)), labels[held]]
    share = best_share(*right)
    machine.put(fitted(np.arange(len(labels))))
    model.get_layer("mean").share.assign(share)
    return (f"Answers are the weighted mean of those of the encoder's fitted head ({share:.0%}) and of a kernel machine ({1 - share:.0%}): "
            f"by train, held out in {fold.max() + 1} folds.")


def best_share(first: np.ndarray, second: np.ndarray) -> float:
    """The first one's weight in the mean of two probabilities of the true class, each [n], for the smallest log loss."""
    from scipy.optimize import minimize_scalar

    def loss(share: float) -> float:
        return -float(np.log(np.maximum(share * first + (1 - share) * second, LEAST)).mean())

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)
