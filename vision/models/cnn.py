"""The classic teaching network: 3 x 3 convolutions with 2 x 2 max-pooling, one hidden dense layer."""

from collections.abc import Sequence

import keras

from pipelines.training.batch_norm import FusedBatchNormalization
from vision.models.layers import check_size, logits, pixels
from vision.settings import Cnn


def build(
    settings: Cnn, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`. Each convolution halves the size, so n convolutions need 2**n px."""
    check_size(image_size, 2 ** len(settings.widths), "cnn")
    layers = keras.layers
    images, x = pixels(image_size, channels, mean, std)
    for stage, width in enumerate(settings.widths, 1):
        x = layers.Conv2D(width, 3, padding="same", use_bias=not settings.batch_norm, name=f"conv{stage}")(x)
        if settings.batch_norm:
            x = FusedBatchNormalization(momentum=0.9, name=f"norm{stage}")(x)
        # pooling first: the maximum and ReLU commute, and ReLU then touches a quarter of the values
        x = layers.MaxPooling2D(2, name=f"pool{stage}")(x)
        x = layers.ReLU(name=f"relu{stage}")(x)
    x = layers.Flatten(name="flat")(x)
    if settings.dropout:
        x = layers.Dropout(settings.dropout, name="dropout1")(x)
    x = layers.Dense(settings.hidden, activation="relu", name="hidden")(x)
    if settings.dropout:
        x = layers.Dropout(settings.dropout, name="dropout2")(x)
    return keras.Model(images, logits(x, classes), name="cnn")
