"""YAMNet (tensorflow/models, research/audioset/yamnet): MobileNet v1 on patches of 0.96 s, with the weights that it learned on AudioSet's
sounds. Its batch norms are folded into its convolutions, so that it trains as convolutions with biases.

Its last layer knows what AudioSet names, and little else: how a voice or an instrument differs from others of its kind stands in the layers
before. So an encoder gives statistics of four of them, and what learns from these chooses.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base import npz
from pipelines.base.errors import ConfigError
from pipelines.encoders import arrays, presets
from speech.settings import Yamnet

CLASS = "YAMNet"
BANDS, PATCH = 64, 96  # mel bands of a frame, and frames that it sees at once, 0.96 s
OFFSET = 1e-3  # added to the magnitude of a band before the logarithm
SILENCE = float(np.log(OFFSET))
STEP = PATCH // 2  # frames from one patch to the next, as the original has it
FILTERS = (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)  # of the 14 layers
STRIDES = {1: 2, 3: 2, 5: 2, 7: 2, 13: 2}
LAYERS = (7, 9, 11, 14)  # of which an encoder gives statistics: benchmarks/results/sounds.csv
LOUD = 40.0  # dB below the loudest step; what is quieter counts nothing
DECIBELS = 20.0 / float(np.log(10.0))  # of a natural logarithm


def is_yamnet(facts: Mapping[str, Any]) -> bool:
    """Whether the encoder of a run's facts is YAMNet."""
    return bool(facts.get("backbone")) and facts["backbone"]["class"] == CLASS


def backbone(preset: presets.Preset | None, layers: tuple[int, ...] = LAYERS) -> keras.Model:
    """Patches [batch, 96, 64, 1] to what the layers give, each [batch, times, bands, filters], a list where they are several; named
    `backbone`.

    Args:
        preset: whose weights it takes; None: from scratch.

    Raises:
        ConfigError: the weights are of another network.
    """
    x = patches = keras.Input((PATCH, BANDS, 1), name="patches")
    after: dict[int, Any] = {}
    for number, filters in enumerate(FILTERS, 1):
        how: dict[str, Any] = {"strides": STRIDES.get(number, 1), "padding": "same", "activation": "relu"}
        if number == 1:
            x = keras.layers.Conv2D(filters, 3, **how, name="block_1_conv")(x)
        else:
            x = keras.layers.DepthwiseConv2D(3, **how, name=f"block_{number}_depthwise_conv")(x)
            x = keras.layers.Conv2D(filters, 1, activation="relu", name=f"block_{number}_pointwise_conv")(x)
        after[number] = x
    given = [after[number] for number in layers]
    model = keras.Model(patches, given if len(given) > 1 else given[0], name="backbone")
    if preset is not None:
        _fill(model.layers, preset)
    return model


