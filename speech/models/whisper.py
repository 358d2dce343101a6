"""Whisper's encoder (Radford et al. 2022, arXiv:2212.04356) from a KerasHub backbone, for sounds of any length up to its most.

A recording gets the same vectors alone and in a padded batch: convolutions see zeros behind it, and attention never sees padding.

Whisper whole: log-mel to tokens, written one after the other, as OpenAI's reference decodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from pipelines.outputs.decoder import Decoder, Layer
from pipelines.outputs.search import beam
from speech.models.layers import Own

STRIDE = 2  # frames that become one step


def encoder(backbone: Any, *, frames: int | None = None, last: int = 1) -> keras.Model:
    """The encoder alone, named `backbone`, on the weights of a WhisperBackbone.

    Args:
        backbone: keras_hub.models.WhisperBackbone; its decoder is left out.
        frames: of every recording, where all have as many; None: any number, and then the model takes each recording's own.
        last: so many of its blocks, whose vectors stand beside one another, each normalised: a few of their columns are far larger than
            the others.

    Returns:
        Log-mel [batch, frames, mels] to [batch, steps, last x width]; without `frames` of the inputs [log-mel, own frames [batch] int32].
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
    each = []
    for layer in layers:
        x = layer(x, padding_mask=mask)
        each.append(x)
    vectors = backbone.encoder_layer_norm(x)
    if last > 1:
        plain = keras.layers.LayerNormalization(epsilon=1e-5, center=False, scale=False, name="normalised")
        vectors = keras.layers.Concatenate(name="layers")([*map(plain, each[-last:-1]), vectors])
    return keras.Model(log_mel if counts is None else [log_mel, counts], vectors, name="backbone")


