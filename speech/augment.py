"""Training augmentation of whole batches, in graph, on the device: pure functions of each example's own key.

Waveforms: speed, shift, gain and noise. Features: SpecAugment. What happens to a recording is the same in any batch.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.data import random
from pipelines.errors import DataError
from speech import audio
from speech.settings import Augment

# which draw of an example's key is for what
SPEED, SHIFT, GAIN, NOISE, RATIO, PLACE, COLOUR, BANDS, FRAMES = 0, 1, 2, 3, 4, 5, 6, 16, 64
BANK = 1 << 18  # samples of each made noise
MOST = 60.0  # seconds of each noise file that are kept
QUIET = 1e-8  # mean power under which a recording counts as silence, to which no noise is laid in proportion


class Augmenter:
    """Holds the noise, and what of the settings is in samples."""

    def __init__(self, settings: Augment, rate: int):
        self.settings, self.rate = settings, rate
        self.noise = None
        if settings.noise:
            # one row for each noise, repeated to a common length, mean power 1
            self.noise = read_noise(settings.noise_folder, rate) if settings.noise_folder else made_noise()

    @property
    def on_waveforms(self) -> bool:
        """Whether anything is done to waveforms."""
        return bool(self.settings.shift or self.settings.speed or self.settings.gain or self.settings.noise)

    def waveforms(self, waveforms: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor, *, window: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """A batch as training is to hear it.

        Args:
            waveforms: [batch, samples] float32, zeros behind the lengths.
            lengths: [batch] int32.
            keys: int32 [batch, 2], one for each example and epoch.
            window: recordings stand in a window of fixed length, in which they move, and which noise fills; else they begin at
                0, silence is put before them or taken off, and they may become longer.

        Returns:
            (waveforms [batch, samples] float32, lengths [batch] int32); without a window `samples` may grow.
        """
        settings = self.settings
        samples = tf.shape(waveforms)[1]
        if settings.speed or settings.shift:
            rate = 1.0 + settings.speed * (2.0 * random.uniform(keys, SPEED) - 1.0)
            moved = settings.shift * self.rate * (2.0 * random.uniform(keys, SHIFT) - 1.0)
            if window:
                # played faster or slower around the middle of the window, then moved
                middle = tf.cast(samples, tf.float32) / 2.0
                steps = (tf.range(tf.cast(samples, tf.float32))[None] - middle - moved[:, None]) * rate[:, None] + middle
            else:
                longer = tf.cast(tf.round(tf.cast(lengths, tf.float32) / rate + moved), tf.int32)
                lengths = tf.maximum(longer, tf.minimum(lengths, self.rate // 10))
                unit = self.rate // 4  # few different lengths, for compilers that make a program for each
                samples = -(-tf.reduce_max(lengths) // unit) * unit
                steps = (tf.range(tf.cast(samples, tf.float32))[None] - moved[:, None]) * rate[:, None]
            waveforms = played(waveforms, steps)
        if self.noise is not None:
            waveforms = self._noisy(waveforms, lengths, keys)
        if settings.gain:
            decibels = settings.gain * (2.0 * random.uniform(keys, GAIN) - 1.0)
            waveforms = waveforms * tf.pow(10.0, decibels / 20.0)[:, None]
        own = tf.range(tf.shape(waveforms)[1])[None] < lengths[:, None]
        return tf.where(own, waveforms, 0.0), lengths

    def _noisy(self, waveforms: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        low, high = self.settings.snr
        noise = tf.constant(self.noise)
        kinds, size = noise.shape
        kind = random.integers(keys, COLOUR, 0, kinds - 1)
        start = random.integers(keys, PLACE, 0, size - 1)
        where = (start[:, None] + tf.range(tf.shape(waveforms)[1])[None]) % size + kind[:, None] * size
        laid = tf.gather(tf.reshape(noise, [-1]), where)
        power = tf.reduce_sum(tf.square(waveforms), 1) / tf.cast(tf.maximum(lengths, 1), tf.float32)
        ratio = low + (high - low) * random.uniform(keys, RATIO)
        level = tf.sqrt(power / tf.pow(10.0, ratio / 10.0))
        chosen = (random.uniform(keys, NOISE) < self.settings.noise) & (power > QUIET)
        return waveforms + laid * tf.where(chosen, level, 0.0)[:, None]

    def features(self, features: tf.Tensor, frames: tf.Tensor, keys: tf.Tensor, hop: float) -> tf.Tensor:
        """SpecAugment without time warping: bands and stretches of frames set to 0, the mean.

        Args:
            features: [batch, frames, width], normalised.
            frames: [batch] int32, each recording's own; masks fall into them, and take at most a fifth of them each.
            hop: s from frame to frame.
        """
        settings = self.settings
        width = features.shape[2]
        bands, times = tf.range(width)[None], tf.range(tf.shape(features)[1])[None]
        keep_bands, keep_times = tf.ones_like(bands, tf.bool), tf.ones_like(times, tf.bool)
        for number in range(settings.frequency_masks):
            size, place = tf.unstack(random.uniform(keys, BANDS + 2 * number, 2))
            wide = tf.cast(size * (min(settings.frequency_width, width - 1) + 1), tf.int32)
            first = tf.cast(place * tf.cast(width - wide + 1, tf.float32), tf.int32)
            keep_bands = keep_bands & ((bands < first[:, None]) | (bands >= (first + wide)[:, None]))
        most = tf.minimum(round(settings.time_width / hop), frames // 5)
        for number in range(settings.time_masks):
            size, place = tf.unstack(random.uniform(keys, FRAMES + 2 * number, 2))
            long = tf.cast(size * tf.cast(most + 1, tf.float32), tf.int32)
            first = tf.cast(place * tf.cast(frames - long + 1, tf.float32), tf.int32)
            keep_times = keep_times & ((times < first[:, None]) | (times >= (first + long)[:, None]))
        return tf.where(keep_bands[:, None, :] & keep_times[:, :, None], features, 0.0)


def played(waveforms: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Waveforms [batch, samples] read at fractional places [batch, new samples], between samples by cubic interpolation (Catmull and
    Rom 1974); silence outside. float32."""
    size = tf.shape(waveforms)[1]
    whole = tf.floor(steps)
    t = steps - whole
    first = tf.cast(tf.clip_by_value(whole, -3.0, tf.cast(size, tf.float32) + 1.0), tf.int32) + 3
    padded = tf.pad(waveforms, [[0, 0], [4, 5]])
    a, b, c, d = (tf.gather(padded, first + shift, batch_dims=1) for shift in range(4))
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))


