"""Parts that the image models share: the normalising input and the float32 output."""

import types
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.training.expansion import expanded


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


def simplify(backbone: Any) -> None:
    """Blocks that widen and have no squeeze-and-excitation compute as below from now on, and depthwise convolutions pad by themselves
    where that is the same; others stay as they are."""
    layers = {layer.name: layer for layer in backbone._flatten_layers()}
    for name, layer in layers.items():
        if type(layer).__name__ == "MBConvBlock" and layer.expand_ratio != 1 and not 0 < layer.se_ratio <= 1:
            layer.call = types.MethodType(_call, layer)
        elif isinstance(layer, keras.layers.ZeroPadding2D) and name.endswith("dwconv_pad"):
            _pad_within(layer, layers.get(name.removesuffix("_pad")))


def _pad_within(padding: keras.layers.ZeroPadding2D, convolution: Any) -> None:
    edges = tuple((size // 2, size // 2) for size in getattr(convolution, "kernel_size", ()))
    plain = padding.padding == edges and convolution.strides == convolution.dilation_rate == (1, 1)
    if plain and convolution.padding == "valid":
        padding.padding, convolution.padding = ((0, 0), (0, 0)), "same"
        padding.call = lambda inputs: inputs  # a padding by no pixel has a gradient that copies the images


def _call(block: Any, inputs: tf.Tensor) -> tf.Tensor:
    """[batch, height, width, channels]. Without the padding by no pixel before the projection, whose gradient copies the wide images."""
    training = block._get_call_context().get_value("training")
    x = expanded(block.conv1, block.bn1, block.act, inputs, training)
    x = block.act(block.bn2(block.depthwise(x)))
    x = block.bn3(block.output_conv(x))
    if block.strides != 1 or block.input_filters != block.output_filters or block.nores:
        return x
    return (block.dropout_layer(x) if block.dropout else x) + inputs
