"""Whisper's encoder (Radford et al. 2022, arXiv:2212.04356) from a KerasHub backbone, for sounds of any length up to its most.

A recording gets the same vectors alone and in a padded batch: convolutions see zeros behind it, and attention never sees padding.

Whisper's decoder, a token at a time: the keys and values of what it has written and of the sound are kept.

The layers are KerasHub's; here stand their products alone, on weights as plain tensors. In a loop, a variable is read anew in each round,
and KerasHub's attention transposes all 1,500 steps of sound for each token.

Whisper whole: log-mel to tokens, written one after the other, as OpenAI's reference decodes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

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


Cache = list[tf.Tensor]  # of each layer, keys and values: [2, rows, heads, most, size]


class Decoder:
    """The decoder of a WhisperBackbone before a sound.

    Args:
        embedding, layers, last_norm: of the backbone's decoder.
        heads: of its attention.
        most: tokens, prompt included.
        sound: vectors of the encoder, [batch, steps, width].
        heard: which steps are there, [batch, steps] bool; None: all.
    """

    def __init__(self, embedding: Any, layers: Sequence[Any], last_norm: Any, *, heads: int, most: int, sound: tf.Tensor,
                 heard: tf.Tensor | None = None):
        self.heads, self.most, self.dtype, self.width = heads, most, sound.dtype, int(sound.shape[2])
        self.table = self._tensor(embedding.token_embedding.embeddings)
        self.places = self._tensor(embedding.position_embedding.position_embeddings)
        self.last_norm = self._norm(last_norm)
        self.layers = [self._weights(layer) for layer in layers]
        self.sound_keys = [(self._split(_dense(sound, *self._dense(layer._cross_attention_layer._key_dense))),
                            self._split(_dense(sound, *self._dense(layer._cross_attention_layer._value_dense)))) for layer in layers]
        self.unheard = None if heard is None else tf.where(heard, 0.0, -1e9)[:, None, None]

    def empty(self, rows: tf.Tensor) -> Cache:
        """Before the first token."""
        return [tf.zeros([2, rows, self.heads, self.most, self.width // self.heads], self.dtype) for _ in self.layers]

    def __call__(self, ids: tf.Tensor, at: Any, own: Cache) -> tuple[tf.Tensor, Cache]:
        """Logits [rows, vocabulary] float32 of the token behind the last of ids [rows, n], which stand from `at` on; the cache with them.

        Rows are those of the sound, each as often as it is followed.
        """
        count = tf.shape(ids)[1]
        x = tf.gather(self.table, ids) + self.places[at:at + count]
        later = tf.range(self.most)[None] > at + tf.range(count)[:, None]
        mask = tf.where(later, -1e9, 0.0)[None, None]
        kept = []
        for weights, cache, (keys, values) in zip(self.layers, own, self.sound_keys):
            mixed = _dense(_normed(x, *weights["self norm"]), *weights["self"])
            query, *new = [self._split(part) for part in tf.split(mixed, 3, axis=-1)]
            behind = self.most - at - count
            cache = tf.ensure_shape(cache + tf.pad(tf.stack(new), [[0, 0], [0, 0], [0, 0], [at, behind], [0, 0]]), cache.shape)
            kept.append(cache)
            x += _dense(self._joined(_attention(query, cache[0], cache[1], mask)), *weights["self out"])
            query = self._split(_dense(_normed(x, *weights["cross norm"]), *weights["cross"]))
            x += _dense(self._joined(self._of_sound(query, keys, values)), *weights["cross out"])
            inner = tf.nn.gelu(_dense(_normed(x, *weights["inner norm"]), *weights["inner"]), approximate=False)
            x += _dense(inner, *weights["inner out"])
        last = _normed(x[:, -1], *self.last_norm)
        return tf.cast(tf.matmul(last, self.table, transpose_b=True), tf.float32), kept

    def _of_sound(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Rows that follow one sound ask it together: [rows, heads, n, size]."""
        batch, count, size = tf.shape(keys)[0], tf.shape(query)[2], query.shape[3]
        each = tf.transpose(tf.reshape(query, [batch, -1, self.heads, count, size]), [0, 2, 1, 3, 4])
        asked = _attention(tf.reshape(each, [batch, self.heads, -1, size]), keys, values, self.unheard)
        back = tf.transpose(tf.reshape(asked, [batch, self.heads, -1, count, size]), [0, 2, 1, 3, 4])
        return tf.reshape(back, tf.shape(query))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        """[rows, n, width] by head, [rows, heads, n, size]."""
        return tf.transpose(tf.reshape(x, [tf.shape(x)[0], -1, self.heads, self.width // self.heads]), [0, 2, 1, 3])

    def _joined(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [tf.shape(x)[0], -1, self.width])

    def _weights(self, layer: Any) -> dict[str, tuple]:
        own, cross = layer._self_attention_layer, layer._cross_attention_layer
        parts = [self._dense(dense) for dense in (own._query_dense, own._key_dense, own._value_dense)]
        return {
            "self norm": self._norm(layer._self_attention_layer_norm), "self": tuple(tf.concat(part, -1) for part in zip(*parts)),
            "self out": self._dense(own._output_dense),
            "cross norm": self._norm(layer._cross_attention_layer_norm), "cross": self._dense(cross._query_dense),
            "cross out": self._dense(cross._output_dense),
            "inner norm": self._norm(layer._feedforward_layer_norm), "inner": self._dense(layer._feedforward_intermediate_dense),
            "inner out": self._dense(layer._feedforward_output_dense)}

    def _tensor(self, variable: Any) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(variable), self.dtype)

    def _norm(self, layer: Any) -> tuple[tf.Tensor, tf.Tensor, float]:
        return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta), layer.epsilon

    def _dense(self, layer: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Kernel [width in, width out] and bias, zeros where the layer has none."""
        width = self.width if layer.kernel.shape[0] == self.width else -1  # heads may be an axis of their own on either side
        kernel = tf.reshape(self._tensor(layer.kernel), [width, self.width if width == -1 else -1])
        bias = getattr(layer, "bias", None)
        return kernel, tf.zeros([kernel.shape[1]], self.dtype) if bias is None else tf.reshape(self._tensor(bias), [-1])


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel) + bias
    return tf.reshape(flat, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))


def _normed(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [-1], keepdims=True)
    return tf.cast(tf.nn.batch_normalization(tf.cast(x, tf.float32), mean, variance, beta, gamma, epsilon), x.dtype)


def _attention(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """[rows, heads, n, size]; `mask` is added to the products."""
    products = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32) * float(query.shape[3]) ** -0.5
    shares = tf.nn.softmax(products if mask is None else products + mask)
    return tf.matmul(tf.cast(shares, values.dtype), values)


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
