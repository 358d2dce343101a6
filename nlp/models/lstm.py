"""A bidirectional LSTM (Hochreiter and Schmidhuber 1997) whose states are pooled to their mean and maximum over the text."""

import keras

from nlp.models.parts import UNKNOWN, Mask, MaxPool, MeanPool, assembled, embedding, encoder_inputs, logits
from nlp.settings import Lstm


def build(settings: Lstm, *, size: int, classes: int) -> keras.Model:
    """See `nlp.models.build`. The mask holds states at padding, so the backward direction begins at a text's real end."""
    vectors, ids = encoder_inputs(settings.width)
    mask, x = Mask(name="mask")(ids), vectors
    if settings.dropout:
        x = keras.layers.Dropout(settings.dropout, name="dropout_vectors")(x)
    for number in range(1, settings.layers + 1):
        cell = keras.layers.LSTM(settings.units, return_sequences=True, name=f"lstm{number}")
        x = keras.layers.Bidirectional(cell, name=f"both{number}")(x, mask=mask)
    x = keras.layers.Concatenate(name="joined")([MeanPool(name="mean")([x, ids]), MaxPool(name="max")([x, ids])])
    encoder = keras.Model([vectors, ids], logits(x, classes, settings.dropout), name="encoder")
    return assembled(encoder, embedding(size, settings.width), settings.drop_tokens, UNKNOWN, "lstm")
