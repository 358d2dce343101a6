"""The best linear head on features: the task's own loss over all examples, minimised by L-BFGS (Liu and Nocedal 1989).

Features are standardised, so that one regularisation suits all of them, and the last layer takes that into its weights. The strength of
the regularisation is the one whose head is best on validation; where there is no validation split, on a fifth of train.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from pipelines.data.source import ArraySource
from pipelines.task.contract import Task

STRENGTHS = (1.0, 3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)  # of half the squared weights beside a mean loss
BEFORE_TRAINING = 1e-2  # leaves a loss of which the encoder learns; at weaker ones a few examples are answered without a mistake
FIRST = STRENGTHS.index(3e-3)  # then weaker ones while they gain, then stronger ones
PATIENCE = 2  # strengths in a row without gain, after which no further one is tried that way
CHOOSING = {"maxiter": 40, "ftol": 1e-5}  # each begins where its neighbour ended
FINAL = {"maxiter": 1000, "ftol": 1e-6}
CHUNK = 16_384  # examples at a time
FLOOR = 0.1  # of the features' usual deviation: one that hardly moves is not blown up
TINY = 1e-6

Chunks = list[tuple[tf.Tensor, Any]]  # (features [n, width] float32, targets)


def dense_of(head: keras.Model) -> keras.layers.Dense | None:
    """The one layer of a head that has weights, where it is linear and takes features of a whole example; else None."""
    own = [layer for layer in head._flatten_layers(include_self=False) if layer.weights]
    dense = own[0] if len(own) == 1 else None
    if not isinstance(dense, keras.layers.Dense) or dense.activation is not keras.activations.linear or len(dense.input.shape) != 2:
        return None
    return dense


@dataclass(frozen=True)
class Fitted:
    """What was chosen.

    Attributes:
        strength: of the regularisation.
        metric, value: what it was chosen by, and its best.
    """

    strength: float
    metric: str
    value: float


def fit(task: Task, head: keras.Model, train: ArraySource, validation: ArraySource | None, views: int, seed: int) -> Fitted:
    """Sets the weights of `head`, of which `dense_of` knows the layer, with the best regularisation.

    Args:
        task: on features (`features.OnFeatures`).
        train, validation: their features.
        views: of each training example.
        seed: of the fifth that stands in for a validation split.
    """
    numbers = np.arange(len(train))
    held = np.zeros(len(train), bool)
    if validation is None:
        held[np.random.default_rng(seed).permutation(len(train))[:len(train) // 5]] = True
    fitting = _Objective(task, head, _chunks(task, train, numbers[~held], views))
    judged = _chunks(task, validation, np.arange(len(validation)), 1) if validation is not None else _chunks(task, train, numbers[held], 1)
    chosen, weights = _chosen(task, head, fitting, judged)
    if validation is None:
        fitting = _Objective(task, head, _chunks(task, train, numbers, views))
    fitting.put(fitting.minimised(weights, chosen.strength, FINAL))
    return chosen


def fit_before_training(task: Task, head: keras.Model, train: ArraySource) -> None:
    """Sets the weights of `head`, so regularised that its training loss is far from 0: the training of all that follows needs it."""
    fitting = _Objective(task, head, _chunks(task, train, np.arange(len(train)), 1))
    fitting.put(fitting.minimised(np.zeros(fitting.size), BEFORE_TRAINING, CHOOSING))


def _chosen(task: Task, head: keras.Model, objective: "_Objective", judged: Chunks) -> tuple[Fitted, np.ndarray]:
    """The best strength and the weights that it gave; a climb from the middle, since a good one takes less time than the extremes."""
    tried: dict[int, tuple[tuple[float, float], Fitted, np.ndarray]] = {}

    def attempt(place: int, begin: np.ndarray) -> None:
        weights = objective.minimised(begin, STRENGTHS[place], CHOOSING)
        objective.put(weights)
        key, metric, value = _judged(task, head, judged)
        tried[place] = key, Fitted(STRENGTHS[place], metric, value), weights

    attempt(FIRST, np.zeros(objective.size))
    for way in (1, -1):
        best, place, since = max(one[0] for one in tried.values()), FIRST, 0
        if best > tried[FIRST][0]:
            break
        while since < PATIENCE and 0 <= place + way < len(STRENGTHS):
            attempt(place + way, tried[place][2])
            place += way
            best, since = (tried[place][0], 0) if tried[place][0] > best else (best, since + 1)
    _, fitted, weights = max(tried.values(), key=lambda one: one[0])
    return fitted, weights


def _judged(task: Task, head: keras.Model, chunks: Chunks) -> tuple[tuple[float, float], str, float]:
    """((what is better when larger, then by the loss), the metric's name, its value)."""
    totals: dict[str, list[np.ndarray]] = {}
    for features, targets in chunks:
        outputs = head(features, training=False)
        for name, value in {"loss": task.loss(outputs, targets, training=False), **task.scores(outputs, targets)}.items():
            totals.setdefault(name, []).append(np.asarray(value, np.float64))
    means = {name: float(np.mean(np.concatenate(parts))) for name, parts in totals.items()}
    name, direction = task.watch if task.watch[0] in means else ("loss", "min")
    return (means[name] if direction == "max" else -means[name], -means["loss"]), name, means[name]


def _chunks(task: Task, source: ArraySource, numbers: np.ndarray, views: int) -> Chunks:
    """Features and targets of some examples, each view by itself."""
    found: Chunks = []
    for view in range(max(views, 1)):
        for start in range(0, len(numbers), CHUNK):
            rows = numbers[start:start + CHUNK]
            values = {name: array[rows, view] if views > 1 else array[rows] for name, array in source.arrays.items()}
            found.append(task.prepare({name: tf.constant(value) for name, value in values.items()}))
    return found


class _Objective:
    """The mean training loss of a dense layer with some regularisation, as a function of its weights on standardised features."""

    def __init__(self, task: Task, head: keras.Model, chunks: Chunks):
        dense = dense_of(head)
        assert dense is not None
        self.task, self.dense = task, dense
        before = keras.Model(head.inputs, dense.input)
        given = [(tf.cast(before(features, training=False), tf.float32), targets) for features, targets in chunks]
        count = sum(len(features) for features, _ in given)
        mean = sum(np.sum(features, 0, np.float64) for features, _ in given) / count
        variance = sum(np.sum((np.asarray(features, np.float64) - mean) ** 2, 0) for features, _ in given) / count
        usual = float(np.sqrt(np.mean(variance)))
        self.mean, self.scale = mean, 1.0 / np.maximum(np.sqrt(variance), max(FLOOR * usual, TINY))
        center, scale = tf.constant(mean, tf.float32), tf.constant(self.scale, tf.float32)
        self.chunks: Chunks = [((features - center) * scale, targets) for features, targets in given]
        self.count = count
        self.shape = tuple(dense.kernel.shape)
        self.size = int(np.prod(self.shape)) + self.shape[1] * bool(dense.use_bias)
        self._slope = tf.function(self._summed, autograph=False, reduce_retracing=True)

    def _summed(self, kernel: tf.Tensor, bias: tf.Tensor, features: tf.Tensor, targets: Any) -> Sequence[tf.Tensor]:
        """The sum of the loss over a chunk, and its gradient."""
        with tf.GradientTape() as tape:
            tape.watch([kernel, bias])
            losses = tf.cast(self.task.loss(features @ kernel + bias, targets, training=True), tf.float32)
            weights = self.task.example_weights(targets)
            total = tf.reduce_sum(losses if weights is None else losses * weights)
        return [total, *tape.gradient(total, [kernel, bias], unconnected_gradients=tf.UnconnectedGradients.ZERO)]

    def __call__(self, flat: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        kernel, bias = self._split(flat)
        total, slopes = 0.5 * strength * float(np.sum(kernel**2)), [strength * kernel, np.zeros_like(bias)]
        for features, targets in self.chunks:
            loss, *gradient = self._slope(tf.constant(kernel, tf.float32), tf.constant(bias, tf.float32), features, targets)
            total += float(loss) / self.count
            slopes = [slope + np.asarray(one, np.float64) / self.count for slope, one in zip(slopes, gradient)]
        return total, np.concatenate([slope.ravel() for slope in slopes])[:self.size]

    def minimised(self, start: np.ndarray, strength: float, options: dict[str, Any]) -> np.ndarray:
        """The weights of the smallest value, from `start` on."""
        return minimize(self, start, args=(strength,), jac=True, method="L-BFGS-B", options={"maxcor": 20, "gtol": 1e-7, **options}).x

    def put(self, flat: np.ndarray) -> None:
        """Sets the dense layer's weights, so that it takes features as they are."""
        kernel, bias = self._split(flat)
        kernel = kernel * self.scale[:, None]
        self.dense.kernel.assign(kernel.astype(np.float32))
        if self.dense.use_bias:
            self.dense.bias.assign((bias - self.mean @ kernel).astype(np.float32))

    def _split(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = int(np.prod(self.shape))
        return flat[:size].reshape(self.shape), flat[size:] if self.dense.use_bias else np.zeros(self.shape[1])
