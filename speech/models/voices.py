"""What makes vectors of recordings whose pairs say whether one voice speaks in both.

A vector is [batch, width + 1] float32: the score of two is the product of their first `width` values plus the last values of both. Of PLDA
the score is the logarithm of how much likelier one voice is than two; of a network it is the cosine.

PLDA: a recording is its voice's mean, which is normally distributed over voices, and a deviation, which is normally distributed over the
recordings of any voice (Ioffe 2006, "Probabilistic Linear Discriminant Analysis"; Bruemmer and de Villiers 2010). Standardised features are
first brought to one length (Garcia-Romero and Espy-Wilson 2011, "Analysis of I-vector Length Normalization"). Both covariances are drawn to
their diagonals, as features are many and voices few; how far, folds of train choose that hold voices out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.linalg import eigh
from scipy.special import expit
from threadpoolctl import threadpool_limits

from pipelines.data.source import Source
from pipelines.fitting.folds import by_group, fitting_part
from pipelines.fitting.kernel import Described
from pipelines.task.contract import Features
from speech.settings import Plda

# how far the covariances within and between voices are drawn to their diagonals
DRAWN = ((0.03, 0.01), (0.1, 0.03), (0.3, 0.1), (0.6, 0.3), (0.9, 0.5))
MOST, CHOOSING = 50_000, 1_500  # recordings that are fitted to, and on which these are chosen, at most
STILL = 1e-6  # a deviation below which a feature says nothing
TINY = 1e-12
STEPS = 50  # of the logistic regression, at most


def build(settings: Plda, *, frames: int, width: int, describe: Callable[[Any], tf.Tensor]) -> keras.Model:
    """Features [batch, frames, width] float32 to vectors. All weights are 0 before `put`."""
    inputs = keras.Input([frames, width], dtype="float32", name="inputs")
    vectors = TwoCovariances(name="voices")(Described(describe, name="statistics")(inputs))
    return keras.Model(inputs, vectors, name="plda")


def with_voices(model: keras.Model, voices: int) -> keras.Model:
    """A network to [batch, width] as one to {"vector": [batch, width + 1], "cosines": [batch, voices]}, of each voice of train."""
    unit = keras.layers.UnitNormalization(dtype="float32", name="unit")(model.output)
    vector = keras.layers.ZeroPadding1D((0, 1), name="vector", dtype="float32")(keras.layers.Reshape((-1, 1), dtype="float32")(unit))
    return keras.Model(model.input, {"vector": keras.layers.Reshape((-1,), dtype="float32", name="vectors")(vector),
                                     "cosines": Cosines(voices, name="cosines")(unit)}, name=model.name)


class Cosines(keras.layers.Layer):
    """Vectors of length 1 [batch, width] to their cosines with the vector of each voice, [batch, voices] float32."""

    def __init__(self, voices: int, **options: Any):
        super().__init__(**{"dtype": "float32", **options})
        self.voices = voices

    def build(self, shape: Any) -> None:
        self.directions = self.add_weight(shape=(shape[-1], self.voices), initializer="glorot_uniform", name="directions")

    def call(self, vectors: Any) -> tf.Tensor:
        return tf.matmul(vectors, tf.math.l2_normalize(tf.convert_to_tensor(self.directions), 0))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.voices)


class TwoCovariances(keras.layers.Layer):
    """Features [batch, values] float32 to vectors [batch, values + 1] float32; all 0 before `put`. No step trains it."""

    def __init__(self, **options: Any):
        super().__init__(**{"dtype": "float32", **options})

    def build(self, shape: Any) -> None:
        def weight(name: str, *shape: int) -> Any:
            return self.add_weight(shape=shape, initializer="zeros", trainable=False, name=name)

        width = shape[-1]
        self.mean, self.scale, self.centre = weight("mean", width), weight("scale", width), weight("centre", width)
        self.projection, self.own, self.constant = weight("projection", width, width), weight("own", width), weight("constant")

    def call(self, features: Any) -> tf.Tensor:
        values = (features - self.mean) * self.scale
        values = tf.math.l2_normalize(values, 1, TINY) * float(values.shape[-1]) ** 0.5
        values = tf.matmul(values - self.centre, tf.convert_to_tensor(self.projection))
        return tf.concat([values, tf.reduce_sum(tf.square(values) * self.own, 1, keepdims=True) + self.constant], 1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], input_shape[1] + 1)

    def put(self, fitted: "Fitted") -> None:
        """Sets the weights."""
        for name in ("mean", "scale", "centre", "projection", "own", "constant"):
            getattr(self, name).assign(np.asarray(getattr(fitted, name), np.float32))


@dataclass(frozen=True)
class Fitted:
    """What was learned, float64; `how` says what was chosen."""

    mean: np.ndarray
    scale: np.ndarray
    centre: np.ndarray
    projection: np.ndarray
    own: np.ndarray
    constant: float
    how: str = ""

    def vectors(self, features: np.ndarray) -> np.ndarray:
        """As the layer gives them, of features [n, values]."""
        values = (normalized((features - self.mean) * self.scale) - self.centre) @ self.projection
        return np.concatenate([values, np.square(values) @ self.own[:, None] + self.constant], 1)


def normalized(values: np.ndarray) -> np.ndarray:
    """Each of [n, width] at the length that standardised values have on average, the root of the width."""
    return values * (values.shape[1] / np.maximum(np.sum(np.square(values), 1, keepdims=True), TINY)) ** 0.5


def scores(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of each of [n, width + 1] with each of [m, width + 1]: [n, m]."""
    return vectors[:, :-1] @ others[:, :-1].T + vectors[:, -1:] + others[:, -1]


