"""Whisper whole: log-mel to tokens, written one after the other, as OpenAI's reference decodes (speech.models.whisper_search)."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from speech.models.whisper import STRIDE, encoder
from speech.models.whisper_decoder import Decoder
from speech.models.whisper_search import beam, timed


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
        decoder = Decoder(self.embedding, self.layers_of_decoder, self.last_norm, heads=self.heads, most=len(self.prompt) + self.most,
                          sound=sound, heard=heard)
        prompt = tf.tile(tf.constant([self.prompt]), [batch, 1])
        if self.languages:
            logits = tf.gather(decoder(prompt[:, :1], 0, decoder.empty(batch))[0], self.languages, axis=1)
            language = tf.gather(tf.constant(self.languages), tf.argmax(logits, 1))
            prompt = tf.where(prompt < 0, language[:, None], prompt)

        def allowed(logits: tf.Tensor, written: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            logits += tf.where(number == 0, self.never_first, self.never)
            return logits if self.times is None else timed(logits, written, number, first=self.times, end=self.end)

        return beam(decoder, prompt, decoder.empty(batch), allowed, width=self.width, most=self.most, end=self.end)