def _fill(layers: list[keras.layers.Layer], preset: presets.Preset) -> None:
    """Sets weights by name: those of `block_2_pointwise_conv` are `layer2/pointwise_conv/kernel` and /bias, of 8 bits where there is a
    scale. Raises ConfigError where they are of another network."""
    file = preset.files[0]
    try:
        with npz.opened(file) as stored:
            for layer in layers:
                if not layer.weights:
                    continue
                block, _, rest = layer.name.removeprefix("block_").partition("_")
                name = f"layer{block}/{rest}" if rest else layer.name
                layer.set_weights([_scaled(stored, f"{name}/{which}") for which in ("kernel", "bias")])
    except (npz.Damaged, KeyError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(f"model.preset: {file} holds no weights of YAMNet ({reason}); copy the preset again") from error


def _scaled(stored: npz.Arrays, name: str) -> np.ndarray:
    values = stored.read(name)
    return (values * stored.read(f"{name}:scale") if f"{name}:scale" in stored.names else values).astype(np.float32)


class Patches(keras.layers.Layer):
    """Log-mel [batch, frames, 64] to [batch x patches, 96, 64, 1], each beginning 48 frames after the one before; silence behind."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (None, PATCH, BANDS, 1)

    def call(self, sound: tf.Tensor) -> tf.Tensor:
        return tf.reshape(patched(sound), [-1, PATCH, BANDS, 1])


def patches_in(frames: int) -> int:
    """Patches that hold so many frames."""
    return max(0, -(-(frames - PATCH) // STEP)) + 1


def patched(sound: tf.Tensor) -> tf.Tensor:
    """Log-mel [batch, frames, 64] as [batch, patches, 96, 64]; in graph."""
    frames = int(sound.shape[1])
    count = patches_in(frames)
    missing = (count - 1) * STEP + PATCH - frames
    padded = tf.pad(sound, [[0, 0], [0, missing], [0, 0]], constant_values=tf.cast(SILENCE, sound.dtype))
    return tf.stack([padded[:, number * STEP:number * STEP + PATCH] for number in range(count)], 1)


class Statistics(keras.layers.Layer):
    """What layers of the network give as one vector [batch, values] float32: of each filter, at its mean over bands, the mean and deviation
    over what is heard. Call with [what each layer gives ..., log-mel [batch, frames, 64]]."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[-1][0], sum(2 * shape[-1] for shape in input_shape[:-1]))

    def call(self, inputs: Any) -> tf.Tensor:
        *layers, sound = inputs
        patches = patched(tf.cast(sound, tf.float32))
        loudness = DECIBELS * tf.reduce_mean(patches, -1)  # [batch, patches, 96]
        count, found = patches.shape[1], []
        for values in layers:
            times, filters = values.shape[1], values.shape[-1]
            own = tf.reduce_max(tf.reshape(loudness, [-1, count * times, PATCH // times]), 2)
            heard = tf.cast(tf.reduce_max(own, 1, keepdims=True) - own <= LOUD, tf.float32)
            share = (heard / tf.reduce_sum(heard, 1, keepdims=True))[..., None]
            of_time = tf.reshape(tf.reduce_mean(tf.cast(values, tf.float32), 2), [-1, count * times, filters])
            mean = tf.reduce_sum(of_time * share, 1)
            found += [mean, tf.sqrt(tf.reduce_sum(tf.square(of_time - mean[:, None]) * share, 1) + 1e-8)]
        return tf.concat(found, 1)


def encoder(preset: presets.Preset | None, *, frames: int, layers: tuple[int, ...] = LAYERS) -> keras.Model:
    """Log-mel [batch, frames, 64] float32 to statistics [batch, values] float32; named `features`."""
    sound = keras.Input((frames, BANDS), name="sound")
    given = backbone(preset, layers)(Patches(name="patches_of_sound")(sound))
    given = given if isinstance(given, list) else [given]
    return keras.Model(sound, Statistics(name="statistics", dtype="float32")([*given, sound]), name="features")


def blocks(layers: tuple[int, ...] = LAYERS) -> list[int]:
    """The number of values of each layer in what `encoder` gives."""
    return [2 * FILTERS[number - 1] for number in layers]


def sounds(settings: Yamnet, *, frames: int, width: int, classes: int, facts: dict[str, Any], describe: Any) -> keras.Model:
    """The network as it is: log-mel [batch, frames, 64] float32 to a logit of each of AudioSet's sounds, the mean over patches of what the
    last layer says of each. Nothing of it trains. Raises ConfigError where the preset's weights are of another network."""
    sound = keras.Input((frames, BANDS), name="sound")
    patches = Patches(name="patches_of_sound")(sound)
    preset = presets.find_arrays(settings.preset, arrays.YAMNET) if settings.weights == "preset" else None
    whole = backbone(preset, (len(FILTERS),))(patches)
    vectors = keras.layers.GlobalAveragePooling2D(dtype="float32", name="vectors")(whole)
    logits = keras.layers.Dense(classes, dtype="float32", name="logits")
    model = keras.Model(sound, MeanOfPatches(frames, dtype="float32", name="mean")(logits(vectors)), name="yamnet")
    if preset is not None:
        _fill([logits], preset)
    model.trainable = False
    return model


class MeanOfPatches(keras.layers.Layer):
    """Logits of patches [batch x patches, classes] to those of recordings of `frames` [batch, classes]: of the mean probability."""

    def __init__(self, frames: int, **options: Any):
        super().__init__(**options)
        self.count = patches_in(frames)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def call(self, logits: tf.Tensor) -> tf.Tensor:
        if self.count == 1:
            return logits
        each = tf.reshape(logits, [-1, self.count, logits.shape[-1]])
        share = tf.math.log(tf.cast(self.count, tf.float32))
        there = tf.reduce_logsumexp(tf.math.log_sigmoid(each), 1) - share
        absent = tf.reduce_logsumexp(tf.math.log_sigmoid(-each), 1) - share
        return there - absent
