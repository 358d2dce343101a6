"""Moonshine's encoder (Jeffries et al. 2024, arXiv:2410.15608) from a KerasHub backbone, for sounds of any length.

KerasHub normalises over all of a batch's time, padding included. Here statistics are those of a recording's own windows and attention
never sees padding, so that a recording gets the same vectors alone and in a padded batch; alone they are KerasHub's.
"""

import math
from typing import Any

import keras
import tensorflow as tf

CLASS = "MoonshineBackbone"
WINDOW, HOP = 127, 64  # samples of a window, and from one to the next: the kernel and the stride of the first convolution
REACH, STRIDE = 13, 6  # windows that one step of the encoder hears, and from one step to the next


def encoder(backbone: Any, *, frames: int | None = None) -> keras.Model:
    """The encoder alone, named `backbone`, on the weights of a MoonshineBackbone.

    Args:
        backbone: keras_hub.models.MoonshineBackbone; its decoder is left out.
        frames: windows of every recording, where all have as many; None: any number, and then the model takes each recording's own.

    Returns:
        Windows of the waveform [batch, frames, 127] to [batch, steps, width]; without `frames` of the inputs
        [windows, own frames [batch] int32].
    """
    windows = keras.Input([frames, backbone.conv1.kernel.shape[0]], name="windows")
    counts = None if frames else keras.Input([], dtype="int32", name="frames")
    x = Stem(backbone, name="embedding")(windows if counts is None else [windows, counts])
    turns = Turns(backbone.encoder_rotary_embedding, dtype="float32", name="rotary_embedding")(x)
    mask = None
    if counts is not None:
        mask = backbone.get_layer("compute_attention_mask")(x, (counts - REACH) // STRIDE + 1)
    x = backbone.encoder_dropout(x)
    for block in backbone.encoder_blocks:
        x = block(x, turns, attention_mask=mask)
    vectors = backbone.encoder_final_layer_norm(x)
    return keras.Model(windows if counts is None else [windows, counts], vectors, name="backbone")


class Part(keras.layers.Layer):
    """A layer on layers of KerasHub's backbone."""

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}  # a run is built again from its experiment


class Stem(Part):
    """Windows of a waveform to the steps of the encoder: three convolutions, with a normalisation over a recording's own windows.

    Call with windows [batch, frames, 127], of which all count, or [windows, own frames].
    """

    def __init__(self, backbone: Any, **options: Any):
        super().__init__(**options)
        self.conv1, self.norm, self.conv2, self.conv3 = backbone.conv1, backbone.group_norm, backbone.conv2, backbone.conv3
        self.built = True

    def compute_output_shape(self, input_shape: Any) -> Any:
        windows = input_shape[0] if isinstance(input_shape, list) else input_shape
        return (windows[0], windows[1] and (windows[1] - REACH) // STRIDE + 1, self.conv3.filters)

    def call(self, inputs: Any) -> tf.Tensor:
        windows, counts = inputs if isinstance(inputs, (list, tuple)) else (inputs, None)
        x = tf.tanh(tf.tensordot(windows, tf.cast(self.conv1.kernel[:, 0], windows.dtype), 1))
        x = self.conv2(tf.cast(self._normed(tf.cast(x, tf.float32), counts), x.dtype))
        return keras.activations.gelu(self.conv3(keras.activations.gelu(x, approximate=False)), approximate=False)

    def _normed(self, x: tf.Tensor, counts: tf.Tensor | None) -> tf.Tensor:
        """[batch, frames, filters] by mean and deviation over a recording's own frames and all filters."""
        own = tf.ones_like(x[..., :1]) if counts is None else tf.cast(tf.range(tf.shape(x)[1])[None] < counts[:, None], x.dtype)[..., None]
        count = tf.reduce_sum(own, 1, keepdims=True) * x.shape[2]
        mean = tf.reduce_sum(x * own, [1, 2], keepdims=True) / count
        variance = tf.reduce_sum(tf.square((x - mean) * own), [1, 2], keepdims=True) / count
        scale = tf.math.rsqrt(variance + self.norm.epsilon) * tf.cast(self.norm.gamma, tf.float32)
        return ((x - mean) * scale + tf.cast(self.norm.beta, tf.float32)) * own


class Turns(Part):
    """How far queries and keys of each step of [batch, steps, width] are turned, [steps, turned columns] float32: less than once round,
    so that bfloat16 holds it."""

    def __init__(self, rotary: Any, **options: Any):
        super().__init__(**options)
        self.rotary = rotary
        self.built = True

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[1], 2 * self.rotary.inv_freq.shape[0])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        angles = tf.range(tf.shape(inputs)[1], dtype=tf.float32)[:, None] * tf.cast(self.rotary.inv_freq, tf.float32)
        return tf.repeat(tf.math.floormod(angles, 2 * math.pi), 2, axis=1)
