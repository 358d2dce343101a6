"""Separable convolutions over time with residuals and CTC at the end, after QuartzNet (Kriman et al. 2019, arXiv:1910.10261).

Convolutions are padded explicitly and see zeros behind a recording, and statistics leave out the padding: so a recording gets the
same answer alone and in a padded batch.
"""

import keras

from speech.models.layers import MaskedNorm, Own
from speech.settings import Quartz


def build(settings: Quartz, *, width: int, tokens: int) -> keras.Model:
    """See speech.models.transcript_model."""
    layers = keras.layers
    features = keras.Input([None, width], name="features")
    frames = keras.Input([], dtype="int32", name="frames")
    own = Own(settings.stride, name="own")([features, frames])
    first = settings.kernels[0]
    # the same places whatever the number of frames, which "same" does not promise where the stride is over 1
    x = layers.ZeroPadding1D((first // 2, first // 2))(features)
    x = layers.Conv1D(settings.width, first, strides=settings.stride, use_bias=False, name="first")(x)
    x = layers.ReLU()(MaskedNorm(name="first_norm")([x, own]))
    for block, kernel in enumerate(settings.kernels):
        shortcut = MaskedNorm(name=f"block{block}_shortcut_norm")(
            [layers.Conv1D(settings.width, 1, use_bias=False, name=f"block{block}_shortcut")(x), own])
        for number in range(settings.repeat):
            name = f"block{block}_{number}"
            x = layers.DepthwiseConv1D(kernel, padding="same", use_bias=False, name=f"{name}_depthwise")(x)
            x = layers.Conv1D(settings.width, 1, use_bias=False, name=f"{name}_pointwise")(x)
            x = MaskedNorm(name=f"{name}_norm")([x, own])
            if number < settings.repeat - 1:
                x = layers.Dropout(settings.dropout)(layers.ReLU()(x))
        x = layers.Dropout(settings.dropout)(layers.ReLU()(x + shortcut))
    x = layers.Conv1D(2 * settings.width, 1, use_bias=False, name="last")(x)
    x = layers.Dropout(settings.dropout)(layers.ReLU()(MaskedNorm(name="last_norm")([x, own])))
    logits = layers.Dense(tokens + 1, dtype="float32", name="tokens")(x)
    return keras.Model({"features": features, "frames": frames}, logits, name="quartz")
