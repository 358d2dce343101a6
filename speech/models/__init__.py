"""Networks for commands and transcription, in float or mixed precision, on features as speech.data.features makes them."""

from collections.abc import Callable
from typing import Any

import keras

from pipelines.config.schema import Section
from speech.settings import COMMAND_MODELS, TRANSCRIPT_MODELS


def command_model(settings: Section, *, frames: int, width: int, classes: int, facts: dict[str, Any],
                  describe: Callable[[Any], Any] | None) -> keras.Model:
    """Features [batch, frames, width] float32 to logits [batch, classes]. `describe` makes statistics [batch, values] of features, for
    models that take these."""
    return COMMAND_MODELS.build(settings, frames=frames, width=width, classes=classes, facts=facts, describe=describe)


def transcript_model(settings: Section, *, width: int, tokens: int, facts: dict[str, Any]) -> keras.Model:
    """{"features": [batch, frames, width] float32, "frames": [batch] int32} to logits [batch, steps, tokens + 1]; the last is the blank.

    `steps_of` says how many of the steps belong to a recording. What lies behind changes nothing.
    """
    return TRANSCRIPT_MODELS.build(settings, width=width, tokens=tokens, facts=facts)


def stride_of(settings: Section, front_end: Any = None, merge: int = 1) -> int:
    """Frames that become one step of the output: the `stride` of the front end (speech.data.features), the settings', or 1; times `merge`,
    steps of a pretrained encoder that become one."""
    if front_end is not None and front_end.stride is not None:
        return int(front_end.stride) * merge
    return int(getattr(settings, "stride", 1)) * merge


def steps_of(settings: Section, frames: Any, front_end: Any = None, merge: int = 1) -> Any:
    """Steps of the output for so many frames (a number or a tensor) of a front end; None: of one of the settings' own."""
    stride = stride_of(settings, front_end, merge)
    return (frames - (front_end.lost if front_end else 0) + stride - 1) // stride
