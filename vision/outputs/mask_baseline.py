"""The cheap model beside a segmenter: a pixel's class by its colour and its place alone, each counted by itself (naive Bayes)."""

from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.data.split import choose
from pipelines.task.contract import Features
from pipelines.task.results import Baseline
from vision.data.masks.open import MASK

LEVELS = 10  # of each channel, of the mean of a pixel's neighbourhood
WINDOW = 5  # px, edge of that
CELLS = 16  # of a side of the picture
EXAMPLES = 500  # of train that are counted
PIXELS = 40_000_000  # of them, at most


def fitted(output: Any, train: Source, features: Features) -> Baseline | None:
    """Counted on at most EXAMPLES pictures of train."""
    height, width = output.input.image_size
    most = max(1, min(EXAMPLES, PIXELS // (height * width)))
    some = train.subset(choose(most, count=len(train), seed=0, purpose="baseline")) if len(train) > most else train
    colours, targets = features(some, _colour)
    true, classes = targets[MASK].astype(np.int64), output.width
    counts = true < classes
    places = np.broadcast_to(_cells(height, width), true.shape)
    by_place = _counted(places[counts], true[counts], CELLS * CELLS, classes)
    by_colour = _counted(colours[counts].astype(np.int64), true[counts], int(colours.max()) + 1, classes)
    prior = by_place.sum(0) / by_place.sum()
    # log p(class | place) + log p(colour | class), up to what is the same for all classes
    place = np.log(by_place / by_place.sum(1, keepdims=True)).astype(np.float32)
    colour = np.log(by_colour / by_colour.sum(1, keepdims=True) / np.maximum(prior, 1e-9)).astype(np.float32)

    def answer(images: tf.Tensor) -> Tensors:
        drawn = tf.gather(tf.constant(colour), tf.minimum(tf.cast(_colour(images), tf.int32), len(colour) - 1))
        chances = tf.nn.softmax(drawn + tf.gather(tf.constant(place), tf.constant(_cells(height, width), tf.int32))[None])
        return {MASK: tf.cast(tf.argmax(chances, -1), tf.uint8), "confidence": tf.reduce_mean(tf.reduce_max(chances, -1), [1, 2])}

    return Baseline("each pixel by its colour and place alone", answer=answer)


def _colour(images: tf.Tensor) -> tf.Tensor:
    """The number of each pixel's colour, [batch, height, width] uint16."""
    smooth = tf.nn.avg_pool2d(tf.cast(images, tf.float32), WINDOW, 1, "SAME")
    levels = tf.cast(tf.clip_by_value(smooth * (LEVELS / 256.0), 0.0, LEVELS - 1.0), tf.int32)
    number = levels[..., 0]
    for channel in range(1, images.shape[-1]):
        number = number * LEVELS + levels[..., channel]
    return tf.cast(number, tf.uint16)


def _cells(height: int, width: int) -> np.ndarray:
    rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
    return rows[:, None] * CELLS + columns[None]


def _counted(values: np.ndarray, classes: np.ndarray, most: int, count: int) -> np.ndarray:
    """How often each value occurs with each class, [most, count] float64, one hundredth of each more."""
    return np.bincount(values * count + classes, minlength=most * count).reshape(most, count) + 0.01
