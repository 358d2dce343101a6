"""A machine with a Gaussian kernel: an example is answered by its similarity to training examples, fitted by regularised least squares.

Least squares divide classes about as well as a support vector machine on the same features (Rifkin and Klautau 2004, "In Defense of
One-Vs-All Classification"), have one solution, and say of every training example how it would be answered if its fold were left out: so
the width of the kernel, the regularisation and the part of each kind of features are chosen on folds of train without fitting anew
(Pahikkala et al. 2006). Where there are more training examples than are kept, those that are kept stand for all (subset of regressors:
Williams and Seeger 2001, "Using the Nystroem Method to Speed Up Kernel Machines").
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.linalg import cho_factor, cho_solve, lapack, solve
from threadpoolctl import threadpool_limits

from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part, folds, of_classes, of_labels
from pipelines.task.output import Features

WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # times the mean squared distance of two examples
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)  # of the kernel's diagonal, which is 1
PARTS = (0.0, 0.3, 1.0, 3.0)  # of a block of features in the distance
FIRST = (2, 3, 2)  # places of what is tried first: a width, a ridge, and the part of every block
GAIN = 1e-3  # of the loss (see `_Choice`) by which another one is better
MOST, SUPPORT = 50_000, 3_000  # examples that are fitted to, and that answers are compared with
CHOOSING = 1_500  # examples on which these are chosen, at most
CHUNK = 4_096  # examples whose similarities are computed at a time
EVEN = 0.5  # score of a label that is as likely there as not
STILL = 1e-6  # a deviation below which a feature says nothing

Truth = Callable[[dict[str, np.ndarray]], np.ndarray]  # targets of examples -> what is learned of them


class Described(keras.layers.Layer):
    """What a function in graph makes of the inputs, [batch, width] float32. Nothing of it is learned."""

    def __init__(self, describe: Callable[[Any], tf.Tensor], **options):
        super().__init__(**{"dtype": "float32", **options})
        self.describe = describe

    def call(self, inputs):
        return self.describe(inputs)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}  # a run is built again from its experiment


class KernelMachine(keras.layers.Layer):
    """Features [batch, width] float32 -> logits [batch, classes] float32; all 0 before `put`. No step trains it.

    Args:
        support: training examples that it is compared with.
    """

    def __init__(self, support: int, classes: int, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.support, self.classes = support, classes

    def build(self, shape):
        def weight(name, *shape):
            return self.add_weight(shape=shape, initializer="zeros", trainable=False, name=name)

        width = shape[-1]
        self.mean, self.scale = weight("mean", width), weight("scale", width)
        self.examples, self.coefficients = weight("examples", self.support, width), weight("coefficients", self.support, self.classes)
        self.bias = weight("bias", self.classes)

    def call(self, features):
        scaled = (features - self.mean) * self.scale
        own = tf.reduce_sum(tf.square(scaled), 1, keepdims=True)
        theirs = tf.reduce_sum(tf.square(self.examples), 1)
        distances = own + theirs - 2.0 * tf.matmul(scaled, tf.convert_to_tensor(self.examples), transpose_b=True)
        return tf.matmul(tf.exp(-tf.maximum(distances, 0.0)), tf.convert_to_tensor(self.coefficients)) + self.bias

    def compute_output_spec(self, features):
        return keras.KerasTensor((features.shape[0], self.classes), "float32")

    def put(self, fitted: "Fitted") -> None:
        """Sets the weights. Fewer examples than `support` are filled up with such that count nothing."""
        missing = [(0, self.support - len(fitted.examples)), (0, 0)]
        for weight, value in ((self.mean, fitted.mean), (self.scale, fitted.scale), (self.examples, np.pad(fitted.examples, missing)),
                              (self.coefficients, np.pad(fitted.coefficients, missing)), (self.bias, fitted.bias)):
            weight.assign(value.astype(np.float32))


def build(shape: Sequence[int], describe: Callable[[Any], tf.Tensor] | Described, *, support: int, classes: int) -> keras.Model:
    """The model from inputs [batch, *shape] float32 to logits [batch, classes]: the layers `features` and `machine`."""
    inputs = keras.Input(shape, dtype="float32", name="inputs")
    features = (describe if isinstance(describe, Described) else Described(describe, name="features"))(inputs)
    return keras.Model(inputs, KernelMachine(support, classes, name="machine")(features), name="kernel")


def kept_of(facts: dict[str, Any], support: int = SUPPORT) -> int:
    """Training examples that a model keeps, `support` at most, by the facts of its task."""
    counts = facts.get("class_counts")
    return min(support, sum(counts) if counts else facts["splits"]["train"]["examples"])


@dataclass(frozen=True)
class Fitted:
    """What was learned; `examples` are scaled features. `how` says what was chosen, and by what. Of the examples that it was chosen on
    `held_out` are the logits without their fold, [some, classes], and `truth` their labels."""

    mean: np.ndarray
    scale: np.ndarray
    examples: np.ndarray
    coefficients: np.ndarray
    bias: np.ndarray
    how: str
    held_out: np.ndarray
    truth: np.ndarray

    def logits(self, features: np.ndarray) -> np.ndarray:
        """[n, width] -> [n, classes], as the layer gives them."""
        scaled = (features - self.mean) * self.scale
        return np.concatenate([np.exp(-_distances(scaled[start:start + CHUNK], self.examples)) @ self.coefficients + self.bias
                               for start in range(0, len(scaled), CHUNK)])


def label_of(targets: dict[str, np.ndarray]) -> np.ndarray:
    """What is learned of examples of one class each: its number, [n] int."""
    return targets["label"]


def fit_model(model: keras.Model, train: Source, features: Features, describe: Callable[[Any], tf.Tensor], *, blocks: Sequence[int] = (),
              seed: int = 0, truth: Truth = label_of) -> str:
    """Fits a model of `build`; says how. Arguments as those of `fit_source`."""
    machine = model.get_layer("machine")
    classes = machine.classes if truth is label_of else None
    fitted = fit_source(train, features, describe, classes, blocks=blocks, support=machine.support, seed=seed, truth=truth)
    machine.put(fitted)
    return fitted.how


def fit_source(train: Source, features: Features, describe: Callable[[Any], tf.Tensor], classes: int | None, *, blocks: Sequence[int] = (),
               most: int = MOST, support: int = SUPPORT, seed: int = 0, truth: Truth = label_of) -> Fitted:
    """Fits examples of one class each, of several labels, or of numbers.

    Args:
        features: as a task's `baseline` takes it.
        describe: the model's inputs -> [batch, width] float32, in graph.
        most: examples that are fitted to; of more, these are drawn.
        classes, blocks, support, seed: as `fit` takes them.
        truth: targets -> what is learned, as `fit` takes it.
    """
    part = fitting_part(train, most)
    values, targets = features(part, describe)
    return fit(values, truth(targets), classes, groups=part.groups, blocks=blocks, support=support, seed=seed)


def fit(features: np.ndarray, labels: np.ndarray, classes: int | None, *, groups: np.ndarray | None = None, blocks: Sequence[int] = (),
        support: int = SUPPORT, seed: int = 0) -> Fitted:
    """Fits all examples.

    Args:
        features: [n, width].
        labels: [n] int, 0 .. classes - 1; [n, classes] of 0 and 1 where an example has several, so that each logit is of one label; or
            [n, columns] float, numbers.
        classes: None where numbers are learned.
        groups: [n], of examples that are held out together; None: each by itself.
        blocks: widths of groups of features that stand beside one another, of which folds choose how much each counts; empty: one.
        support: examples that are kept, at most.
    """
    blocks = blocks or (features.shape[1],)
    mean, scale = _scaling(features, blocks)
    scaled = ((features - mean) * scale).astype(np.float32)
    several = classes is not None and labels.ndim == 2
    truth = labels.astype(np.float64) if classes is None or several else np.eye(classes)[labels]
    bias = truth.mean(0)
    draw = np.random.default_rng(seed)
    some = _some(len(labels), CHOOSING, draw)
    fold = folds(labels[some] if labels.ndim == 1 else None, None if groups is None else groups[some], len(some), seed)
    with threadpool_limits(1, user_api="blas"):  # of matrices this small: several threads wait for one another for most of the time
        chosen = _chosen(scaled[some], blocks, (truth - bias)[some], bias, None if classes is None else labels[some], fold)
    factor = np.repeat(np.sqrt(np.array(chosen.parts) / chosen.width), blocks).astype(np.float32)
    scaled *= factor
    kept = _some(len(labels), support, draw)
    coefficients = _solved(scaled, scaled[kept], truth - bias, chosen.ridge)
    well = f"R squared {chosen.right:.3g}" if classes is None else f"{chosen.right:.1%} right"
    how = f"width {chosen.width:g} and ridge {chosen.ridge:g} were chosen on train, held out in {fold.max() + 1} folds ({well})"
    border, sharpness = EVEN if several else 0.0, chosen.sharpness
    return Fitted(mean, scale * factor, scaled[kept], sharpness * coefficients, sharpness * (bias - border), how,
                  sharpness * (chosen.scores - border), labels[some])


def _some(count: int, most: int, draw: np.random.Generator) -> np.ndarray:
    return np.arange(count) if count <= most else np.sort(draw.choice(count, most, replace=False))


def _scaling(features: np.ndarray, blocks: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and factor of each feature, after which the mean squared distance of two examples is 1, each block's part the same."""
    mean, deviation = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    parts = np.repeat([1.0 / (2.0 * width * len(blocks)) for width in blocks], blocks)
    return mean, np.where(deviation > STILL, np.sqrt(parts) / np.maximum(deviation, STILL), 0.0)


