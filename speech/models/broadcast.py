"""Broadcasted residual learning (Kim et al. 2021, arXiv:2106.04140): each block convolves over bands, then averages the bands, convolves
over time alone, and adds that back to every band. 16 wide: 47 k weights.

Four groups of bands are normalised separately (sub-spectral normalisation, Chang et al. 2021).
"""

import keras

from pipelines.training.batch_norm import FusedBatchNormalization
from speech.settings import Broadcast

GROUPS = 4
SCALES, STRIDES, DILATIONS = (1.0, 1.5, 2.0, 2.5), (1, 2, 2, 1), (1, 2, 4, 8)


def build(settings: Broadcast, *, frames: int, width: int, classes: int) -> keras.Model:
    """Features [batch, frames, width] to logits [batch, classes]."""
    layers = keras.layers
    inputs = keras.Input([frames, width], name="features")
    x = layers.Reshape([frames, width, 1])(inputs)
    x = layers.Conv2D(2 * settings.width, 5, strides=(1, 2), padding="same", use_bias=False, name="first")(x)
    x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name="first_norm")(x))
    for stage, (scale, stride, dilation, depth) in enumerate(zip(SCALES, STRIDES, DILATIONS, settings.depth)):
        channels = round(settings.width * scale)
        for block in range(depth):
            x = _block(x, channels, stride if block == 0 else 1, dilation, settings.dropout, f"stage{stage}_{block}", change=block == 0)
    x = layers.DepthwiseConv2D((1, 5), padding="same", use_bias=False, name="last_bands")(x)
    x = layers.Conv2D(2 * settings.width, 1, use_bias=False, name="last")(x)
    x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name="last_norm")(x))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="classes")(x), name="broadcast")


def _block(x: keras.KerasTensor, channels: int, stride: int, dilation: int, dropout: float, name: str, *, change: bool,
           ) -> keras.KerasTensor:
    layers = keras.layers
    shortcut = x
    if change:
        x = layers.Conv2D(channels, 1, use_bias=False, name=f"{name}_in")(x)
        x = layers.ReLU()(FusedBatchNormalization(momentum=0.9, name=f"{name}_in_norm")(x))
    x = layers.DepthwiseConv2D((1, 3), strides=1, padding="same", use_bias=False, name=f"{name}_bands")(x)
    if stride > 1:
        x = layers.AveragePooling2D((1, stride), padding="same")(x)
    two_d = _by_group(x, f"{name}_norm")
    # over time alone: the mean of all bands
    line = layers.AveragePooling2D((1, two_d.shape[2]))(two_d)
    line = layers.DepthwiseConv2D((3, 1), dilation_rate=(dilation, 1), padding="same", use_bias=False, name=f"{name}_time")(line)
    line = layers.Activation("silu")(FusedBatchNormalization(momentum=0.9, name=f"{name}_time_norm")(line))
    line = layers.SpatialDropout2D(dropout)(layers.Conv2D(channels, 1, name=f"{name}_out")(line))
    x = two_d + line  # spread over the bands
    return layers.ReLU()(x if change else x + shortcut)


def _by_group(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Batch normalisation of each quarter of the bands apart, where they divide into quarters."""
    layers = keras.layers
    _, time, bands, channels = x.shape
    if bands % GROUPS:
        return FusedBatchNormalization(momentum=0.9, name=name)(x)
    x = layers.Reshape([time, GROUPS, bands // GROUPS, channels])(x)
    x = layers.Permute([1, 3, 2, 4])(x)
    x = layers.Reshape([time, bands // GROUPS, GROUPS * channels])(x)
    x = FusedBatchNormalization(momentum=0.9, name=name)(x)
    x = layers.Reshape([time, bands // GROUPS, GROUPS, channels])(x)
    x = layers.Permute([1, 3, 2, 4])(x)
    return layers.Reshape([time, bands, channels])(x)
