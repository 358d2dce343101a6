"""What YAMNet hears, and the names of what it knows: the front end of its original (tensorflow/models, research/audioset/yamnet), in graph.

A frame lasts 25 ms, and the next one begins 10 ms later; a patch, which the network sees at once, is 96 frames, 0.96 s.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.encoders import arrays, presets
from speech.data.features import FrontEnd
from speech.models.yamnet import BANDS, CLASS, OFFSET
from speech.settings import Frontend

RATE = 16_000  # Hz
WINDOW, HOP, FFT = 400, 160, 512  # samples
LOW, HIGH = 125.0, 7500.0  # Hz
QUIET = 1e-5  # smallest magnitude of a band in dB


class YamnetFrontEnd(FrontEnd):
    """Waveforms to [batch, frames, 64] float32, logarithms of magnitudes. A recording has the frames that lie within it, one at least."""

    def __init__(self) -> None:
        self.settings, self.rate = Frontend(normalize="none"), RATE
        self.window, self.hop, self.width, self.seconds = WINDOW, HOP, BANDS, HOP / RATE
        self._mel, self.centres = mel_filters()

    def frames(self, lengths: Any) -> Any:
        return tf.maximum((lengths - WINDOW) // HOP + 1, 1)

    def __call__(self, waveforms: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        samples = tf.shape(waveforms)[1]
        waveforms = tf.where(tf.range(samples)[None] < lengths[:, None], waveforms, 0.0)
        waveforms = tf.pad(waveforms, [[0, 0], [0, tf.maximum(WINDOW - samples, 0)]])
        frames = tf.signal.frame(waveforms, WINDOW, HOP) * tf.signal.hann_window(WINDOW, periodic=True)
        magnitudes = tf.abs(tf.signal.rfft(frames, [FFT]))
        return tf.math.log(tf.tensordot(magnitudes, tf.constant(self._mel, tf.float32), 1) + OFFSET)

    def decibels(self, features: tf.Tensor, mean: tf.Tensor, std: tf.Tensor) -> tf.Tensor:
        return 20.0 / np.log(10.0) * tf.math.log(tf.maximum(tf.exp(features) - OFFSET, QUIET))


def mel_filters() -> tuple[np.ndarray, np.ndarray]:
    """Triangles between equal steps of 1127 ln(1 + f / 700), linear in mel: [257, 64] float64, and their peaks, Hz [64]. The bin of the
    constant offset counts nothing."""
    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)

    edges = np.linspace(mel(LOW), mel(HIGH), BANDS + 2)
    bins = mel(np.arange(FFT // 2 + 1) * RATE / FFT)[:, None]
    lower, peak, upper = edges[:-2], edges[1:-1], edges[2:]
    filters = np.maximum(0.0, np.minimum((bins - lower) / (peak - lower), (upper - bins) / (upper - peak)))
    filters[0] = 0.0
    return filters, 700.0 * np.expm1(peak / 1127.0)


def learn(name: str | None) -> dict[str, Any]:
    """The facts of a run (see speech.data.pretrained.learn). Raises ConfigError where the preset is no YAMNet's."""
    preset = presets.find_arrays(str(name), arrays.YAMNET)
    return {"backbone": {"class": CLASS, "config": {}}, "converter": {"class": CLASS, "config": {"sampling_rate": RATE}},
            "encoder": presets.record(preset)}


def class_names(folder: Path) -> list[str]:
    """Of the sounds that a preset knows, in the order of its outputs. Raises ConfigError where that file is damaged."""
    file = folder / arrays.YAMNET.classes
    rows = list(csv.DictReader(file.read_text("utf-8", "replace").splitlines()))
    names = [str(row.get("display_name") or "").strip() for row in rows]
    if not names or not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"model.preset: {file} does not name each sound once, in a column display_name; copy the preset again")
    return names
