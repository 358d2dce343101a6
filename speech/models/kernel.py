"""A kernel machine on statistics of cepstra: the baseline of commands, and the model `kernel`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import scipy.fft
import tensorflow as tf

from pipelines.fitting import kernel
from speech.settings import Kernel

COEFFICIENTS = (13, 7)  # of the envelope of the spectrum, and finer ones behind, which tell voices apart rather than words
PARTS = 6  # of what is loud, each with its own mean
LOUD = 25.0  # dB below the loudest frame; what is quieter counts nothing
REACH = 2  # frames to each side over which the slope of a coefficient is taken


def build(settings: Kernel, *, frames: int, width: int, classes: int, facts: dict[str, Any], describe: Callable[[Any], tf.Tensor],
          ) -> keras.Model:
    """See speech.models.command_model. All weights are 0 before they are fitted, and no step trains them."""
    return kernel.build((frames, width), describe, support=min(settings.support, sum(facts["class_counts"])), classes=classes)


def cepstral_statistics(bands: tf.Tensor, mels: int | None = None) -> tf.Tensor:
    """Bands [batch, frames, width] float32, dB, as [batch, values] float32, of the loud frames alone: the mean and deviation of each
    cepstral coefficient, the deviation of its slope, and its mean in each of `PARTS`; in graph.

    Args:
        mels: where bands are coefficients already, the number of bands that they were made of.
    """
    width = int(bands.shape[-1])
    basis = np.eye(width) if mels else scipy.fft.dct(np.eye(width), norm="ortho", axis=-1)
    cepstra = tf.tensordot(bands, tf.constant(basis[:, :sum(COEFFICIENTS)], tf.float32), 1)
    loudness = cepstra[..., 0] / (mels or width) ** 0.5
    loud = tf.cast(loudness >= tf.reduce_max(loudness, 1, keepdims=True) - LOUD, tf.float32)
    # where within what is loud a frame lies, 0 to 1
    place = (tf.cumsum(loud, 1) - 0.5) / tf.reduce_sum(loud, 1, keepdims=True)
    mean, deviation = _moments(cepstra, loud)
    parts = [_moments(cepstra, loud * tf.cast(tf.floor(place * PARTS) == part, tf.float32))[0] for part in range(PARTS)]
    every = [mean, deviation, _moments(_slopes(cepstra), loud)[1], *parts]
    return tf.concat([*(one[:, :COEFFICIENTS[0]] for one in every), *(one[:, COEFFICIENTS[0]:] for one in every)], -1)


def blocks(width: int) -> list[int]:
    """The number of values of coarse and of fine coefficients, of so many bands."""
    sizes = min(width, COEFFICIENTS[0]), min(width, sum(COEFFICIENTS)) - COEFFICIENTS[0]
    return [size * (3 + PARTS) for size in sizes if size > 0]


def _moments(values: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and deviation of [batch, frames, width] over the frames that count, each [batch, width]; 0 where none does."""
    shares = (counts / tf.maximum(tf.reduce_sum(counts, 1, keepdims=True), 1.0))[..., None]
    mean = tf.reduce_sum(values * shares, 1)
    return mean, tf.sqrt(tf.reduce_sum(tf.square(values - mean[:, None]) * shares, 1) + 1e-12)


def _slopes(values: tf.Tensor) -> tf.Tensor:
    """How much each value of [batch, frames, width] rises by the frame: the line through its neighbours."""
    frames = tf.shape(values)[1]
    padded = tf.concat([tf.repeat(values[:, :1], REACH, 1), values, tf.repeat(values[:, -1:], REACH, 1)], 1)
    return tf.add_n([step * (padded[:, REACH + step:REACH + step + frames] - padded[:, REACH - step:REACH - step + frames])
                     for step in range(1, REACH + 1)]) / (2.0 * sum(step * step for step in range(1, REACH + 1)))
