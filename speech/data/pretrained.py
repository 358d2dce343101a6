"""A preset's encoder (Whisper, Moonshine, YAMNet) as the facts of a run have it, and its front end.

The facts hold the settings of encoder and audio converter, so that a finished run is rebuilt without the preset.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.encoders import presets
from pipelines.encoders.presets import hub
from speech.data import yamnet
from speech.data.features import FLOOR, FrontEnd
from speech.models.moonshine import CLASS as MOONSHINE
from speech.models.moonshine import HOP, REACH, STRIDE, WINDOW
from speech.models.yamnet import CLASS as YAMNET
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


WHISPER = "WhisperBackbone"
RATE = {"sampling_rate": (1000, 96_000)}
CONVERTER = {WHISPER: {"num_mels": (4, 256), "num_fft_bins": (16, 8192), "stride": (1, 8192), **RATE}, MOONSHINE: RATE,  # lowest, highest
             YAMNET: {"sampling_rate": (yamnet.RATE, yamnet.RATE)}}


def learn(name: str, *, whole: bool = False, words: bool = False) -> dict[str, Any]:
    """The facts: `backbone` and `converter` (class and settings), `encoder` (its origin). Reads the preset, but no weights.

    Args:
        whole: with its decoder.
        words: what is said is to be written, for which an encoder needs a vector for each moment.

    Raises:
        ConfigError: there is no such preset, or none that this domain can use.
    """
    preset = presets.find(name, domain="speech")
    if preset.backbone not in CONVERTER:
        raise ConfigError(f"model.preset: {name} is a {preset.backbone}; only the encoders of Whisper, Moonshine and YAMNet are used here")
    if preset.backbone == YAMNET and words:
        raise ConfigError(f"model.preset: {name} knows sounds, not words; for transcripts take an encoder of Whisper or Moonshine")
    if preset.backbone == YAMNET:
        return yamnet.learn(name)
    if whole and preset.backbone != WHISPER:
        raise ConfigError(f"model.preset: {name} is a {preset.backbone}, of which the encoder alone is used here (model.name: pretrained); "
                          "model.name: whisper takes Whisper's presets")
    if not (preset.folder / "audio_converter.json").is_file():
        raise ConfigError(f"model.preset: {name} has no audio_converter.json in {preset.folder}, which says what the encoder "
                          "hears; copy the preset again, whole")
    converter = hub().layers.AudioConverter.from_preset(str(preset.folder))
    backbone = presets.load(preset, weights=False)
    if preset.backbone == WHISPER and backbone.num_mels != converter.num_mels:
        raise ConfigError(f"model.preset: {name}: config.json has {backbone.num_mels} mel bands and audio_converter.json "
                          f"{converter.num_mels}; they do not belong together: copy the preset again")
    return {"backbone": presets.description(backbone), "converter": presets.description(converter), "encoder": presets.record(preset)}


def front_end(facts: Mapping[str, Any], rate: int) -> FrontEnd:
    """The preset's own front end. Raises ConfigError where its sample rate is another than `rate`."""
    kind, converter = facts["backbone"]["class"], facts["converter"]["config"]
    if kind not in CONVERTER:
        raise ConfigError(f"facts of the run: backbone: {kind} is no encoder of this version")
    for name, (low, high) in CONVERTER[kind].items():
        value = converter.get(name)
        if not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"facts of the run: converter: {name} is {value!r}; {low} to {high:,} is allowed")
    own = converter["sampling_rate"]
    if own != rate:
        raise ConfigError(f"data.rate: the preset of model.preset hears {own:,} Hz; set data.rate: {own} (recordings of another rate are "
                          "resampled)")
    if kind == YAMNET:
        return yamnet.YamnetFrontEnd()
    return WhisperFrontEnd(converter) if kind == WHISPER else MoonshineFrontEnd(converter)


def most_frames(facts: Mapping[str, Any]) -> int:
    """That the encoder takes. Raises ConfigError where the facts do not say so."""
    most = facts["backbone"]["config"].get("max_encoder_sequence_length")
    if not isinstance(most, int) or not 2 <= most <= 1_000_000:
        raise ConfigError(f"facts of the run: backbone: max_encoder_sequence_length is {most!r}; 2 to 1,000,000 is allowed")
    return most


def check_frames(facts: Mapping[str, Any], frames: int) -> None:
    """Raises ConfigError where sounds of so many frames are longer than the encoder takes."""
    if facts["backbone"]["class"] != WHISPER:  # it takes any
        return
    most, converter = most_frames(facts), facts["converter"]["config"]
    second = converter["stride"] / converter["sampling_rate"]
    if frames > most:
        raise ConfigError(f"data.seconds: with model.silence the encoder would hear {frames * second:g} s; it takes {most * second:g} s at "
                          "most")
