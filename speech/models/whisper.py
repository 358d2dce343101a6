"""Whisper's encoder (Radford et al. 2022, arXiv:2212.04356) from a KerasHub backbone, for sounds of any length up to its most.

A recording gets the same vectors alone and in a padded batch: convolutions see zeros behind it, and attention never sees padding.
"""

from typing import Any

import keras
from keras import ops

from speech.models.layers import Own

STRIDE = 2  # frames that become one step


def encoder(backbone: Any, *, frames: int | None = None) -> keras.Model:
    """The encoder alone, named `backbone`, on the weights of a WhisperBackbone.

    Args:
        backbone: keras_hub.models.WhisperBackbone; its decoder is left out.
        frames: of every recording, where all have as many; None: any number, and then the model takes each recording's own.

    Returns:
        Log-mel [batch, frames, mels] to [batch, steps, width]; without `frames` of the inputs [log-mel, own frames [batch] int32].
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
    for layer in layers:
        x = layer(x, padding_mask=mask)
    return keras.Model(log_mel if counts is None else [log_mel, counts], backbone.encoder_layer_norm(x), name="backbone")
