"""Whisper's front end in graph, with the settings of a preset's audio converter: equal to KerasHub's to 1e-4, for sounds of any length."""

from typing import Any

import tensorflow as tf

from speech.data.features import FrontEnd
from speech.settings import Frontend

HIGHEST = 8000.0  # Hz; of the mel bands, whatever the preset's sample rate


class WhisperFrontEnd(FrontEnd):
    """Waveforms to log-mel as Whisper was trained on it, about -1 to 1.5: base 10, at most 80 dB deep, plus 4, over 4.

    The recording is continued by its reflection at its beginning and by silence at its end. It has as many frames as begin in it.

    Args:
        converter: settings of the preset's audio converter: `num_mels`, `num_fft_bins`, `stride`, `sampling_rate`.
    """

    silence = 1.0  # it was trained on sounds with much of it

    def __init__(self, converter: dict[str, Any]):
        rate, fft = converter["sampling_rate"], converter["num_fft_bins"]
        super().__init__(Frontend(window=fft / rate, hop=converter["stride"] / rate, fft=fft, mels=converter["num_mels"], low=0.0,
                                  high=HIGHEST, top_db=80.0, normalize="none"), rate)

    def frames(self, lengths: Any) -> Any:
        return tf.maximum(-(-lengths // self.hop), 1)

    def __call__(self, waveforms: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Features as FrontEnd's: [batch, samples / hop, rounded up, mels] float32."""
        decibels = super().__call__(waveforms, lengths)[:, :self.frames(tf.shape(waveforms)[1])]
        return (decibels / 10.0 + 4.0) / 4.0

    def decibels(self, features: tf.Tensor, mean: tf.Tensor, std: tf.Tensor) -> tf.Tensor:
        return 40.0 * features

    def _padded(self, waveforms: tf.Tensor) -> tf.Tensor:
        half = self.fft // 2
        longer = tf.pad(waveforms, [[0, 0], [0, half + 1]])
        return tf.concat([tf.reverse(longer[:, 1:half + 1], [1]), longer[:, :-1]], 1)
