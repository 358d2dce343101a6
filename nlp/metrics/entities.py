"""Spans and the tags of words: tags are 0 for what lies in no span, 1 + 2 c for a word with which one of type c begins, and 2 + 2 c for one
within. In graph; places are characters.
"""

import tensorflow as tf

from pipelines.data.source import Tensors

IGNORED = -1  # the tag of what is no word's first token


def first_tokens(starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Which tokens are their word's first, [batch, time] bool; `starts` and `ends` [batch, time] int32 are those of the words, which are
    empty at marks and padding."""
    before = tf.pad(ends, [[0, 0], [1, 0]])[:, :-1]
    return (ends > starts) & ~(before == ends)


def tags_of(spans: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """The tag of each word at its first token, [batch, time] int32, IGNORED elsewhere. A word belongs to the first span that it touches.

    Args:
        spans: [batch, n, 3] int32, first character, the one behind the last, type; both places 0 where there is none.
    """
    touches = (starts[..., None] < spans[:, None, :, 1]) & (ends[..., None] > spans[:, None, :, 0])  # [batch, time, n]
    begins = touches & (starts[..., None] <= spans[:, None, :, 0])
    tag = 1 + 2 * spans[:, None, :, 2] + tf.cast(~begins, tf.int32)
    first = touches & (tf.cumsum(tf.cast(touches, tf.int32), -1) == 1)
    chosen = tf.reduce_sum(tf.where(first, tag, 0), -1)
    return tf.where(first_tokens(starts, ends), chosen, IGNORED)


def words_first(starts: tf.Tensor, ends: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    """Values of tokens [batch, time, ...] in an order in which those of words' first tokens stand together, behind which of them are such,
    [batch, time] bool; `starts` and `ends` as `first_tokens` takes them."""
    words = first_tokens(starts, ends)
    order = tf.argsort(tf.cast(~words, tf.int32), 1, stable=True)
    return [tf.gather(value, order, batch_dims=1) for value in (words, *values)]


def found(tags: tf.Tensor, chances: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> Tensors:
    """The spans that tags say, in their order: "spans" [batch, time, 3] int32, both places 0 behind the last; "scores" [batch, time]
    float32, the mean probability of their words' tags. A tag within a span, without one of its type before it, begins one.

    Args:
        tags, chances: [batch, time] int32 and float32, of which those at first tokens count.
        starts, ends: as `first_tokens` takes them.
    """
    words, tags, chances, starts, ends = words_first(starts, ends, tags, chances, starts, ends)
    tags = tf.where(words, tags, 0)
    inside, kinds = tags > 0, (tags - 1) // 2
    before = tf.pad(tags, [[0, 0], [1, 0]])[:, :-1]
    begins = inside & ((tags % 2 == 1) | (before == 0) | ((before - 1) // 2 != kinds))
    goes_on = tf.pad((inside & ~begins)[:, 1:], [[0, 0], [0, 1]])
    last = inside & ~goes_on
    # the k-th beginning and the k-th end are those of the k-th span
    begin, end = (tf.argsort(tf.cast(~which, tf.int32), 1, stable=True) for which in (begins, last))
    there = tf.range(tf.shape(tags)[1]) < tf.reduce_sum(tf.cast(begins, tf.int32), 1, keepdims=True)
    sums = tf.pad(tf.cumsum(tf.where(inside, chances, 0.0), 1), [[0, 0], [1, 0]])
    total = tf.gather(sums, end + 1, batch_dims=1) - tf.gather(sums, begin, batch_dims=1)
    parts = [tf.gather(starts, begin, batch_dims=1), tf.gather(ends, end, batch_dims=1), tf.gather(kinds, begin, batch_dims=1)]
    spans = tf.where(there[..., None], tf.stack(parts, -1), 0)
    return {"spans": spans, "scores": tf.where(there, total / tf.cast(tf.maximum(end - begin + 1, 1), tf.float32), 0.0)}


def counts(given: tf.Tensor, true: tf.Tensor) -> tf.Tensor:
    """Spans found rightly - places and type -, found, and true, [batch, 3] float32; both arguments are [batch, any, 3] as `tags_of` takes
    them."""
    there, wanted = given[..., 1] > 0, true[..., 1] > 0
    same = tf.reduce_all(given[:, :, None] == true[:, None], -1) & there[:, :, None] & wanted[:, None]
    return tf.stack([tf.reduce_sum(tf.cast(which, tf.float32), -1) for which in (tf.reduce_any(same, 1), there, wanted)], -1)
