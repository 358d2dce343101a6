"""The front end in graph: from waveform to log-mel or MFCC, on the device and inside the saved model.

Equal to librosa.feature.melspectrogram, power_to_db and mfcc (0.11, with center=True and zeros beyond the ends) within 1e-4 dB.
What lies behind a recording's own length never changes its features.
"""

import numpy as np
import tensorflow as tf

from speech.settings import Frontend

FLOOR = 1e-10  # smallest power, librosa's amin


class FrontEnd:
    """Waveforms to features. Holds constants only.

    Attributes:
        rate: of the waveforms, Hz.
        hop, window, fft: samples.
        seconds: from frame to frame.
        width: values of a frame: mel bands or coefficients.
        centres: of the mel bands, Hz, [mels].
        stride: frames from one step of the encoder that this is the front end of to the next; None: the model's settings say it.
        lost: frames that such an encoder hears beyond those from which a step is counted.
        silence: s, of which the encoder hears more behind a command, where nothing says how much.
    """

    stride: int | None = None
    lost = 0
    silence = 0.0

    def __init__(self, settings: Frontend, rate: int):
        import librosa
        import scipy.fft

        self.settings, self.rate = settings, rate
        self.window, self.hop = round(settings.window * rate), round(settings.hop * rate)
        self.seconds = self.hop / rate
        self.fft = settings.fft or 1 << (self.window - 1).bit_length()
        window = librosa.filters.get_window("hann", self.window, fftbins=True)
        # librosa frames with the transform's length and centres the window in it
        self._window = librosa.util.pad_center(window, size=self.fft)
        self._mel = librosa.filters.mel(sr=rate, n_fft=self.fft, n_mels=settings.mels, fmin=settings.low, fmax=settings.high).T
        # as librosa.filters.mel has them, without the two ends
        self.centres = librosa.mel_frequencies(settings.mels + 2, fmin=settings.low, fmax=settings.high or rate / 2)[1:-1]
        self._dct = None
        if settings.kind == "mfcc":
            basis = scipy.fft.dct(np.eye(settings.mels), type=2, norm="ortho", axis=-1)
            self._dct = basis[:, :settings.coefficients]
        self.width = settings.coefficients if settings.kind == "mfcc" else settings.mels

    def frames(self, lengths: tf.Tensor) -> tf.Tensor:
        """Frames of recordings of so many samples: one each hop, the first and the last centred on the ends."""
        return lengths // self.hop + 1

    def mask(self, lengths: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
        """[batch, frames, 1] bool: whether a frame belongs to the recording."""
        return (tf.range(frames)[None] < self.frames(lengths)[:, None])[..., None]

    def __call__(self, waveforms: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Features, before normalisation; in graph.

        Args:
            waveforms: [batch, samples] float32, full scale -1 to 1.
            lengths: [batch] int32, samples of each; what lies behind counts as silence.

        Returns:
            [batch, 1 + samples // hop, width] float32, dB (or coefficients of it); frames behind a recording's own hold its floor.
        """
        samples = tf.shape(waveforms)[1]
        waveforms = tf.where(tf.range(samples)[None] < lengths[:, None], waveforms, 0.0)
        padded = self._padded(waveforms)
        # in float32 the transform's rounding reaches 1e-3 dB in the quiet bands beside loud ones; rounding its result does not
        frames = tf.signal.frame(tf.cast(padded, tf.float64), self.fft, self.hop) * self._window
        spectrum = tf.cast(tf.signal.rfft(frames), tf.complex64)
        power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
        mel = tf.tensordot(power, tf.constant(self._mel), 1)
        decibels = tf.math.log(tf.maximum(mel, FLOOR)) * (10.0 / np.log(10.0))
        if self.settings.top_db is not None:
            own = self.mask(lengths, tf.shape(decibels)[1])
            loudest = tf.reduce_max(tf.where(own, decibels, 10.0 * np.log10(FLOOR)), axis=[1, 2], keepdims=True)
            decibels = tf.maximum(decibels, loudest - self.settings.top_db)
        if self._dct is None:
            return decibels
        return tf.cast(tf.tensordot(tf.cast(decibels, tf.float64), tf.constant(self._dct), 1), tf.float32)

    def bands(self, features: tf.Tensor) -> tf.Tensor:
        """Features as [batch, frames, bands], dB or what stands for it: for people, and for what compares spectra; in graph."""
        return features

    def decibels(self, features: tf.Tensor, mean: tf.Tensor, std: tf.Tensor) -> tf.Tensor:
        """`bands` in dB (or coefficients of it) of features as `normalized` gives them; in graph."""
        return self.bands(features) if self.settings.normalize == "none" else features * std + mean

    def _padded(self, waveforms: tf.Tensor) -> tf.Tensor:
        """With what the first and the last frame see beyond the ends."""
        half = self.fft // 2
        return tf.pad(waveforms, [[0, 0], [half, half]])

    def normalized(self, features: tf.Tensor, lengths: tf.Tensor, mean: tf.Tensor, std: tf.Tensor) -> tf.Tensor:
        """Features as the settings say, with zeros behind each recording's own frames.

        Args:
            features: [batch, frames, width] as called.
            mean, std: [width] over train (after the recording's own mean is subtracted, where it is).
        """
        own = self.mask(lengths, tf.shape(features)[1])
        features = self.centred(features, lengths)
        if self.settings.normalize != "none":
            features = (features - mean) / std
        return tf.where(own, features, 0.0)

    def centred(self, features: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Less the mean of the recording's own frames, where the settings say so."""
        if self.settings.normalize != "recording":
            return features
        own = tf.cast(self.mask(lengths, tf.shape(features)[1]), features.dtype)
        mean = tf.reduce_sum(features * own, 1, keepdims=True) / tf.reduce_sum(own, 1, keepdims=True)
        return features - mean


def without_offset(samples: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Removes the constant offset of cheap sound cards, by each recording's own mean; in graph, in whole numbers.

    Such an offset is inaudible, but it clicks where a recording begins or ends, and it counts as loudness.

    Args:
        samples: [batch, any] int16; what lies behind the lengths is ignored.
        lengths: [batch] int32.

    Returns:
        [batch, any] int16, zeros behind the lengths.
    """
    lengths = tf.minimum(lengths, tf.shape(samples)[1])
    own = tf.range(tf.shape(samples)[1])[None] < lengths[:, None]
    wide, count = tf.where(own, tf.cast(samples, tf.int64), 0), tf.maximum(tf.cast(lengths, tf.int64), 1)[:, None]
    mean = (2 * tf.reduce_sum(wide, 1, keepdims=True) + count) // (2 * count)
    return tf.cast(tf.where(own, tf.clip_by_value(wide - mean, -32768, 32767), 0), tf.int16)


def to_int16(waveform: np.ndarray) -> np.ndarray:
    """Float samples, full scale -1 to 1, as int16, as they are stored. Exact for samples that were read from 16 bits."""
    return np.clip(np.rint(waveform * 32768.0), -32768, 32767).astype(np.int16)


def rounded(waveforms: tf.Tensor) -> tf.Tensor:
    """`to_int16` and back, in graph: so serving sees what evaluation saw. float32, full scale -1 to 1."""
    return tf.clip_by_value(tf.round(waveforms * 32768.0), -32768.0, 32767.0) / 32768.0
