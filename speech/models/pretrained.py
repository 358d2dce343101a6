"""Networks with a pretrained encoder (Whisper and Moonshine of KerasHub, YAMNet) under a new head: `features`, then `head`.

Weights come from the preset, or are those of a run; then the facts say how the encoder is built (speech.data.pretrained).
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.encoders import blend, presets
from pipelines.encoders.features import ClassScores
from pipelines.encoders.linear_head import Emphasis
from pipelines.encoders.presets import hub
from pipelines.encoders.settings import PretrainedModel
from pipelines.fitting.kernel import kept_of
from speech.models import moonshine, yamnet
from speech.models.whisper import STRIDE, WhisperWriter, decoder, encoder
from speech.settings import PretrainedSounds, PretrainedTranscripts, Whisper


class NameScores(ClassScores):
    """Vectors of the encoder [batch, steps, width] to log probabilities [batch, classes] float32, as if nothing but one of these names were
    the first word. A name is known by its first token. Nothing of it trains.

    Args:
        backbone: keras_hub.models.WhisperBackbone, of which the decoder's layers are taken and some rows of its tables.
        names: the fact: `prompt`, the tokens before the first word, and `first`, the first token of each name.
    """

    def __init__(self, backbone: Any, names: Mapping[str, Sequence[int]], **options: Any):
        super().__init__(**options)
        self.heads, self.places_before, self.classes = backbone.num_heads, len(names["prompt"]), len(names["first"])
        self.decoder_layers = list(backbone.decoder_transformer_layers)
        self.last_norm = backbone.decoder_layer_norm
        embedding = backbone.decoder_embeddings
        rows = tf.gather(tf.convert_to_tensor(embedding.token_embedding.embeddings), [*names["prompt"], *names["first"]])
        places = tf.convert_to_tensor(embedding.position_embedding.position_embeddings)[:self.places_before]
        self.rows, self.places = self._kept(rows, "rows"), self._kept(places, "places")
        self.trainable = False

    def _kept(self, values: tf.Tensor, name: str) -> Any:
        return self.add_weight(shape=tuple(values.shape), name=name, initializer=lambda shape, dtype=None: tf.cast(values, dtype))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}  # a run is built again from its experiment

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.classes)

    def call(self, sound: Any) -> tf.Tensor:
        embedding = SimpleNamespace(token_embedding=SimpleNamespace(embeddings=self.rows),
                                    position_embedding=SimpleNamespace(position_embeddings=self.places))
        following = decoder(embedding, self.decoder_layers, self.last_norm, heads=self.heads, most=self.places_before, sound=sound)
        batch = tf.shape(sound)[0]
        prompt = tf.tile(tf.range(self.places_before)[None], [batch, 1])
        logits, _ = following(prompt, 0, following.empty(batch))
        return tf.nn.log_softmax(tf.cast(logits[:, self.places_before:], tf.float32))


LOUD = 24.0  # dB below the loudest step; what is quieter is no speech
HALVED = 40.0 * math.log10(2.0)  # dB, 12: a step that is so much quieter counts half: benchmarks/results/whisper-pooling.csv
WHISPER_UNIT = 40.0  # dB
NAMED = 6.0  # times a vector's deviation that a name's score has before the last layer: benchmarks/results/whisper-names.csv
SILENT = 1e-10  # smallest power


def backbone(settings: PretrainedModel | Whisper, facts: dict[str, Any]) -> Any:
    """The whole backbone; with the preset's weights where settings.weights says so."""
    if settings.weights == "preset":
        return presets.load(presets.find(settings.preset, domain="speech"))
    return presets.rebuilt(hub().models, facts["backbone"])


def commands(settings: PretrainedSounds, *, frames: int, classes: int, facts: dict[str, Any],
             describe: Callable[[Any], tf.Tensor]) -> keras.Model:
    """Features of the encoder's front end [batch, frames, width] float32 to logits [batch, classes]: `features`, the mean of the encoder's
    vectors over speech, weighted as the fact `pool` says, with the fact `names` beside it the decoder's scores of the classes' names, and
    `head`, a linear layer; with settings.blend beside a kernel machine on what `describe` makes of the inputs."""
    layers = keras.layers
    if yamnet.is_yamnet(facts):
        features, names = yamnet.encoder(presets.find(settings.preset) if settings.weights == "preset" else None, frames=frames), None
    else:
        features, names = _spoken(settings, frames, facts)
    given = keras.Input(features.output_shape[1:], name="pooled")
    x = layers.Dropout(settings.dropout)(given)
    x = Emphasis(NAMED, len(names["first"]), name="emphasis")(x) if names else x
    logits = layers.Dense(classes, dtype="float32", name="classes")(x)
    head = keras.Model(given, logits, name="head")
    inputs = keras.Input(features.input_shape[1:], name="features_of_sound")
    model = keras.Model(inputs, head(features(inputs)), name="pretrained")
    if settings.blend is None:
        return model
    return blend.build(model, inputs.shape[1:], describe, support=kept_of(facts), classes=classes)


