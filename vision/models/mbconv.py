"""keras-hub's inverted bottlenecks (EfficientNet's blocks) in fewer operations: same weights, same numbers but for rounding."""

import types
from typing import Any

import keras
import tensorflow as tf

from pipelines.training.expansion import expanded


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
