"""A kernel machine on statistics of cepstra: the baseline of commands, and the model `kernel`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import scipy.fft
import tensorflow as tf

from pipelines.encoders import arrays, presets
from pipelines.fitting import kernel
from speech.models import yamnet
from speech.settings import Kernel

COARSE, FINE = 13, 30  # coefficients of the envelope of the spectrum, by which words differ, and up to those by which voices do
PARTS = 6  # of what is loud
HEARD, LOUD = 40.0, 25.0  # dB below the loudest frame, down to which a frame counts, and within the parts
REACH = 2  # frames to each side over which the slope of a coefficient is taken


def build(settings: Kernel, *, frames: int, width: int, classes: int, facts: dict[str, Any], describe: Callable[[Any], tf.Tensor],
          ) -> keras.Model:
    """See speech.models.command_model. All weights are 0 before they are fitted, but for an encoder's, and no step trains them."""
    features: Any = describe
    if settings.preset is not None:
        preset = presets.find_arrays(settings.preset, arrays.YAMNET) if settings.weights == "preset" else None
        features = Beside(describe, yamnet.encoder(preset, frames=frames), name="features")
    return kernel.build((frames, width), features, support=kernel.kept_of(facts, settings.support), classes=classes)


class Beside(kernel.Described):
    """What a function in graph makes of the inputs, and beside it what an encoder makes of them. Nothing of it trains."""

    def __init__(self, describe: Callable[[Any], tf.Tensor], encoder: keras.Model, **options: Any):
        super().__init__(describe, **options)
        self.encoder = encoder
        self.trainable = False

    def call(self, inputs: Any) -> tf.Tensor:
        return tf.concat([super().call(inputs), tf.cast(self.encoder(inputs, training=False), tf.float32)], 1)


def cepstral_statistics(bands: tf.Tensor, mels: int | None = None) -> tf.Tensor:
    """Bands [batch, frames, width] float32, dB, as [batch, values] float32, what `statistics` gives beside one another; in graph."""
    return tf.concat(statistics(bands, mels), 1)


def blocks(width: int, mels: int | None = None) -> list[int]:
    """The number of values of each part of so many bands, or coefficients of `mels`."""
    return [int(part.shape[1]) for part in statistics(tf.zeros([1, 1, width]), mels)]


def statistics(bands: tf.Tensor, mels: int | None = None) -> list[tf.Tensor]:
    """Of what is heard, the mean and deviation of each cepstral coefficient and the deviation of its slope, of coarse and of fine ones
    apart; and the mean of the coarse ones in each of the parts of what is loud, one after the other; each [batch, some] float32.

    Args:
        mels: where bands are coefficients already, the number of bands that they were made of.
    """
    width = int(bands.shape[-1])
    basis = np.eye(width) if mels else scipy.fft.dct(np.eye(width), norm="ortho", axis=-1)
    cepstra = tf.tensordot(bands, tf.constant(basis[:, :FINE], tf.float32), 1)
    below = cepstra[..., 0] / (mels or width) ** 0.5
    below = tf.reduce_max(below, 1, keepdims=True) - below  # dB
    heard, loud = (tf.cast(below <= least, tf.float32) for least in (HEARD, LOUD))
    place = (tf.cumsum(loud, 1) - 0.5) / tf.reduce_sum(loud, 1, keepdims=True)  # of a frame within what is loud, 0 to 1
    whole = [*_moments(cepstra, heard), _moments(_slopes(cepstra), heard)[1]]
    parts = [_moments(cepstra[..., :COARSE], loud * tf.cast(tf.floor(place * PARTS) == part, tf.float32))[0] for part in range(PARTS)]
    fine = [tf.concat([one[:, COARSE:] for one in whole], 1)] if width > COARSE else []
    return [tf.concat([one[:, :COARSE] for one in whole], 1), *fine, tf.concat(parts, 1)]


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