def decoder(embedding: Any, layers: Sequence[Any], last_norm: Any, *, heads: int, most: int, sound: tf.Tensor,
            heard: tf.Tensor | None = None) -> Decoder:
    """The decoder of a WhisperBackbone before a sound; KerasHub's own transposes all 1,500 steps of sound for each token.

    Args:
        embedding, layers, last_norm: of the backbone's decoder.
        heads: of its attention.
        most: tokens, prompt included.
        sound: vectors of the encoder, [batch, steps, width].
        heard: which steps are there, [batch, steps] bool; None: all.
    """
    width = int(sound.shape[2])

    def tensor(variable: Any) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(variable), sound.dtype)

    def norm(layer: Any) -> tuple[tf.Tensor, tf.Tensor, float]:
        return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta), layer.epsilon

    def dense(layer: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Zeros where the layer has no bias."""
        inside = width if layer.kernel.shape[0] == width else -1  # heads may be an axis of their own on either side
        kernel = tf.reshape(tensor(layer.kernel), [inside, width if inside == -1 else -1])
        bias = getattr(layer, "bias", None)
        return kernel, tf.zeros([kernel.shape[1]], sound.dtype) if bias is None else tf.reshape(tensor(bias), [-1])

    def weights(layer: Any) -> Layer:
        own, cross = layer._self_attention_layer, layer._cross_attention_layer
        parts = [dense(part) for part in (own._query_dense, own._key_dense, own._value_dense)]
        kernel, bias = (tf.concat(part, -1) for part in zip(*parts))
        return Layer(
            norm(layer._self_attention_layer_norm), (kernel, bias), dense(own._output_dense),
            norm(layer._cross_attention_layer_norm), dense(cross._query_dense), dense(cross._key_dense), dense(cross._value_dense),
            dense(cross._output_dense), norm(layer._feedforward_layer_norm), dense(layer._feedforward_intermediate_dense),
            dense(layer._feedforward_output_dense))

    return Decoder(tensor(embedding.token_embedding.embeddings), tensor(embedding.position_embedding.position_embeddings)[:most],
                   [weights(layer) for layer in layers], norm(last_norm), heads=heads, read=sound, there=heard,
                   activation=lambda x: tf.nn.gelu(x, approximate=False))


LATEST = 50  # time stamps, of 0.02 s: the first one is at most 1 s


def timed(logits: tf.Tensor, written: tf.Tensor, number: tf.Tensor, *, first: int, end: int) -> tf.Tensor:
    """The rules of time stamps: they come first, then in pairs around each phrase, and never go back.

    Where all time stamps together are more probable than any other token, one of them is written.

    Args:
        logits: [rows, vocabulary] float32.
        written: [rows, most] int32 from 1, of which `number` are there.
        first: number of the token of 0 s; those behind it are 0.02 s apart.
    """
    numbers = tf.range(logits.shape[1])[None]
    stamp = numbers >= first
    two = tf.gather(tf.pad(written, [[0, 0], [2, 0]]), [number, number + 1], axis=1) - 1
    before, last = two[:, :1] >= first, two[:, 1:] >= first
    alone = (number < 2) | before  # the last one, where it is a time stamp, has begun something, or is the first
    latest = tf.reduce_max(tf.where(written > first, written - 1, first - 1), 1, keepdims=True)
    lowest = latest + tf.where(last & ~alone, 0, 1)
    never = stamp & (numbers < lowest) | (stamp & last & alone) | (~stamp & (numbers != end) & last & ~alone)
    never |= (number == 0) & (~stamp | (numbers > first + LATEST))
    logits = tf.where(never, -float("inf"), logits)
    likely = tf.reduce_logsumexp(logits[:, first:], 1, keepdims=True) > tf.reduce_max(logits[:, :first], 1, keepdims=True)
    return tf.where(~stamp & likely, -float("inf"), logits)


class WhisperWriter(keras.Model):
    """A WhisperBackbone that writes.

    Inputs: "features" [batch, frames, mels], whole windows of what the encoder takes at most, or, with `short`, one that is shorter;
    "frames" [batch] int32, the recording's own. With "tokens" [batch, n] int32 it gives the logits of the token behind each,
    [batch, n, vocabulary] float32; without, what it writes itself: "tokens" [batch, windows x most] int32, from 1, padded with 0;
    "confidence" [batch] float32, the mean probability of the written tokens; with time stamps "at", each token's window by its first frame,
    as the tokens.

    Args:
        backbone: keras_hub.models.WhisperBackbone.
        prompt: numbers of the tokens that decoding begins with.
        end: number of the last one.
        suppressed: numbers of tokens that are never written.
        suppressed_first: numbers of those that are not written first.
        languages: numbers of the languages' tokens; the most probable one stands where the prompt has -1.
        times: number of the token of the time 0 s, where time stamps are written.
        most: tokens written of a window.
        short: a recording is heard as long as it is; else up to the end of a window.
    """

    def __init__(self, backbone: Any, *, prompt: Sequence[int], end: int, suppressed: Sequence[int], suppressed_first: Sequence[int],
                 languages: Sequence[int], times: int | None, most: int, short: bool):
        super().__init__(name="whisper")
        self.window, self.short = backbone.max_encoder_sequence_length, short
        self.encoder = encoder(backbone, frames=None if short else self.window)
        self.embedding, self.layers_of_decoder = backbone.decoder_embeddings, list(backbone.decoder_transformer_layers)
        self.last_norm = backbone.decoder_layer_norm
        self.prompt, self.end, self.heads, self.languages = list(prompt), end, backbone.num_heads, list(languages)
        self.times = times
        self.most = min(most, backbone.max_decoder_sequence_length - len(self.prompt))
        self.width = 1  # texts followed at the same time
        never = np.zeros(backbone.vocabulary_size, np.float32)
        never[list(suppressed)] = -np.inf
        first = never.copy()
        first[list(suppressed_first)] = -np.inf
        self.never, self.never_first = never, first
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> Any:
        features, frames = inputs["features"], inputs["frames"]
        rows = tf.shape(features)[0]
        if "tokens" in inputs:  # of recordings of one window; of longer ones, the first is heard
            sound, heard = self._heard(features[:, :self.window], tf.minimum(frames, self.window), training)
            x = self.embedding(inputs["tokens"])
            for layer in self.layers_of_decoder:
                x = layer(decoder_sequence=x, encoder_sequence=sound, encoder_padding_mask=heard, training=training)
            return tf.cast(self.embedding.token_embedding(self.last_norm(x), reverse=True), tf.float32)
        size = tf.minimum(tf.shape(features)[1], self.window)
        windows = tf.reshape(features, [-1, size, features.shape[2]])
        starts = tf.range(tf.shape(windows)[0] // rows) * size
        own = tf.reshape(frames[:, None] - starts, [-1])
        tokens, shares = self.write(*self._heard(windows, tf.clip_by_value(own, 1, size), False))
        behind = (own <= 0) & (tf.tile(starts, [rows]) > 0)  # a window of nothing, beside longer recordings
        tokens, shares = (tf.reshape(tf.where(behind[:, None], 0, tokens), [rows, -1]),
                          tf.reduce_sum(tf.reshape(tf.where(behind, 0.0, shares), [rows, -1]), 1))
        count = tf.reduce_sum(tf.cast(tokens > 0, tf.float32), 1)
        found = {"tokens": tokens, "confidence": shares / tf.maximum(count, 1.0)}
        if self.times is not None:
            found["at"] = tf.tile(tf.repeat(starts, self.most)[None], [rows, 1])
        return found

    def _heard(self, features: tf.Tensor, frames: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The encoder's vectors [batch, steps, width], and which of them count; None: all."""
        if not self.short:
            return self.encoder(features, training=training), None
        sound = self.encoder([features, frames], training=training)
        return sound, tf.range(tf.shape(sound)[1])[None] < -(-frames // STRIDE)[:, None]

    def write(self, sound: tf.Tensor, heard: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokens of the encoder's vectors [batch, steps, width], and the sum of their probabilities: see `beam`."""
        batch = tf.shape(sound)[0]
        following = decoder(self.embedding, self.layers_of_decoder, self.last_norm, heads=self.heads, most=len(self.prompt) + self.most,
                            sound=sound, heard=heard)
        prompt = tf.tile(tf.constant([self.prompt]), [batch, 1])
        if self.languages:
            logits = tf.gather(following(prompt[:, :1], 0, following.empty(batch))[0], self.languages, axis=1)
            language = tf.gather(tf.constant(self.languages), tf.argmax(logits, 1))
            prompt = tf.where(prompt < 0, language[:, None], prompt)

        def allowed(logits: tf.Tensor, written: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            logits += tf.where(number == 0, self.never_first, self.never)
            return logits if self.times is None else timed(logits, written, number, first=self.times, end=self.end)

        return beam(following, prompt, following.empty(batch), allowed, width=self.width, most=self.most, end=self.end)