def fit_source(train: Source, features: Features, describe: Callable[[Any], tf.Tensor],
               way: Callable[[np.ndarray, np.ndarray], Fitted]) -> Fitted:
    """Fits to statistics of the recordings of train, by `fit` or `cosine`; arguments as those of pipelines.fitting.kernel.fit_source."""
    values, targets = features(fitting_part(train, MOST), describe)
    return way(values.astype(np.float64), targets["label"])


def cosine(features: np.ndarray, labels: np.ndarray) -> Fitted:
    """The cosine of standardised features, made log-odds by the pairs of train; arguments as those of `fit`."""
    mean, scale = _standard(features)
    some, width = _some(len(labels)), features.shape[1]
    values = normalized((features[some] - mean) * scale) / width**0.5
    first, second = np.triu_indices(len(some), 1)
    found, same = np.sum(values[first] * values[second], 1), labels[some][first] == labels[some][second]
    steepness, offset = _rising(*calibration(found, same)[:2]) if same.any() and not same.all() else (1.0, 0.0)
    return Fitted(mean, scale, np.zeros(width), np.eye(width) * (steepness / width) ** 0.5, np.zeros(width), offset / 2.0)


def fit(features: np.ndarray, labels: np.ndarray) -> Fitted:
    """Fits all recordings.

    Args:
        features: [n, values] float64.
        labels: [n] int, of four voices or more, one of which has two recordings or more.
    """
    some = _some(len(labels))
    fold = by_group(labels[some], max(2, min(5, len(np.unique(labels[some])) // 2)))
    found: list[tuple[float, float, float, tuple[float, float]]] = []
    with threadpool_limits(1, user_api="blas"):  # of matrices this small
        for drawn in DRAWN:
            held_out = _held_out(features[some], labels[some], fold, drawn)
            if held_out is not None:
                scale, offset, loss = calibration(*held_out)
                found.append((loss, scale, offset, drawn))
        if not found:  # folds without two voices, or without a pair of one: nothing can be chosen
            return _fit(features, labels, DRAWN[-2])
        loss, scale, offset, drawn = min(found)
        fitted = _fit(features, labels, drawn)
    how = (f"that its covariances are drawn to their diagonals by {drawn[0]:g} within voices and {drawn[1]:g} between was chosen on train, "
           f"voices held out in {fold.max() + 1} folds ({loss / np.log(2):.3f} bits a pair, 1 knows nothing)")
    scale, offset = _rising(scale, offset)
    return replace(fitted, projection=fitted.projection * scale**0.5, constant=scale * fitted.constant + offset / 2.0, how=how)


def _some(count: int) -> np.ndarray:
    """The recordings on which is chosen."""
    return np.arange(count) if count <= CHOOSING else np.sort(np.random.default_rng(0).choice(count, CHOOSING, replace=False))


def _rising(scale: float, offset: float) -> tuple[float, float]:
    """Of scores that say nothing, or the contrary, log-odds of 0."""
    return (scale, offset) if scale > TINY else (TINY, 0.0)


def _held_out(features: np.ndarray, labels: np.ndarray, fold: np.ndarray, drawn: tuple[float, float],
              ) -> tuple[np.ndarray, np.ndarray] | None:
    """(score, whether of one voice) of all pairs within folds, each by what the others taught."""
    found, same = [], []
    for number in range(fold.max() + 1):
        out = fold == number
        if np.unique(labels[~out], return_counts=True)[1].max(initial=0) < 2 or len(np.unique(labels[~out])) < 2:
            continue
        vectors = _fit(features[~out], labels[~out], drawn).vectors(features[out])
        first, second = np.triu_indices(int(out.sum()), 1)
        found.append(scores(vectors, vectors)[first, second])
        same.append(labels[out][first] == labels[out][second])
    every, truth = np.concatenate([*found, np.zeros(0)]), np.concatenate([*same, np.zeros(0, bool)])
    return (every, truth) if truth.any() and not truth.all() else None


def _fit(features: np.ndarray, labels: np.ndarray, drawn: tuple[float, float]) -> Fitted:
    """Of both covariances; each voice counts alike."""
    mean, scale = _standard(features)
    values = normalized((features - mean) * scale)
    names, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.zeros((len(names), values.shape[1]))
    np.add.at(means, which, values)
    means /= counts[:, None]
    apart = (values - means[which]) / np.sqrt(counts[which] * max(1, int(np.sum(counts > 1))))[:, None]
    within, between = (_drawn(matrix, share) for matrix, share in zip((apart.T @ apart, np.cov(means.T, bias=True)), drawn))
    shares, axes = eigh(between, within)  # within voices each axis has the variance 1
    share = np.maximum(shares, TINY)
    whole = share + 1.0
    determinant = whole**2 - share**2
    root = np.sqrt(share / determinant)
    own = -0.5 * (whole / determinant - 1.0 / whole) / np.square(root)
    return Fitted(mean, scale, means.mean(0), axes * root, own, float(0.5 * np.sum(np.log(whole) - 0.5 * np.log(determinant))))


def _standard(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and factor of each feature, after which its deviation is 1."""
    deviation = features.std(0)
    return features.mean(0), np.where(deviation > STILL, 1.0 / np.maximum(deviation, STILL), 0.0)


def _drawn(matrix: np.ndarray, share: float) -> np.ndarray:
    """A covariance drawn to its diagonal; what does not vary is taken to vary a little."""
    diagonal = np.diag(matrix)
    return (1.0 - share) * matrix + np.diag(share * diagonal + STILL * max(float(diagonal.mean()), STILL))


def calibration(found: np.ndarray, same: np.ndarray) -> tuple[float, float, float]:
    """(scale, offset, loss): scale * score + offset is the log-odds that a pair is of one voice, pairs of one voice and of two weighing
    half each; the loss is their mean cross-entropy in nats (Bruemmer and du Preez 2006, "Application-Independent Evaluation of Speaker
    Detection").

    Args:
        found: scores [pairs].
        same: [pairs] bool, of both kinds.
    """
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    centre, spread = float(found.mean()), float(found.std()) or 1.0
    design = np.stack([(found - centre) / spread, np.ones(len(found))], 1)
    signed = np.where(same, 1.0, -1.0)

    def loss(line: np.ndarray) -> float:
        return float(weights @ (np.logaddexp(0.0, -signed * (design @ line)))) + 1e-6 * float(line @ line)

    line = np.zeros(2)
    for _ in range(STEPS):
        probability = expit(design @ line)
        gradient = design.T @ (weights * (probability - same)) + 2e-6 * line
        curvature = (design * (weights * probability * (1.0 - probability))[:, None]).T @ design + 2e-6 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        reach = 1.0
        while loss(line - reach * step) > loss(line) and reach > 1e-6:
            reach /= 2.0
        line = line - reach * step
        if np.abs(reach * step).max() < 1e-9:
            break
    return float(line[0] / spread), float(line[1] - line[0] * centre / spread), loss(line)
