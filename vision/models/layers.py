"""Parts that the image models share: the normalising input and the float32 output."""

from collections.abc import Sequence

import keras

from pipelines.base.errors import ConfigError


def pixels(
    image_size: tuple[int, int], channels: int, mean: Sequence[float], std: Sequence[float],
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """The input [batch, height, width, channels] float32, 0..255, and the same normalised to mean 0 and deviation 1.

    The normalisation is in float32: half precision would round pixel values between the 256 levels.
    """
    images = keras.Input((*image_size, channels), dtype="float32", name="image")
    scale = [1.0 / max(float(value), 1e-3) for value in std]
    offset = [-float(value) * factor for value, factor in zip(mean, scale)]
    return images, keras.layers.Rescaling(scale, offset, dtype="float32", name="normalise")(images)


def logits(features: keras.KerasTensor, classes: int, *, scale: float = 1.0, use_bias: bool = True) -> keras.KerasTensor:
    """A last dense layer, [batch, width] -> [batch, classes] float32."""
    outputs = keras.layers.Dense(classes, use_bias=use_bias, name="classes")(features)
    return keras.layers.Rescaling(scale, dtype="float32", name="logits")(outputs)


def check_size(image_size: tuple[int, int], least: int, name: str) -> None:
    """Raises ConfigError where the shorter side is below what the network needs."""
    if min(image_size) < least:
        raise ConfigError(
            f"model.name: {name} with these settings needs images of at least {least} x {least} px, and they are "
            f"{image_size[0]} x {image_size[1]}; set data.image_size: {least} or more, or choose a shallower model")