def _spoken(settings: PretrainedSounds, frames: int, facts: dict[str, Any]) -> tuple[keras.Model, dict[str, Any] | None]:
    """`features` of an encoder of speech, and the fact `names`."""
    waves, whole = hears_waves(facts), backbone(settings, facts)
    vectors = (moonshine.encoder if waves else encoder)(whole, frames=frames)
    sound = keras.Input(vectors.input_shape[1:], name="sound")
    heard = vectors(sound)
    pooled = SpeechMean(waves, by_loudness=facts.get("pool") == "loudness", name="mean", dtype="float32")([heard, sound])
    names = facts.get("names")
    if names:
        pooled = keras.layers.Concatenate(name="mean_and_names", dtype="float32")([pooled, NameScores(whole, names, name="names")(heard)])
    return keras.Model(sound, pooled, name="features"), names


def transcripts(settings: PretrainedTranscripts, *, tokens: int, facts: dict[str, Any]) -> keras.Model:
    """See speech.models.transcript_model; `features`, means of as many of the encoder's vectors as the fact `merge` says, and `head`, a
    linear layer. Recordings longer than Whisper takes are heard window by window; Moonshine hears them whole."""
    layers, waves = keras.layers, hears_waves(facts)
    whole = backbone(settings, facts)
    there = 1 if waves else len(whole.encoder_transformer_layers)
    if settings.layers > there:
        raise ConfigError(f"model.layers: {settings.layers}, and {settings.preset} has {there} whose vectors can stand beside one another")
    vectors = moonshine.encoder(whole) if waves else encoder(whole, last=settings.layers)
    sound = {"features": keras.Input(vectors.input_shape[0][1:], name="features"), "frames": keras.Input([], dtype="int32", name="frames")}
    given = [sound["features"], sound["frames"]]
    if waves:
        joined = layers.Activation("linear", dtype="float32", name="vectors")(vectors(given))
    else:
        windows = Windows(whole.max_encoder_sequence_length, name="windows")(given)
        joined = Joined(name="joined", dtype="float32")([vectors(windows), sound["features"]])
    if (facts.get("merge") or 1) > 1:
        stride, lost = (moonshine.STRIDE, moonshine.REACH - 1) if waves else (STRIDE, 0)
        joined = Merged(facts["merge"], stride=stride, lost=lost, name="merged", dtype="float32")([joined, sound["frames"]])
    features = keras.Model(sound, joined, name="features")
    given = keras.Input(features.output_shape[1:], name="vectors")
    logits = layers.Dense(tokens + 1, dtype="float32", name="tokens")(layers.Dropout(settings.dropout)(given))
    head = keras.Model(given, logits, name="head")
    inputs = {name: keras.Input(one.shape[1:], dtype=one.dtype, name=f"{name}_of_sound") for name, one in sound.items()}
    with warnings.catch_warnings():  # an input may not have the name of a layer, `features`, as Keras would like it to
        warnings.filterwarnings("ignore", message="When providing `inputs` as a dict")
        return keras.Model(inputs, head(features(inputs)), name="pretrained")


def hears_waves(facts: dict[str, Any]) -> bool:
    """Whether the encoder hears the waveform itself (Moonshine), and not its spectrum."""
    return facts["backbone"]["class"] == moonshine.CLASS


def whisper(settings: Whisper, *, facts: dict[str, Any]) -> keras.Model:
    """Encoder and decoder; see WhisperWriter. What does not train stays as it is."""
    marks = facts["marks"]
    model = WhisperWriter(backbone(settings, facts), most=settings.longest, short=settings.silence is not None, **{"times": None, **marks})
    model.trainable = settings.trains != "nothing"
    model.encoder.trainable = settings.trains == "whole"
    return model


