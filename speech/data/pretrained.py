"""A preset's speech encoder (Whisper, Moonshine) as the facts of a run have it, and its front end.

The facts hold the settings of encoder and audio converter, so that a finished run is rebuilt without the preset.
"""

from collections.abc import Mapping
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.encoders import presets
from pipelines.encoders.presets import hub
from speech.data.features import FrontEnd
from speech.data.moonshine_features import MoonshineFrontEnd
from speech.data.whisper_features import WhisperFrontEnd
from speech.models.moonshine import CLASS as MOONSHINE

WHISPER = "WhisperBackbone"
RATE = {"sampling_rate": (1000, 96_000)}
CONVERTER = {WHISPER: {"num_mels": (4, 256), "num_fft_bins": (16, 8192), "stride": (1, 8192), **RATE}, MOONSHINE: RATE}  # lowest, highest


def learn(name: str, *, whole: bool = False) -> dict[str, Any]:
    """The facts: `backbone` and `converter` (class and settings), `encoder` (its origin). Reads the preset, but no weights.

    Args:
        whole: with its decoder.

    Raises:
        ConfigError: there is no such preset, or none that this domain can use.
    """
    preset = presets.find(name, domain="speech")
    if preset.backbone not in CONVERTER:
        raise ConfigError(f"model.preset: {name} is a {preset.backbone}; of speech encoders only Whisper's and Moonshine's are used here")
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

