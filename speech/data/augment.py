"""Training augmentation of whole batches, in graph, on the device: pure functions of each example's own key.

Waveforms: speed, shift, noise, gain, one's own. Features: vocal tract length perturbation, SpecAugment. What happens to a recording is
the same in any batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data import draws
from pipelines.data.source import Source
from pipelines.data.walk import files_of
from pipelines.stores.remote import local
from speech.data import audio
from speech.data.features import to_int16
from speech.data.recordings import Recordings
from speech.settings import AUGMENTATIONS, Augment

# the purpose of each draw from an example's key
SPEED, SHIFT, GAIN, NOISE, RATIO, PLACE, COLOUR, WARP, BANDS, FRAMES = 0, 1, 2, 3, 4, 5, 6, 7, 16, 64
BANK = 1 << 18  # samples of each generated noise
MOST, ALL = 60.0, 3600.0  # seconds kept of each noise file, and of all of them: 115 MB at 16 kHz
BENT = 0.6  # of half the sample rate, up to which a warp is proportional (Jaitly and Hinton 2013: 4.8 of 8 kHz)
QUIET = 1e-8  # mean power below which a recording counts as silence and gets no noise


@dataclass(frozen=True)
class Noises:
    """Noises of mean power 1, concatenated.

    Attributes:
        samples: [all] float16 or float32.
        starts, sizes: of each noise, in samples, [noises] int32.
        note: what of a folder is left out, or None.
    """

    samples: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    note: str | None = None

    @classmethod
    def of(cls, parts: list[np.ndarray], note: str | None = None) -> "Noises":
        sizes = np.array([len(part) for part in parts], np.int32)
        return cls(np.concatenate(parts), (np.cumsum(sizes) - sizes).astype(np.int32), sizes, note)


class Augmenter:
    """Applies the settings. Noise is read when training first needs it, so that a finished run needs no folder."""

    def __init__(self, settings: Augment, rate: int):
        self.settings, self.rate = settings, rate
        self._samples: tf.Tensor | None = None

    @cached_property
    def noises(self) -> Noises | None:
        """None where none is mixed in. Raises DataError as read_noise."""
        settings = self.settings
        if not settings.noise:
            return None
        return read_noise(str(local(settings.noise_folder)), self.rate) if settings.noise_folder else Noises.of(list(coloured_noise()))

    @property
    def on_waveforms(self) -> bool:
        """Whether waveforms are augmented."""
        settings = self.settings
        return bool(settings.shift or settings.speed or settings.gain or settings.noise or settings.own)

    def _moved(self, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """How many times as fast each recording is played, and by how many samples it is moved; [batch] float32."""
        rate = 1.0 + self.settings.speed * (2.0 * draws.uniform(keys, SPEED) - 1.0)
        return rate, self.settings.shift * self.rate * (2.0 * draws.uniform(keys, SHIFT) - 1.0)

    def times(self, keys: tf.Tensor, window: int | None = None) -> tf.Tensor:
        """Where times of recordings are after `waveforms` with the same keys: [batch, 2] float32, a time t, in s, is at scale * t + delay.

        Args:
            window: samples of the window in which recordings lie; None: they begin at 0.
        """
        rate, moved = self._moved(keys)
        middle = (window or 0) / 2.0
        return tf.stack([1.0 / rate, (middle - middle / rate + moved) / self.rate], 1)

    def waveforms(self, waveforms: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor, *, window: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Augments a batch of waveforms.

        Args:
            waveforms: [batch, samples] float32, zeros behind the lengths.
            lengths: [batch] int32.
            keys: int32 [batch, 2], one for each example and epoch.
            window: recordings lie in a window of fixed length, in which they move and which noise fills; else they begin at 0,
                silence is added before them or cut off, and they may become longer.

        Returns:
            (waveforms [batch, samples] float32, lengths [batch] int32); without a window `samples` may grow.
        """
        settings = self.settings
        samples = tf.shape(waveforms)[1]
        if settings.speed or settings.shift:
            rate, moved = self._moved(keys)
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
            waveforms = resampled_at(waveforms, steps)
        if self.noises is not None:
            waveforms = self._noisy(waveforms, lengths, keys, self.noises)
        if settings.gain:
            decibels = settings.gain * (2.0 * draws.uniform(keys, GAIN) - 1.0)
            waveforms = waveforms * tf.pow(10.0, decibels / 20.0)[:, None]
        if settings.own is not None:
            given = AUGMENTATIONS.build(settings.own, waveforms=waveforms, lengths=lengths, keys=draws.own(keys), rate=self.rate)
            waveforms = tf.ensure_shape(tf.cast(given, tf.float32), waveforms.shape)
        own = tf.range(tf.shape(waveforms)[1])[None] < lengths[:, None]
        return tf.where(own, waveforms, 0.0), lengths

    def _noisy(self, waveforms: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor, noises: Noises) -> tf.Tensor:
        low, high = self.settings.snr
        if self._samples is None:
            with tf.init_scope():  # beside the graph, which holds no more than 2 GB
                self._samples = tf.constant(noises.samples)
        kind = draws.integers(keys, COLOUR, 0, len(noises.sizes) - 1)
        size, first = tf.gather(noises.sizes, kind), tf.gather(noises.starts, kind)
        start = tf.cast(draws.uniform(keys, PLACE) * tf.cast(size, tf.float32), tf.int32)
        where = (start[:, None] + tf.range(tf.shape(waveforms)[1])[None]) % size[:, None] + first[:, None]
        noise = tf.cast(tf.gather(self._samples, where), tf.float32)
        power = tf.reduce_sum(tf.square(waveforms), 1) / tf.cast(tf.maximum(lengths, 1), tf.float32)
        ratio = low + (high - low) * draws.uniform(keys, RATIO)
        level = tf.sqrt(power / tf.pow(10.0, ratio / 10.0))
        chosen = (draws.uniform(keys, NOISE) < self.settings.noise) & (power > QUIET)
        return waveforms + noise * tf.where(chosen, level, 0.0)[:, None]

    def warped(self, bands: tf.Tensor, keys: tf.Tensor, centres: tf.Tensor) -> tf.Tensor:
        """Vocal tract length perturbation (Jaitly and Hinton 2013): as if from a longer or shorter vocal tract, at the same tempo.

        Args:
            bands: log-mel [batch, frames, width] float32, not yet normalised.
            keys: int32 [batch, 2].
            centres: of the bands, Hz, [width] float32 ascending.
        """
        if not self.settings.warp:
            return bands
        half = self.rate / 2.0
        factor = (1.0 + self.settings.warp * (2.0 * draws.uniform(keys, WARP) - 1.0))[:, None]
        knee = BENT * half * tf.minimum(factor, 1.0)
        above = half - (half - knee) / (half - knee / factor) * (half - centres)
        wanted = tf.where(centres <= knee / factor, centres * factor, above)  # [batch, width], Hz
        upper = tf.clip_by_value(tf.searchsorted(tf.tile(centres[None], [tf.shape(wanted)[0], 1]), wanted), 1, bands.shape[2] - 1)
        left, right = tf.gather(centres, upper - 1), tf.gather(centres, upper)
        share = tf.clip_by_value((wanted - left) / (right - left), 0.0, 1.0)[:, None, :]
        below, over = (tf.gather(bands, place, axis=2, batch_dims=1) for place in (upper - 1, upper))
        return below + share * (over - below)

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
            size, place = tf.unstack(draws.uniform(keys, BANDS + 2 * number, 2))
            wide = tf.cast(size * (min(settings.frequency_width, width - 1) + 1), tf.int32)
            first = tf.cast(place * tf.cast(width - wide + 1, tf.float32), tf.int32)
            keep_bands = keep_bands & ((bands < first[:, None]) | (bands >= (first + wide)[:, None]))
        most = tf.minimum(round(settings.time_width / hop), frames // 5)
        for number in range(settings.time_masks):
            size, place = tf.unstack(draws.uniform(keys, FRAMES + 2 * number, 2))
            long = tf.cast(size * tf.cast(most + 1, tf.float32), tf.int32)
            first = tf.cast(place * tf.cast(frames - long + 1, tf.float32), tf.int32)
            keep_times = keep_times & ((times < first[:, None]) | (times >= (first + long)[:, None]))
        return tf.where(keep_bands[:, None, :] & keep_times[:, :, None], features, 0.0)


def resampled_at(waveforms: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Waveforms [batch, samples] read at fractional places [batch, new samples], between samples by cubic interpolation (Catmull and
    Rom 1974); silence outside. float32."""
    size = tf.shape(waveforms)[1]
    whole = tf.floor(steps)
    t = steps - whole
    first = tf.cast(tf.clip_by_value(whole, -3.0, tf.cast(size, tf.float32) + 1.0), tf.int32) + 3
    padded = tf.pad(waveforms, [[0, 0], [4, 5]])
    a, b, c, d = (tf.gather(padded, first + shift, batch_dims=1) for shift in range(4))
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))


def coloured_noise() -> np.ndarray:
    """White, pink and brown noise, [3, BANK] float32 of mean power 1: deterministic."""
    rng = np.random.default_rng(20_260)
    noises = []
    for exponent in (0.0, 0.5, 1.0):  # power falls by 0, 3 and 6 dB an octave
        spectrum = np.fft.rfft(rng.standard_normal(BANK))
        spectrum[1:] /= np.arange(1, len(spectrum)) ** exponent
        spectrum[0] = 0
        noise = np.fft.irfft(spectrum, BANK)
        noises.append(noise / np.sqrt(np.mean(noise**2)))
    return np.stack(noises).astype(np.float32)


def read_noise(folder: str, rate: int) -> Noises:
    """The beginning of every recording of a folder, float16: a minute of each, or less where all would come to over an hour.

    Raises:
        DataError: none there, one that cannot be read, or is silent.
    """
    files = files_of(folder, audio.SUFFIXES)
    if not files:
        raise DataError(f"augment.noise_folder: {folder} holds no recordings ({', '.join(audio.SUFFIXES)})")
    longest, noises, cut = min(MOST, ALL / len(files)), [], 0
    for path in files:
        try:
            seconds = audio.header(path).seconds
            noise = audio.read(path, rate, duration=min(longest, seconds))
        except DataError as error:
            raise DataError(f"augment.noise_folder: {path}: {error}") from error
        power = float(np.mean(noise**2))
        if power < QUIET / 100:
            raise DataError(f"augment.noise_folder: {path}: is silent" + (f" in its first {longest:.1f} s" if seconds > longest else ""))
        noises.append((noise / np.sqrt(power)).astype(np.float16))
        cut += seconds > longest
    note = f"augment.noise_folder: of {cut:,} of the {len(files):,} recordings in {folder} only the first {longest:.1f} s are used"
    return Noises.of(noises, note if cut else None)


def with_copies(train: Source, settings: Augment, rate: int, seed: int) -> Recordings:
    """Train followed by `settings.copies` further versions of each recording.

    Copy c of recording n is a function of (seed, n, c) alone.
    """
    assert isinstance(train, Recordings)
    count, versions = len(train), settings.copies + 1
    numbers = np.tile(np.arange(count), versions)
    wide = train.subset(numbers)
    facts = wide.facts
    names = [name if place < count else f"{name} copy {place // count}" for place, name in enumerate(facts.names)]
    fields = {name: value for name, value in wide.fields.items() if name != "label"}

    def load(number: int) -> np.ndarray:
        samples = train.load(number % count)
        if number < count:
            return samples
        import librosa

        rng = np.random.default_rng([seed, number % count, number // count])
        steps, tempo = rng.uniform(-settings.pitch, settings.pitch), 1.0 + rng.uniform(-settings.stretch, settings.stretch)
        wave = samples.astype(np.float32) / 32768.0
        size = min(1024, 1 << max(6, len(wave).bit_length() - 2))
        wave = librosa.effects.time_stretch(wave, rate=tempo, n_fft=size)
        return to_int16(librosa.effects.pitch_shift(wave, sr=rate, n_steps=steps, n_fft=size))

    identity = f"{train.fingerprint()} copies {settings.copies} {settings.pitch} {settings.stretch} {seed}"
    return Recordings(load, replace(facts, names=names, lengths=None), identity, fields=fields, labels=wide.label, groups=wide.groups,
                      stamp=train.stamp())
