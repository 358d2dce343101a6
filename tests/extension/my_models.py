"""A model of somebody's own, in the fewest lines."""

from typing import Literal

import keras

import quartet


class Tiny(quartet.Section):
    """One convolution and the mean over the image."""

    name: Literal["tiny"]
    filters: int = quartet.setting(16, "filters of the convolution", ge=1)


@quartet.register_model("vision.classification", Tiny)
def tiny(settings, *, image_size, channels, classes):
    images = keras.Input((*image_size, channels))
    x = keras.layers.Rescaling(1 / 16)(images)
    x = keras.layers.Conv2D(settings.filters, 3, activation="relu")(x)
    return keras.Model(images, keras.layers.Dense(classes, dtype="float32")(keras.layers.GlobalAveragePooling2D()(x)))
