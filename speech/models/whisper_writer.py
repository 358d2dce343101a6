"""Whisper whole: log-mel to tokens, written one after the other by a decoder that keeps the keys and values of what it has seen.

Greedy decoding as OpenAI's reference has it without time stamps: a prompt, then the most probable token that is not suppressed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from speech.models.whisper import encoder

Cache = tuple[list[tf.Tensor], list[tf.Tensor]]  # of each decoder layer: its own [batch, 2, most, heads, size], and that of the sound


class WhisperWriter(keras.Model):
    """A WhisperBackbone that writes.

    With `tokens` [batch, n] int32 among its inputs it gives the logits of the token behind each, [batch, n, vocabulary] float32; without
    them what it writes itself: {"tokens": [batch, most] int32, from 1, padded with 0; "confidence": [batch] float32, the mean probability
    of the written tokens}. Other inputs: "features" [batch, frames, mels], of whole windows of what the encoder takes at most.

    Args:
        backbone: keras_hub.models.WhisperBackbone.
        prompt: numbers of the tokens that decoding begins with.
        end: number of the last one.
        suppressed: numbers of tokens that are never written.
        suppressed_first: numbers of those that are not written first.
        languages: numbers of the languages' tokens; the most probable one stands where the prompt has -1.
        most: tokens written of a window.
    """

    def __init__(self, backbone: Any, *, prompt: Sequence[int], end: int, suppressed: Sequence[int], suppressed_first: Sequence[int],
                 languages: Sequence[int], most: int):
        super().__init__(name="whisper")
        self.window = backbone.max_encoder_sequence_length
        self.encoder = encoder(backbone, frames=self.window)
        self.embedding, self.layers_of_decoder = backbone.decoder_embeddings, list(backbone.decoder_transformer_layers)
        self.last_norm = backbone.decoder_layer_norm
        self.prompt, self.end, self.heads, self.languages = list(prompt), end, backbone.num_heads, list(languages)
        self.most = min(most, backbone.max_decoder_sequence_length - len(self.prompt))
        never = np.zeros(backbone.vocabulary_size, np.float32)
        never[list(suppressed)] = -np.inf
        first = never.copy()
        first[list(suppressed_first)] = -np.inf
        self.never, self.never_first = never, first
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {}  # a run is built again from its experiment

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> Any:
        features = inputs["features"]
        windows = tf.reshape(features, [-1, self.window, features.shape[2]])
        if "tokens" in inputs:  # of recordings of one window; of longer ones, the first is heard
            sound = self.encoder(features[:, :self.window], training=training)
            x = self.embedding(inputs["tokens"])
            for layer in self.layers_of_decoder:
                x = layer(decoder_sequence=x, encoder_sequence=sound, training=training)
            return tf.cast(self.embedding.token_embedding(self.last_norm(x), reverse=True), tf.float32)
        written, scores = self.write(self.encoder(windows, training=False))
        rows = tf.shape(features)[0]
        count = tf.reduce_sum(tf.cast(tf.reshape(written, [rows, -1]) > 0, tf.float32), 1)
        total = tf.reduce_sum(tf.reshape(scores, [rows, -1]), 1)
        return {"tokens": tf.reshape(written, [rows, -1]), "confidence": total / tf.maximum(count, 1.0)}

    def write(self, sound: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Greedy decoding of the encoder's vectors [batch, steps, width].

        Returns:
            (tokens [batch, most] int32, from 1, padded with 0; probability of each [batch, most] float32, 0 behind the last).
        """
        batch, begin = tf.shape(sound)[0], len(self.prompt)
        table = tf.convert_to_tensor(self.embedding.token_embedding.embeddings)  # within the loop a variable would be copied in each round
        places = tf.convert_to_tensor(self.embedding.position_embedding.position_embeddings)
        size = sound.shape[2] // self.heads
        own = [tf.zeros([batch, 2, begin + self.most, self.heads, size], sound.dtype) for _ in self.layers_of_decoder]
        of_sound = [tf.stack([layer._cross_attention_layer._key_dense(sound), layer._cross_attention_layer._value_dense(sound)], 1)
                    for layer in self.layers_of_decoder]

        def following(ids: tf.Tensor, at: Any, own: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            """Logits of the token behind the last of ids [batch, n], which stand from `at` on."""
            x = tf.gather(table, ids) + places[at:at + tf.shape(ids)[1]]
            x = tf.cast(x, sound.dtype)
            kept = []
            for layer, cache, other in zip(self.layers_of_decoder, own, of_sound):
                x, cache, _ = layer(decoder_sequence=x, encoder_sequence=sound, self_attention_cache=cache,
                                    self_attention_cache_update_index=at, cross_attention_cache=other)
                kept.append(cache)
            x = self.last_norm(x[:, -1])
            return tf.cast(tf.matmul(x, tf.cast(table, x.dtype), transpose_b=True), tf.float32), kept

        def chosen(logits: tf.Tensor, never: np.ndarray, ended: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            logits = logits + never
            best = tf.argmax(logits, -1, output_type=tf.int32)
            ended = ended | (best == self.end)
            share = tf.exp(tf.reduce_max(logits, -1) - tf.reduce_logsumexp(logits, -1))
            return tf.where(ended, self.end, best), tf.where(ended, 0.0, share), ended

        prompt = tf.tile(tf.constant([self.prompt]), [batch, 1])
        if self.languages:
            heard = tf.gather(following(prompt[:, :1], 0, own)[0], self.languages, axis=1)
            language = tf.gather(tf.constant(self.languages), tf.argmax(heard, 1))
            prompt = tf.where(prompt < 0, language[:, None], prompt)
        logits, own = following(prompt, 0, own)
        token, share, ended = chosen(logits, self.never_first, tf.zeros([batch], tf.bool))

        def more(number: tf.Tensor, token: tf.Tensor, share: tf.Tensor, ended: tf.Tensor, *_: Any) -> tf.Tensor:
            return (number < self.most) & ~tf.reduce_all(ended)

        def another(number: tf.Tensor, token: tf.Tensor, share: tf.Tensor, ended: tf.Tensor, tokens: tf.Tensor, shares: tf.Tensor,
                    own: list[tf.Tensor]) -> tuple:
            here = (tf.range(self.most) == number)[None]
            tokens = tf.where(here & ~ended[:, None], token[:, None] + 1, tokens)
            shares = tf.where(here, share[:, None], shares)
            logits, own = following(token[:, None], begin + number, own)
            return number + 1, *chosen(logits, self.never, ended), tokens, shares, own

        empty = tf.zeros([batch, self.most], tf.int32), tf.zeros([batch, self.most])
        _, _, _, _, tokens, shares, _ = tf.while_loop(more, another, (tf.constant(0), token, share, ended, *empty, own))
        return tokens, shares
