"""A linear model for images, a metric, and an entry at each door. Keras is imported late."""

from typing import Literal

import quartet


class Linear(quartet.Section):
    """All pixels into each class."""

    name: Literal["linear"]
    scale: float = quartet.setting(16.0, "what pixels are divided by", gt=0.0)


@quartet.register_model("vision.classification", Linear)
def linear(settings, *, image_size, channels, classes):
    import keras

    images = keras.Input((*image_size, channels))
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / settings.scale)(images))
    return keras.Model(images, keras.layers.Dense(classes, dtype="float32")(x))


class Chosen(quartet.Section):
    """The probability of the label."""

    name: Literal["label_probability"]


@quartet.register_metric(Chosen, better="max", share=True)
def label_probability(settings, outputs, targets):
    import tensorflow as tf

    return tf.gather(tf.nn.softmax(outputs), targets, batch_dims=1)


class Ends(quartet.Section):
    """How runs end, in a file."""

    ends: str | None = quartet.setting(None, "a file to which a line is added when a run ends")


class Smooth(quartet.Section):
    """Gradients that remember."""

    smooth: float = quartet.setting(0.0, "share of the gradient before in each gradient", ge=0.0, lt=1.0)


quartet.register_hook("ends", Ends)("sample_extension.hooks:EndsHook")
quartet.register_transform("smooth", Smooth)("sample_extension.transforms:Smoothed")
quartet.register_command("ends")("sample_extension.commands:count_ends")
quartet.register_storage("squeezed")("sample_extension.storages:Squeezed")
quartet.register_guard("withdrawn")("sample_extension.storages:Withdrawn")
quartet.register_remote("memory")("sample_extension.storages:Memory")
quartet.register_options("aloud", "ends", "train")("sample_extension.commands:aloud")
quartet.register_form("halves")("sample_extension.forms:Halves")
quartet.register_options("halves", "export")("sample_extension.forms:halved")
quartet.register_options("apart", "train")("sample_extension.launchers:apart")
quartet.register_launcher("apart")("sample_extension.launchers:choose")
quartet.register_protocol("count")("sample_extension.protocols:Counting")
