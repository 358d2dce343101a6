"""The best linear head on features: the task's own loss over all examples, minimised by L-BFGS (Liu and Nocedal 1989).

Features are standardised, so that one regularisation suits all of them, and the last layer takes that into its weights. The strength of
the regularisation is the one whose head is best on examples that it was not fitted to: on train's groups (speakers, patients), held out
in turn, since a head that knows the voices needs less of it than new voices do; else on validation, where it is large enough to tell
strengths apart; else on folds of train.

Features may be a vector for each moment, of which the loss makes one number (CTC). That has several minima: weights then go from strong
regularisation, which leaves every alignment open, to weaker ones. They begin where nearly every moment has the task's usual output, the
blank: from even chances a word that all recordings begin with is often learned as the silence before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from threadpoolctl import threadpool_limits

from pipelines.base.progress import Say, silent
from pipelines.data.lengths import FlatSource
from pipelines.data.source import ArraySource
from pipelines.encoders.features import FEATURES, MOMENTS
from pipelines.fitting.folds import by_chance, by_group
from pipelines.task.contract import Task

STRENGTHS = (1.0, 3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)  # of half the squared weights beside a mean loss
BEFORE_TRAINING = 1e-2  # at least: leaves a loss of which the encoder learns; at weaker ones a few examples are answered without mistake
FIRST = STRENGTHS.index(3e-3)  # then weaker ones while they gain, then stronger ones
FIRST_OF_GROUPS = STRENGTHS.index(1e-1)  # then stronger ones, then weaker ones
FIRST_BY_LOSS = STRENGTHS.index(3e-2)  # of folds that were drawn by chance: there are few examples, or no validation
FOLDED = 10_000  # training examples above which validation, or one fifth of train, says enough
TELLING = 1000  # examples of validation that tell strengths apart; fewer do not choose
TELLING_MOMENTS = 16_384  # in train: with more, one fold tells strengths of a loss over moments apart, and five take minutes
PATIENCE = 2  # strengths in a row without gain, after which no further one is tried that way
CHOOSING = {"maxiter": 40, "ftol": 1e-4}  # each begins where its neighbour ended; 1e-5 takes twice the steps, and chooses no better
FINAL = {"maxiter": 1000, "ftol": 1e-5}
CHUNK = 16_384  # examples, or moments, at a time
MOMENT_STRENGTHS = (30.0, 10.0, 3.0, *STRENGTHS[:8])  # where features are vectors of moments: their loss is a sum over what is written
# where the loss is a distance: on more features than examples, strengths near the variance that the features share
DISTANCE_STRENGTHS = (1000.0, 300.0, 100.0, *MOMENT_STRENGTHS[:3], *STRENGTHS)
FIRST_OF_DISTANCES = DISTANCE_STRENGTHS.index(10.0)
USUAL = 6.0  # nats by which the usual output of moments is more likely than another one where the weights begin; 4 and 9 do the same
MOST = 1 << 30  # bytes of such features that are fitted to
FLOOR = 0.1  # of the features' usual deviation: one that hardly moves is not blown up
TINY = 1e-6
RIGHT = 0.5  # share of train

Chunks = list[tuple[tf.Tensor, Any]]  # (features [n, width] float32, targets)


def dense_of(head: keras.Model, *, moments: bool = False) -> keras.layers.Dense | None:
    """The one layer of a head that has weights, where it is linear and takes features of a whole example, or of moments; else None."""
    own = [layer for layer in head._flatten_layers(include_self=False) if layer.weights]
    dense = own[0] if len(own) == 1 else None
    if not isinstance(dense, keras.layers.Dense) or dense.activation is not keras.activations.linear:
        return None
    return dense if len(dense.input.shape) == (3 if moments else 2) else None


class Emphasis(keras.layers.Layer):
    """Says that the last columns before the last layer are answers by themselves, a score of each class; changes nothing.

    They are standardised to a deviation of `factor` in place of 1, so that weights of theirs cost less, unless that is worse by a standard
    error on examples that the head was not fitted to. Where they are right on less than `RIGHT` of train, the head does without them.
    """

    def __init__(self, factor: float, columns: int, **options: Any):
        super().__init__(**options)
        self.factor, self.columns = factor, columns

    def call(self, inputs: Any) -> Any:
        return inputs


def _ways(task: Task, head: keras.Model, chunks: Chunks) -> list[tuple[int, float]]:
    """(number of last columns, factor) of what is tried; the first is kept unless the other one is plainly better."""
    found = next((layer for layer in head._flatten_layers(include_self=False) if isinstance(layer, Emphasis)), None)
    if found is None or task.output.watch[0] != "accuracy":  # of what are no classes, a column is no answer by itself
        return [(0, 1.0)]
    right = np.concatenate([task.output.scores(features[:, -found.columns:], targets)["accuracy"].numpy() for features, targets in chunks])
    return [(found.columns, found.factor), (found.columns, 1.0)] if np.mean(right) >= RIGHT else [(found.columns, 0.0)]


@dataclass(frozen=True)
class Fitted:
    """What was chosen.

    Attributes:
        strength: of the regularisation.
        metric, value, error: what it was chosen by, its best, and the standard error of that.
        judged_on: the examples that it was chosen on, in words.
        factor: of the columns of an `Emphasis`; 0: the head does without them.
    """

    strength: float
    metric: str
    value: float
    error: float
    judged_on: str
    factor: float = 1.0


@dataclass(frozen=True)
class _Fold:
    """Examples that a head is fitted to, and others that judge it.

    Attributes:
        learned: of each chunk of train, which examples count, float32.
        judged: standardised features and targets.
        counted: of each of these chunks, which examples count, bool.
    """

    learned: list[np.ndarray]
    judged: Chunks
    counted: list[np.ndarray]


def fit(task: Task, head: keras.Model, train: ArraySource, validation: ArraySource | None, views: int, seed: int, least: float = 0.0, *,
        doing: Say = silent) -> Fitted:
    """Sets the weights of `head`, of which `dense_of` knows the layer, with the best regularisation.

    Args:
        task: on features (`features.OnFeatures`).
        train, validation: their features, on this host; a FlatSource where they are vectors of moments.
        views: of each training example.
        seed: of the folds of train, where these choose: without validation, or where it has fewer than `TELLING` examples, and than train.
        least: strength of the regularisation; `BEFORE_TRAINING` for a head with which the training of all that follows begins.
        doing: is told what is fitted now.
    """
    moments = train.flat[FEATURES] if isinstance(train, FlatSource) else None
    grouped = train.groups is not None and len(set(train.groups)) > 1 and (validation is None or len(train) <= FOLDED)
    if grouped or (moments is None and validation is not None and len(validation) < min(TELLING, len(train))):
        validation = None  # folds of train choose
    distance = moments is None and task.output.learning.distance
    every = DISTANCE_STRENGTHS if distance else STRENGTHS if moments is None else MOMENT_STRENGTHS
    strengths = [one for one in every if one >= least]
    by_loss = moments is None and not grouped and validation is None
    usual = FIRST_OF_DISTANCES if distance else FIRST_OF_GROUPS if grouped else FIRST_BY_LOSS if by_loss else FIRST
    first = 0 if moments is not None else min(usual, len(strengths) - 1)
    tried, chunks = [], _chunks(task, train, views)
    with threadpool_limits(1, user_api="blas"):  # L-BFGS adds and multiplies vectors: several threads take six times the processor time
        for columns, factor in _ways(task, head, chunks):
            fitting = _Objective(task, head, chunks, columns, factor, moments, doing)
            folds, judged_on = _folds(task, fitting, train, validation, views, seed, grouped)
            quality, chosen, weights = _chosen(fitting, folds, judged_on, grouped and moments is None, strengths, first, by_loss=by_loss)
            tried.append((quality, replace(chosen, factor=factor), weights, fitting))
        best = max(tried, key=lambda one: one[0])
        _, chosen, weights, fitting = next(one for one in tried if one[0] >= best[0] - best[1].error)
        doing(f"fitting the last layer to all of train, regularisation {chosen.strength:g}")
        fitting.put(fitting.minimised(weights, chosen.strength, FINAL))
    return chosen


def _folds(task: Task, fitting: "_Objective", train: ArraySource, validation: ArraySource | None, views: int, seed: int, grouped: bool,
           ) -> tuple[list[_Fold], str]:
    """By what the strength is chosen, and its name."""
    if validation is not None:
        judged = [(fitting.standardised(features), targets) for features, targets in _chunks(task, validation, 1)]
        return [_Fold(fitting.all, judged, [np.ones(len(features), bool) for features, _ in judged])], "validation"
    numbers = by_group(train.groups) if grouped and train.groups is not None else by_chance(train.labels, len(train), seed)
    count = int(numbers.max()) + 1
    name = f"train, its groups held out in {count} folds" if grouped else f"train, held out in {count} folds"
    if (not grouped and len(train) > FOLDED) or (isinstance(train, FlatSource) and len(train.flat[FEATURES]) > TELLING_MOMENTS):
        count, name = 1, "groups that are a fifth of train" if grouped else "a fifth of train"
    pieces = _pieces(train, views)
    return [_Fold([(numbers[rows] != fold).astype(np.float32) for _, rows in pieces], fitting.chunks,
                  [numbers[rows] == fold for _, rows in pieces]) for fold in range(count)], name


def _chosen(objective: "_Objective", folds: list[_Fold], judged_on: str, grouped: bool, strengths: Sequence[float], first: int, *,
            by_loss: bool) -> tuple[float, Fitted, np.ndarray]:
    """How good the best strength is, this strength, and weights that it gave; a climb from number `first`, since a good one takes less
    time than the extremes.

    Folds that were drawn by chance choose by the loss, which has no steps: by accuracy a few examples have several best strengths. Of
    strengths that are equally good, the one with the smallest loss; with groups, where a small loss is often that of a head which does
    worse on new ones (docs/pretrained.md), the strongest.
    """
    tried: dict[int, tuple[tuple[float, float], Fitted, list[np.ndarray]]] = {}

    def attempt(place: int, begins: list[np.ndarray]) -> None:
        objective.doing(f"fitting the last layer, regularisation {strengths[place]:g}")
        weights = [objective.minimised(begin, strengths[place], CHOOSING, fold.learned) for begin, fold in zip(begins, folds)]
        (quality, loss), metric, value, error = _judged(objective, folds, weights, by_loss)
        tried[place] = (quality, strengths[place] if grouped else loss), Fitted(strengths[place], metric, value, error, judged_on), weights

    attempt(first, [objective.start] * len(folds))
    for way in (-1, 1) if grouped else (1, -1):
        best, place, since = max(one[0] for one in tried.values()), first, 0
        if best > tried[first][0]:
            break
        while since < PATIENCE and 0 <= place + way < len(strengths):
            attempt(place + way, tried[place][2])
            place += way
            best, since = (tried[place][0], 0) if tried[place][0] > best else (best, since + 1)
    (quality, _), fitted, weights = max(tried.values(), key=lambda one: one[0])
    return quality, fitted, weights[0]


def _judged(objective: "_Objective", folds: list[_Fold], weights: list[np.ndarray], by_loss: bool,
            ) -> tuple[tuple[float, float], str, float, float]:
    """((what is better when larger, then by the loss), the metric's name, its value and standard error), over what all folds judge."""
    task, totals = objective.task, {}  # type: Task, dict[str, list[np.ndarray]]
    for fold, flat in zip(folds, weights):
        for (features, targets), counted in zip(fold.judged, fold.counted):
            outputs = objective.outputs(features, flat)
            for name, value in {"loss": task.output.loss(outputs, targets, training=False), **task.output.scores(outputs, targets)}.items():
                if len(value.shape) == 1:
                    totals.setdefault(name, []).append(np.asarray(value, np.float64)[counted])
    values = {name: np.concatenate(parts) for name, parts in totals.items()}
    means = {name: float(np.mean(each)) for name, each in values.items()}
    name, direction = task.output.watch if task.output.watch[0] in means and not by_loss else ("loss", "min")
    error = float(np.std(values[name])) / len(values[name]) ** 0.5
    return (means[name] if direction == "max" else -means[name], -means["loss"]), name, means[name], error


def _pieces(source: ArraySource, views: int) -> list[tuple[int, np.ndarray]]:
    """(view, numbers) of each chunk of the examples; of vectors of moments, examples with about as many stand together."""
    count = len(source)
    if isinstance(source, FlatSource):
        moments = source.arrays[MOMENTS]
        order, each = np.argsort(moments, kind="stable"), max(1, CHUNK // max(1, int(np.max(moments))))
        return [(0, order[start:start + each]) for start in range(0, count, each)]
    return [(view, np.arange(start, min(count, start + CHUNK))) for view in range(max(views, 1)) for start in range(0, count, CHUNK)]


def _chunks(task: Task, source: ArraySource, views: int) -> Chunks:
    """Features and targets, each view by itself."""
    found: Chunks = []
    for view, rows in _pieces(source, views):
        if isinstance(source, FlatSource):
            found.append(task.prepare(source.gather(tf.constant(rows))))
            continue
        values = {name: array[rows, view] if views > 1 else array[rows] for name, array in source.arrays.items()}
        found.append(task.prepare({name: tf.constant(value) for name, value in values.items()}))
    return found


def _squares(array: np.ndarray) -> np.ndarray:
    """The sum of squares of each column, float64, without a copy of the array in float64."""
    return np.einsum("ij,ij->j", array, array, dtype=np.float64)


class _Objective:
    """The mean training loss of a dense layer with some regularisation, as a function of its weights on standardised features, of which the
    last `columns` have the deviation `factor`.

    Attributes:
        chunks: standardised features and targets of train.
        all: of each chunk, that every example counts.
        size: number of weights.
        start: weights to begin with.

    Args:
        moments: the vectors of all moments of train, [moments, width], where chunks have them padded, [n, most, width].
    """

    def __init__(self, task: Task, head: keras.Model, chunks: Chunks, columns: int = 0, factor: float = 1.0,
                 moments: np.ndarray | None = None, doing: Say = silent):
        dense = dense_of(head, moments=moments is not None)
        assert dense is not None
        self.task, self.dense, self.doing = task, dense, doing
        self._before = keras.Model(head.inputs, dense.input)
        given = [self._given(features) for features, _ in chunks]
        rows = given if moments is None else [
            self._given(tf.constant(moments[None, start:start + CHUNK]))[0] for start in range(0, len(moments), CHUNK)]
        count = sum(len(features) for features in rows)
        mean: np.ndarray = np.sum([np.sum(features, 0, np.float64) for features in rows], 0) / count
        variance: np.ndarray = np.sum([_squares(np.asarray(features) - mean.astype(np.float32)) for features in rows], 0) / count
        plain = len(variance) - columns
        usual = float(np.sqrt(np.mean(variance[:plain])))
        self.mean, self.scale = mean, 1.0 / np.maximum(np.sqrt(variance), max(FLOOR * usual, TINY))
        self.scale[plain:] *= factor
        self.chunks: Chunks = [(self._standard(features), targets) for features, (_, targets) in zip(given, chunks)]
        self.all = [np.ones(len(features), np.float32) for features in given]
        self.shape = tuple(dense.kernel.shape)
        self.size = int(np.prod(self.shape)) + self.shape[1] * bool(dense.use_bias)
        self.start = np.zeros(self.size)
        if moments is not None and task.output.learning.blank is not None and dense.use_bias:
            self._split(self.start)[1][task.output.learning.blank] = USUAL
        self._slope = tf.function(self._summed, autograph=False, reduce_retracing=True)

    def standardised(self, features: tf.Tensor) -> tf.Tensor:
        """What stands before the dense layer, [n, width] or [n, moments, width] float32, of mean 0 and usual deviation 1 over train."""
        return self._standard(self._given(features))

    def _given(self, features: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._before(features, training=False), tf.float32)

    def _standard(self, given: tf.Tensor) -> tf.Tensor:
        return (given - tf.constant(self.mean, tf.float32)) * tf.constant(self.scale, tf.float32)

    def _summed(self, kernel: tf.Tensor, bias: tf.Tensor, features: tf.Tensor, targets: Any, counted: tf.Tensor) -> Sequence[tf.Tensor]:
        """The sum of the loss over the examples of a chunk that count, and its gradient."""
        outputs = tf.tensordot(features, kernel, 1) + bias
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            losses = tf.cast(self.task.output.loss(outputs, targets, training=True), tf.float32) * counted
            weights = self.task.output.example_weights(targets)
            total = tf.reduce_sum(losses if weights is None else losses * weights)
        slope = tape.gradient(total, outputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        slope, features = (tf.reshape(one, [-1, one.shape[-1]]) for one in (slope, features))
        # features, of which there are more than outputs, are not transposed
        return [total, tf.transpose(tf.matmul(slope, features, transpose_a=True)), tf.reduce_sum(slope, 0)]

    def _value(self, flat: np.ndarray, strength: float, counted: list[np.ndarray]) -> tuple[float, np.ndarray]:
        kernel, bias = self._split(flat)
        count = float(sum(one.sum(dtype=np.float64) for one in counted))
        total, slopes = 0.5 * strength * float(np.sum(kernel**2)), [strength * kernel, np.zeros_like(bias)]
        for (features, targets), each in zip(self.chunks, counted):
            loss, *gradient = self._slope(tf.constant(kernel, tf.float32), tf.constant(bias, tf.float32), features, targets, each)
            total += float(loss) / count
            slopes = [slope + np.asarray(one, np.float64) / count for slope, one in zip(slopes, gradient)]
        return total, np.concatenate([slope.ravel() for slope in slopes])[:self.size]

    def minimised(self, start: np.ndarray, strength: float, options: dict[str, Any], counted: list[np.ndarray] | None = None) -> np.ndarray:
        """The weights of the smallest value, from `start` on; over the examples that count, by default all."""
        counted = counted or self.all
        from scipy.optimize import minimize

        return minimize(self._value, start, args=(strength, counted), jac=True, method="L-BFGS-B",
                        options={"maxcor": 8, "gtol": 1e-7, **options}).x  # more of its own work grows with their square

    def outputs(self, features: tf.Tensor, flat: np.ndarray) -> tf.Tensor:
        """Of the dense layer with these weights, for standardised features."""
        kernel, bias = self._split(flat)
        return tf.tensordot(features, tf.constant(kernel, tf.float32), 1) + tf.constant(bias, tf.float32)

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
