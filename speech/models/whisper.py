"""Whisper's encoder (Radford et al. 2022, arXiv:2212.04356) from a KerasHub backbone, for sounds of any length up to its most.

A recording gets the same vectors alone and in a padded batch: convolutions see zeros behind it, and attention never sees padding.
"""

from typing import Any

import keras
from keras import ops

from speech.models.layers import Own

STRIDE = 2  # frames that become one step


def encoder(backbone: Any, *, frames: int | None = None, last: int = 1) -> keras.Model:
    """The encoder alone, named `backbone`, on the weights of a WhisperBackbone.

    Args:
        backbone: keras_hub.models.WhisperBackbone; its decoder is left out.
        frames: of every recording, where all have as many; None: any number, and then the model takes each recording's own.
        last: so many of its blocks, whose vectors stand beside one another, each normalised: a few of their columns are far larger than
            the others.

    Returns:
        Log-mel [batch, frames, mels] to [batch, steps, last x width]; without `frames` of the inputs [log-mel, own frames [batch] int32].
    """
    layers = backbone.encoder_transformer_layers
    log_mel = keras.Input([frames, backbone.num_mels], name="log_mel")
    counts = None if frames else keras.Input([], dtype="int32", name="frames")
    x = ops.gelu(backbone.encoder_conv_layer_1(log_mel), approximate=False)
    steps = None
    if counts is not None:
        x = x * Own(1, name="own_frames")([x, counts])
        steps = Own(STRIDE, name="own_steps")([x, counts])
    x = ops.gelu(backbone.encoder_conv_layer_2(backbone.encoder_padder(x)), approximate=False)
    x = backbone.encoder_embeddings_add((x, backbone.encoder_position_embedding(x)))
    x = backbone.encoder_embeddings_dropout(x)
    mask = None if steps is None else steps[..., 0] > 0
    each = []
    for layer in layers:
        x = layer(x, padding_mask=mask)
        each.append(x)
    vectors = backbone.encoder_layer_norm(x)
    if last > 1:
        plain = keras.layers.LayerNormalization(epsilon=1e-5, center=False, scale=False, name="normalised")
        vectors = keras.layers.Concatenate(name="layers")([*map(plain, each[-last:-1]), vectors])
    return keras.Model(log_mel if counts is None else [log_mel, counts], vectors, name="backbone")
