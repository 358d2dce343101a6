"""Convolutions of several widths side by side, each pooled to its maximum over the text (Kim 2014)."""

import keras

from nlp.models.parts import UNKNOWN, Masked, MaxPool, assembled, embedding, encoder_inputs, logits
from nlp.settings import Cnn


def build(settings: Cnn, *, size: int, classes: int) -> keras.Model:
    """See `nlp.models.build`. Padding is zero, as beyond a text's ends, so its length does not matter."""
    vectors, ids = encoder_inputs(settings.width)
    x = Masked(name="masked")([vectors, ids])
    pooled = []
    for kernel, filters in settings.of_kernels.items():
        y = keras.layers.Conv1D(filters, kernel, padding="same", activation="relu", name=f"conv{kernel}")(x)
        pooled.append(MaxPool(name=f"pool{kernel}")([y, ids]))
    x = keras.layers.Concatenate(name="joined")(pooled) if len(pooled) > 1 else pooled[0]
    encoder = keras.Model([vectors, ids], logits(x, classes, settings.dropout), name="encoder")
    return assembled(encoder, embedding(size, settings.width), settings.drop_tokens, UNKNOWN, "cnn")
