"""The cheap model beside a recogniser of commands: a kernel classifier on statistics of cepstra, fitted in seconds."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source
from pipelines.reports.baselines import Baseline, fitting_part, kernel_ridge

COEFFICIENTS = 20
PARTS = 4  # of a recording's window, each with its own mean
NAME = "kernel ridge on cepstral statistics"


def statistics(features: tf.Tensor, mfcc: bool) -> tf.Tensor:
    """What the model sees, [batch, frames, width] float32, as [batch, values]: mean and deviation of each coefficient, and its mean in
    each quarter of the window; in graph."""
    cepstra = features if mfcc else tf.signal.dct(features, norm="ortho")
    cepstra = cepstra[..., :COEFFICIENTS]
    frames = int(cepstra.shape[1])
    edges = np.linspace(0, frames, PARTS + 1).astype(int)
    parts = [tf.reduce_mean(cepstra[:, first:last], 1) for first, last in pairwise(edges) if last > first]
    return tf.concat([tf.reduce_mean(cepstra, 1), tf.math.reduce_std(cepstra, 1), *parts], -1)


def fitted(train: Source, features: Callable[[Source], tuple[np.ndarray, dict[str, Any]]]) -> Baseline:
    """Fits it.

    Args:
        features: a source -> (`statistics` of its recordings, {"label": [n]}).
    """
    seen, targets = features(fitting_part(train))
    predict = kernel_ridge(seen, targets["label"])

    def score(source: Source) -> np.ndarray:
        seen, targets = features(source)
        return (predict(seen) == targets["label"]).astype(np.float64)

    return Baseline(NAME, "accuracy", score)
