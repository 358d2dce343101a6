"""Moonshine's front end in graph: the waveform itself, in the windows that the encoder's first convolution sees."""

from typing import Any

import numpy as np
import tensorflow as tf

from speech.data.features import FLOOR, FrontEnd
from speech.models.moonshine import HOP, REACH, STRIDE, WINDOW
from speech.settings import Frontend

TINY = 1e-7  # beside a variance, as KerasHub has it


class MoonshineFrontEnd(FrontEnd):
    """Waveforms to [batch, windows, 127] float32: a recording has the windows that lie within it, and those of one step of the encoder at
    least, 0.06 s.

    Args:
        converter: settings of the preset's audio converter: `sampling_rate`; with `do_normalize` a recording gets mean 0 and deviation 1.
    """

    stride, lost = STRIDE, REACH - 1

    def __init__(self, converter: dict[str, Any]):
        self.settings, self.rate = Frontend(normalize="none"), converter["sampling_rate"]
        self.window, self.hop, self.width = WINDOW, HOP, WINDOW
        self.seconds = HOP / self.rate
        self.centres = np.zeros(0)  # there are no bands
        self.normalizes = bool(converter.get("do_normalize"))

    def frames(self, lengths: Any) -> Any:
        return tf.maximum((lengths - WINDOW) // HOP + 1, REACH)

    def __call__(self, waveforms: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        samples = tf.shape(waveforms)[1]
        own = tf.range(samples)[None] < lengths[:, None]
        waveforms = tf.where(own, waveforms, 0.0)
        if self.normalizes:
            count = tf.maximum(tf.cast(lengths, tf.float32), 1.0)[:, None]
            waveforms -= tf.reduce_sum(waveforms, 1, keepdims=True) / count
            waveforms = tf.where(own, waveforms, 0.0)
            waveforms *= tf.math.rsqrt(tf.reduce_sum(tf.square(waveforms), 1, keepdims=True) / count + TINY)
        needed = (self.frames(samples) - 1) * HOP + WINDOW
        return tf.signal.frame(tf.pad(waveforms, [[0, 0], [0, tf.maximum(needed - samples, 0)]]), WINDOW, HOP)

    def bands(self, features: tf.Tensor) -> tf.Tensor:
        power = tf.square(tf.abs(tf.signal.rfft(tf.cast(features, tf.float32) * tf.signal.hann_window(WINDOW, periodic=False))))
        return tf.math.log(tf.maximum(power, FLOOR)) * (10.0 / np.log(10.0))
