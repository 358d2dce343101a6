"""keras-hub's inverted bottlenecks (MBConv) in fewer operations: the same weights, and the same numbers but for rounding."""

import types
from typing import Any

import tensorflow as tf

from pipelines.training.expansion import expanded


def simplify(backbone: Any) -> None:
    """Blocks that widen and have no squeeze-and-excitation compute as below from now on; others stay as they are."""
    for layer in backbone._flatten_layers():
        if type(layer).__name__ == "MBConvBlock" and layer.expand_ratio != 1 and not 0 < layer.se_ratio <= 1:
            layer.call = types.MethodType(_call, layer)


def _call(block: Any, inputs: tf.Tensor) -> tf.Tensor:
    """[batch, height, width, channels]. Without the padding by no pixel before the projection, whose gradient copies the wide images."""
    training = block._get_call_context().get_value("training")
    x = expanded(block.conv1, block.bn1, block.act, inputs, training)
    x = block.act(block.bn2(block.depthwise(x)))
    x = block.bn3(block.output_conv(x))
    if block.strides != 1 or block.input_filters != block.output_filters or block.nores:
        return x
    return (block.dropout_layer(x) if block.dropout else x) + inputs
