"""Depthwise separable convolutions over time and bands (Zhang et al. 2017, arXiv:1711.07128, table 11): a first convolution that
halves both, separable blocks, the mean of all places. 64 wide and 4 deep: 24 k weights."""

import keras

from pipelines.training.batch_norm import FusedBatchNormalization
from speech.settings import DsCnn


def build(settings: DsCnn, *, frames: int, width: int, classes: int) -> keras.Model:
    """Features [batch, frames, width] to logits [batch, classes]."""
    layers = keras.layers
    inputs = keras.Input([frames, width], name="features")
    x = layers.Reshape([frames, width, 1])(inputs)
    x = layers.Conv2D(settings.widths[0], (10, 4), strides=2, padding="same", use_bias=False, name="first")(x)
    x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name="first_norm")(x))
    for number in range(settings.depth):
        x = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"depthwise{number}")(x)
        x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name=f"depthwise{number}_norm")(x))
        x = layers.Conv2D(settings.widths[number + 1], 1, use_bias=False, name=f"pointwise{number}")(x)
        x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name=f"pointwise{number}_norm")(x))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(settings.dropout)(x)
    return keras.Model(inputs, layers.Dense(classes, name="classes")(x), name="ds_cnn")