def made_noise() -> np.ndarray:
    """White, pink and brown noise, [3, BANK] float32 of mean power 1: always the same."""
    rng = np.random.default_rng(20_260)
    made = []
    for exponent in (0.0, 0.5, 1.0):  # power falls by 0, 3 and 6 dB an octave
        spectrum = np.fft.rfft(rng.standard_normal(BANK))
        spectrum[1:] /= np.arange(1, len(spectrum)) ** exponent
        spectrum[0] = 0
        noise = np.fft.irfft(spectrum, BANK)
        made.append(noise / np.sqrt(np.mean(noise**2)))
    return np.stack(made).astype(np.float32)


def read_noise(folder: str, rate: int) -> np.ndarray:
    """Every recording of a folder, [recordings, samples] float32 of mean power 1, the shorter repeated.

    Raises:
        DataError: none there, one that cannot be read, or is silent.
    """
    files = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in audio.SUFFIXES)
    if not files:
        raise DataError(f"augment.noise_folder: {folder} holds no recordings ({', '.join(audio.SUFFIXES)})")
    made = []
    for path in files:
        try:
            noise = audio.read(path, rate, duration=min(MOST, audio.header(path).seconds))
        except DataError as error:
            raise DataError(f"augment.noise_folder: {path}: {error}") from error
        power = float(np.mean(noise**2))
        if power < QUIET / 100:
            raise DataError(f"augment.noise_folder: {path}: is silent")
        made.append(noise / np.sqrt(power))
    size = max(len(noise) for noise in made)
    return np.stack([np.resize(noise, size) for noise in made]).astype(np.float32)