class Windows(keras.layers.Layer):
    """Log-mel [batch, frames, mels] as [batch x windows, frames of a window, mels], and the own frames of each, [batch x windows] int32.

    Call with [log-mel, frames]. A window is `most` frames long; where no recording is longer, there is one, as long as the batch.
    """

    def __init__(self, most: int, **options: Any):
        super().__init__(**options)
        self.most = most

    def compute_output_shape(self, input_shape: Any) -> Any:
        return [input_shape[0], input_shape[1]]

    def call(self, inputs: Any) -> list[tf.Tensor]:
        log_mel, frames = inputs
        size = tf.minimum(tf.shape(log_mel)[1], self.most)
        count = -(-tf.shape(log_mel)[1] // size)
        padded = tf.pad(log_mel, [[0, 0], [0, count * size - tf.shape(log_mel)[1]], [0, 0]])
        own = tf.clip_by_value(frames[:, None] - tf.range(count)[None] * size, 0, size)
        return [tf.reshape(padded, [-1, size, log_mel.shape[2]]), tf.reshape(own, [-1])]


class Joined(keras.layers.Layer):
    """Vectors of windows, [batch x windows, steps, width], as [batch, steps, width]. Call with [vectors, log-mel as before `Windows`]."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[1][0], None, input_shape[0][2])

    def call(self, inputs: Any) -> tf.Tensor:
        vectors, log_mel = inputs
        whole = tf.reshape(vectors, [tf.shape(log_mel)[0], -1, vectors.shape[2]])
        return whole[:, :-(-tf.shape(log_mel)[1] // STRIDE)]


class Merged(keras.layers.Layer):
    """The means of each `count` steps, one after the other, of [batch, steps, width], over a recording's own steps: [batch, steps / count,
    rounded up, width]; zeros behind. Call with [vectors, own frames [batch] int32].

    Args:
        stride, lost: a recording has (frames - lost) / stride steps, rounded up.
    """

    def __init__(self, count: int, *, stride: int, lost: int, **options: Any):
        super().__init__(**options)
        self.count, self.stride, self.lost = count, stride, lost

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0][0], None, input_shape[0][2])

    def call(self, inputs: Any) -> tf.Tensor:
        vectors, frames = inputs
        size = tf.shape(vectors)[1]
        own = tf.range(size)[None] < -(-(frames - self.lost) // self.stride)[:, None]
        missing = -size % self.count
        vectors = tf.pad(tf.where(own[..., None], vectors, 0.0), [[0, 0], [0, missing], [0, 0]])
        counts = tf.pad(tf.cast(own, vectors.dtype), [[0, 0], [0, missing]])
        batch, width = tf.shape(vectors)[0], vectors.shape[2]
        sums = tf.reduce_sum(tf.reshape(vectors, [batch, -1, self.count, width]), 2)
        return sums / tf.maximum(tf.reduce_sum(tf.reshape(counts, [batch, -1, self.count]), 2), 1.0)[..., None]


class SpeechMean(keras.layers.Layer):
    """The mean of [batch, steps, width] over the steps in which the sound is loud. Call with [vectors, sound].

    Args:
        waves: the sound is Moonshine's windows of the waveform, else Whisper's log-mel [batch, frames, mels].
        by_loudness: of these steps the quieter ones count less, half at `HALVED` below the loudest; else all count alike.
    """

    def __init__(self, waves: bool = False, by_loudness: bool = False, **options: Any):
        super().__init__(**options)
        self.waves, self.by_loudness = waves, by_loudness

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0][0], input_shape[0][2])

    def call(self, inputs: Any) -> tf.Tensor:
        vectors, sound = inputs
        loudness = (self._of_waves if self.waves else self._of_log_mel)(tf.cast(sound, tf.float32), tf.shape(vectors)[1])
        below = tf.reduce_max(loudness, 1, keepdims=True) - loudness  # dB
        weights = tf.exp(-math.log(2.0) / HALVED * below) if self.by_loudness else tf.ones_like(below)
        weights = tf.where(below <= LOUD, weights, 0.0)[..., None]
        return tf.reduce_sum(tf.cast(vectors, tf.float32) * weights, 1) / tf.reduce_sum(weights, 1)

    def _of_log_mel(self, log_mel: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """Loudness of each step, [batch, steps] dB: a mean over bands."""
        loudness = WHISPER_UNIT * tf.reduce_mean(log_mel, 2)
        loudness = tf.pad(loudness, [[0, 0], [0, STRIDE * steps - tf.shape(loudness)[1]]], constant_values=-1e9)
        return tf.reduce_max(tf.reshape(loudness, [-1, steps, STRIDE]), 2)

    def _of_waves(self, windows: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """Loudness of each step, [batch, steps] dB: the power of all windows that it hears."""
        power = tf.nn.avg_pool1d(tf.reduce_mean(tf.square(windows), 2, keepdims=True), moonshine.REACH, moonshine.STRIDE, "VALID")[..., 0]
        return 10.0 / math.log(10.0) * tf.math.log(tf.maximum(power, SILENT))
