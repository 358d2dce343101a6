"""Networks for commands and transcription, in float or mixed precision, on features as speech.data.features makes them."""

from typing import Any

import keras

from speech.settings import Broadcast, Conformer, DsCnn, Quartz


def command_model(settings: DsCnn | Broadcast, *, frames: int, width: int, classes: int) -> keras.Model:
    """Features [batch, frames, width] float32 to logits [batch, classes]."""
    from speech.models import broadcast, ds_cnn

    build: Any = {"ds_cnn": ds_cnn.build, "broadcast": broadcast.build}[settings.name]
    return build(settings, frames=frames, width=width, classes=classes)


def transcript_model(settings: Quartz | Conformer, *, width: int, tokens: int) -> keras.Model:
    """{"features": [batch, frames, width] float32, "frames": [batch] int32} to logits [batch, steps, tokens + 1]; the last is the blank.

    `steps_of` says how many of the steps belong to a recording. What lies behind changes nothing.
    """
    from speech.models import conformer, quartz

    build: Any = {"quartz": quartz.build, "conformer": conformer.build}[settings.name]
    return build(settings, width=width, tokens=tokens)


def stride_of(settings: Quartz | Conformer) -> int:
    """Frames that become one step of the output."""
    return 4 if settings.name == "conformer" else settings.stride


def steps_of(settings: Quartz | Conformer, frames: Any) -> Any:
    """Steps of the output for so many frames (a number or a tensor)."""
    stride = stride_of(settings)
    return (frames + stride - 1) // stride
