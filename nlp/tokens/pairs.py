"""Texts as the tokens of a pair, [pairs, time, 2] int32, from those of each text between its marks; in graph."""

import tensorflow as tf

from nlp.tokens.base import PAD, joined


def beside(*texts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Texts as columns, each padded to the longest of all; and the length of the longest one beside it, [pairs] int32.

    Args:
        texts: [pairs, None] int32 each, token numbers.
    """
    lengths = tf.reduce_max([text.row_lengths() for text in texts], 0)
    time = tf.reduce_max(tf.concat([lengths, [1]], 0))
    columns = [text.to_tensor(PAD, shape=[None, None]) for text in texts]
    tokens = tf.stack([tf.pad(one, [[0, 0], [0, time - tf.cast(tf.shape(one)[1], time.dtype)]]) for one in columns], 2)
    return tokens, tf.cast(lengths, tf.int32)


def after(first: tf.RaggedTensor, second: tf.RaggedTensor, limit: int, marks: tuple[int, int], *, doubled: bool = False,
          ) -> tuple[tf.Tensor, tf.Tensor]:
    """The second text behind the first, between the marks that each has: the first column has the tokens, the second 1 where the second
    text stands and its end mark; and their number, [pairs] int32.

    Args:
        first, second: [pairs, None] int32, token numbers with the marks of a text by itself.
        limit: of all tokens together; the longer text is cut first.
        marks: how many stand before a text's own tokens, and behind them.
        doubled: two end marks stand between the texts, as RoBERTa has it, and not one.
    """
    start, end = marks
    own = [text.row_lengths() - (start + end) for text in (first, second)]
    room = tf.constant(max(limit - start - (2 + doubled) * end, 2), own[0].dtype)
    half = room // 2
    most = tf.maximum(room - own[1], room - half), tf.maximum(room - own[0], half)
    parts = [part(text, start, tf.minimum(size, cut)) for text, size, cut in zip((first, second), own, most)]
    opening, closing = first[:, :start], part(first, start + own[0], tf.fill(tf.shape(own[0]), tf.constant(end, own[0].dtype)))
    tokens = [opening, parts[0], *[closing] * (1 + doubled), parts[1], closing]
    segments = [tf.zeros_like(one) for one in tokens[:-2]] + [tf.ones_like(one) for one in tokens[-2:]]
    both, which = joined([[one, segment] for one, segment in zip(tokens, segments)])
    return tf.stack([both.to_tensor(PAD), which.to_tensor(0)], 2), tf.cast(both.row_lengths(), tf.int32)


def part(text: tf.RaggedTensor, begin: tf.Tensor | int, size: tf.Tensor) -> tf.RaggedTensor:
    """Of each row `size` [rows] tokens from place `begin` on."""
    starts = text.row_starts() + tf.cast(begin, tf.int64)
    return tf.gather(text.flat_values, tf.ragged.range(starts, starts + tf.cast(size, tf.int64)))
