"""A Conformer encoder with CTC at the end (Gulati et al. 2020, arXiv:2005.08100): two strided convolutions, sines for positions, then
blocks of half a feed-forward, attention, a convolution, and the other half.

Attention and convolutions never see padding, and normalisation is by step (layer normalisation also within the convolution
module, where the paper has batch normalisation): so a recording gets the same answer alone and in a padded batch.
"""

import keras

from speech.models.layers import Own, Positions, Reach
from speech.settings import Conformer


def build(settings: Conformer, *, width: int, tokens: int) -> keras.Model:
    """See speech.models.transcript_model."""
    layers = keras.layers
    features = keras.Input([None, width], name="features")
    frames = keras.Input([], dtype="int32", name="frames")
    half, own = Own(2, name="own_half")([features, frames]), Own(4, name="own")([features, frames])
    x = features
    for number, mask in enumerate((half, own)):
        x = layers.ZeroPadding1D((1, 1))(x)
        x = layers.Conv1D(settings.width, 3, strides=2, activation="silu", name=f"halve{number}")(x) * mask
    x = layers.Dropout(settings.dropout)(Positions(name="positions")(layers.Dense(settings.width, name="begin")(x)))
    reach = Reach(name="reach")(own)
    for number in range(settings.depth):
        x = _block(x, own, reach, settings, f"block{number}")
    logits = layers.Dense(tokens + 1, dtype="float32", name="tokens")(x)
    return keras.Model({"features": features, "frames": frames}, logits, name="conformer")


def _block(x: keras.KerasTensor, own: keras.KerasTensor, reach: keras.KerasTensor, settings: Conformer, name: str) -> keras.KerasTensor:
    layers = keras.layers

    def norm(value: keras.KerasTensor, part: str) -> keras.KerasTensor:
        return layers.LayerNormalization(epsilon=1e-5, name=f"{name}_{part}_norm")(value)

    def feed_forward(value: keras.KerasTensor, part: str) -> keras.KerasTensor:
        inner = layers.Dense(4 * settings.width, activation="silu", name=f"{name}_{part}_wide")(norm(value, part))
        inner = layers.Dense(settings.width, name=f"{name}_{part}_narrow")(layers.Dropout(settings.dropout)(inner))
        return value + 0.5 * layers.Dropout(settings.dropout)(inner)

    x = feed_forward(x, "first")
    inner = norm(x, "attention")
    attention = layers.MultiHeadAttention(settings.heads, settings.width // settings.heads, dropout=settings.dropout,
                                          name=f"{name}_attention")
    x = x + layers.Dropout(settings.dropout)(attention(inner, inner, attention_mask=reach))
    inner = layers.Dense(2 * settings.width, name=f"{name}_gate")(norm(x, "convolution"))
    inner = inner[..., :settings.width] * layers.Activation("sigmoid")(inner[..., settings.width:])
    inner = layers.DepthwiseConv1D(settings.kernel, padding="same", name=f"{name}_depthwise")(inner * own)
    inner = layers.Activation("silu")(norm(inner, "depthwise"))
    x = x + layers.Dropout(settings.dropout)(layers.Dense(settings.width, name=f"{name}_mix")(inner))
    x = feed_forward(x, "second")
    return norm(x, "end")
