"""The baseline of image classifiers: a kernel classifier on small copies of the images, fitted in seconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source
from pipelines.reports.baselines import fitting_part, kernel_ridge
from pipelines.task.results import Baseline

EDGE = 16  # px


def small_copies(images: tf.Tensor) -> tf.Tensor:
    """Images [batch, height, width, channels] float32 in 0..255 as [batch, pixels] float32 in 0..1, in graph."""
    height, width, channels = images.shape[1:]
    size = min(EDGE, height), min(EDGE, width)
    return tf.reshape(tf.image.resize(images, size, method="area"), [-1, size[0] * size[1] * channels]) / 255.0


def fit_classifier(train: Source, features: Callable[[Source], tuple[np.ndarray, dict[str, Any]]], size: tuple[int, int]) -> Baseline:
    """Kernel ridge regression on `small_copies`.

    Args:
        features: a source -> (`small_copies` of its images, {"label": [n]}).
        size: (height, width) of the images.
    """
    copies, targets = features(fitting_part(train))
    predict = kernel_ridge(copies, targets["label"])

    def score(source: Source) -> np.ndarray:
        copies, targets = features(source)
        return (predict(copies) == targets["label"]).astype(np.float64)

    return Baseline(f"kernel ridge on {min(EDGE, size[0])} x {min(EDGE, size[1])} px", "accuracy", score)