def _distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Squared, of each of ours to each of theirs."""
    return np.maximum(np.square(ours).sum(1)[:, None] + np.square(theirs).sum(1) - 2.0 * ours @ theirs.T, 0.0)


@dataclass(frozen=True, order=True)
class _Choice:
    """What was tried, by its mean loss on held-out examples: in nats, or of numbers the squared error by their variance.

    Attributes:
        parts: of each block in the squared distance.
        sharpness: by which scores are log-odds; 1 of numbers.
        right: share of right answers; of numbers R squared.
        scores: of the held-out examples, [n, classes].
    """

    loss: float
    width: float
    ridge: float
    parts: tuple[float, ...]
    sharpness: float
    right: float
    scores: np.ndarray = field(compare=False)


def _chosen(scaled: np.ndarray, blocks: Sequence[int], wanted: np.ndarray, bias: np.ndarray, labels: np.ndarray | None,
            fold: np.ndarray) -> _Choice:
    """The best by its loss, of numbers where there are no labels: a climb from `FIRST`, one step of one of them at a time."""
    edges = np.cumsum([0, *blocks])
    apart = [_distances(*2 * (scaled[:, first:last],)).astype(np.float64) for first, last in pairwise(edges)]
    scales = (WIDTHS, RIDGES, *([PARTS] * len(blocks) if len(blocks) > 1 else [(1.0,)]))
    tried: dict[tuple[int, ...], _Choice] = {}

    def attempt(place: tuple[int, ...]) -> _Choice:
        if place not in tried:
            width, ridge, *parts = (scale[number] for scale, number in zip(scales, place))
            kernel = np.exp(-sum(part * distances for part, distances in zip(parts, apart)) / width)
            scores = bias + held_out(kernel, wanted, ridge, fold)
            if labels is None:
                sharpness, loss = 1.0, float(np.square(scores - bias - wanted).mean() / max(np.square(wanted).mean(), STILL))
                right = 1.0 - loss
            elif labels.ndim == 1:
                sharpness, loss = of_classes(scores, labels)
                right = float(np.mean(scores.argmax(1) == labels))
            else:
                sharpness, loss = of_labels(scores, labels > EVEN, EVEN)
                right = float(np.mean((scores > EVEN) == (labels > EVEN)))
            tried[place] = _Choice(loss, width, ridge, tuple(parts), sharpness, right, scores)
        return tried[place]

    best = (*FIRST[:2], *([FIRST[2]] * len(blocks) if len(blocks) > 1 else [0]))
    moved = True
    while moved:
        moved = False
        for which, scale in enumerate(scales):
            for step in (-1, 1):
                while 0 <= (number := best[which] + step) < len(scale):
                    other = (*best[:which], number, *best[which + 1:])
                    if attempt(other).loss > attempt(best).loss - GAIN:
                        break
                    best, moved = other, True
    return attempt(best)


def held_out(kernel: np.ndarray, wanted: np.ndarray, ridge: float, fold: np.ndarray) -> np.ndarray:
    """What each example is answered by the fit to the examples of the other folds, [n, classes]."""
    factor = cho_factor(kernel + ridge * np.eye(len(kernel)), lower=True, overwrite_a=True)
    coefficients, answers = cho_solve(factor, wanted), np.empty_like(wanted)
    inverse, _ = lapack.dpotri(factor[0], lower=True)  # its lower triangle, with half the work of solving for it
    for number in range(fold.max() + 1):
        rows = np.flatnonzero(fold == number)
        answers[rows] = wanted[rows] - solve(inverse[np.ix_(rows, rows)], coefficients[rows], assume_a="pos", lower=True)
    return answers


def _solved(scaled: np.ndarray, kept: np.ndarray, wanted: np.ndarray, ridge: float) -> np.ndarray:
    """Coefficients [kept, classes]; with all examples kept, (K + ridge I)^-1 of what is wanted."""
    among = np.exp(-_distances(kept, kept).astype(np.float64))
    if len(kept) == len(scaled):
        return cho_solve(cho_factor(among + ridge * np.eye(len(kept)), lower=True, overwrite_a=True), wanted)
    left, right = ridge * among, np.zeros((len(kept), wanted.shape[1]))
    for start in range(0, len(scaled), CHUNK):
        part = np.exp(-_distances(scaled[start:start + CHUNK], kept).astype(np.float64))
        left += part.T @ part
        right += part.T @ wanted[start:start + CHUNK]
    left[np.diag_indices_from(left)] += 1e-6 * np.trace(left) / len(left)
    return cho_solve(cho_factor(left, lower=True, overwrite_a=True), right)
