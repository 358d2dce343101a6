"""Whisper whole: log-mel to tokens, written one after the other, as OpenAI's reference decodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from speech.models.whisper import STRIDE, encoder
from speech.models.whisper_decoder import Decoder

LATEST = 50  # time stamps, of 0.02 s: the first one is at most 1 s

Following = Callable[[tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]  # tokens [rows, n], their place, cache -> logits behind, cache


def beam(following: Following, prompt: tf.Tensor, own: Any, allowed: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor], *,
         width: int, most: int, end: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The best text of each row.

    Args:
        following: the decoder.
        prompt: tokens that decoding begins with, [batch, n] int32.
        own: the decoder's cache before it, of `batch` rows in the second axis.
        allowed: (logits [rows, vocabulary] float32, what the rows have written [rows, most] int32 from 1, how many tokens) -> logits,
            -inf for what is not to be written.
        width: texts followed at the same time.
        most: tokens written.
        end: number of the token that ends a text.

    Returns:
        (tokens [batch, most] int32, from 1, padded with 0; sum of their probabilities [batch] float32).
    """
    batch, begin = tf.shape(prompt)[0], prompt.shape[1]
    logits, own = following(prompt, 0, own)
    if width > 1:
        logits, own = tf.repeat(logits, width, 0), tf.nest.map_structure(lambda cache: tf.repeat(cache, width, 1), own)
    none = tf.fill([batch, width], -float("inf"))
    first = tf.concat([tf.zeros([batch, 1]), none[:, 1:]], 1)  # all rows of a sound are alike at first
    texts, shares = tf.zeros([batch, width, most], tf.int32), tf.zeros([batch, width])

    def closed(ended: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(ended > -float("inf"), 1)

    def more(number: tf.Tensor, _: Any, __: Any, ended: tuple, ___: Any) -> tf.Tensor:
        return (number < most) & ~tf.reduce_all(closed(ended[0]))

    def another(number: tf.Tensor, logits: tf.Tensor, live: tuple, ended: tuple, own: Any) -> tuple:
        before_it = logits, live, ended, own
        totals, texts, shares = live
        size = logits.shape[1]
        logits = allowed(logits, tf.reshape(texts, [-1, most]), number)
        scores = tf.reshape(tf.nn.log_softmax(logits), [batch, width, size])
        best, places = tf.math.top_k(tf.reshape(totals[..., None] + scores, [batch, -1]), 2 * width)  # as many end as do not
        row, token = places // size, places % size
        before, shares = (tf.gather(entry, row, batch_dims=1) for entry in (texts, shares))
        likely = tf.exp(tf.gather(tf.reshape(scores, [batch, -1]), places, batch_dims=1))
        ends = token == end
        counts = ends & (tf.cumsum(tf.cast(~ends, tf.int32), 1) < width) & ~closed(ended[0])[:, None]
        length = tf.cast(tf.maximum(number, 1), tf.float32)
        ended = _kept(width, ended, (tf.where(counts, best / length, -float("inf")), before, shares))
        texts = tf.where(tf.range(most) == number, token[..., None] + 1, before)
        *kept, row, token = _kept(width, None, (tf.where(ends, -float("inf"), best), texts, shares + likely, row, token))
        if width > 1:
            rows = tf.reshape(tf.range(batch)[:, None] * width + row, [-1])
            own = tf.nest.map_structure(lambda cache: tf.gather(cache, rows, axis=1), own)
        behind = following(tf.reshape(token, [-1, 1]), begin + number, own)
        after = behind[0], tuple(kept), ended, behind[1]
        return number + 1, *tf.nest.map_structure(lambda new, old: tf.ensure_shape(new, old.shape), after, before_it)

    _, _, live, ended, _ = tf.while_loop(more, another, (tf.constant(0), logits, (first, texts, shares), (none, texts, shares), own))
    # of texts that did not end, as many as are missing
    missing = tf.where(closed(ended[0])[:, None], -float("inf"), live[0] / most)
    _, texts, shares = _kept(1, ended, (missing, *live[1:]))
    return texts[:, 0], shares[:, 0]


def _kept(count: int, before: tuple | None, new: tuple) -> tuple:
    """The best by their first entry, [batch, count, ...], of those before and the new ones."""
    both = new if before is None else tuple(tf.concat(pair, 1) for pair in zip(before, new))
    best, places = tf.math.top_k(both[0], count)
    return best, *(tf.gather(entry, places, batch_dims=1) for entry in both[1:])


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
