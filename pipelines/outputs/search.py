"""Written answers: the search for the best text of each row, token by token, by whatever says what may follow."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Following = Callable[[tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]  # tokens [rows, n], their place, cache -> logits behind, cache


def beam(following: Following, prompt: tf.Tensor, own: Any, allowed: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor], *,
         width: int, most: int | tf.Tensor, end: int, length_penalty: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """The best text of each row: the one whose log probability, divided by its length ** length_penalty, is highest.

    Args:
        following: the decoder.
        prompt: tokens that decoding begins with, [batch, n] int32.
        own: the decoder's cache before it, of `batch` rows in the second axis.
        allowed: (logits [rows, vocabulary] float32, what the rows have written [rows, most] int32 from 1, how many tokens) -> logits,
            -inf for what is not to be written.
        width: texts followed at the same time; 1 is greedy search.
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
    first = tf.concat([tf.zeros([batch, 1]), none[:, 1:]], 1)  # all rows of a text are alike at first
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
        length = tf.cast(tf.maximum(number, 1), tf.float32) ** length_penalty
        ended = _best(width, ended, (tf.where(counts, best / length, -float("inf")), before, shares))
        texts = tf.where(tf.range(most) == number, token[..., None] + 1, before)
        *still, row, token = _best(width, None, (tf.where(ends, -float("inf"), best), texts, shares + likely, row, token))
        if width > 1:
            rows = tf.reshape(tf.range(batch)[:, None] * width + row, [-1])
            own = tf.nest.map_structure(lambda cache: tf.gather(cache, rows, axis=1), own)
        behind = following(tf.reshape(token, [-1, 1]), begin + number, own)
        after = behind[0], tuple(still), ended, behind[1]
        return number + 1, *tf.nest.map_structure(lambda new, old: tf.ensure_shape(new, old.shape), after, before_it)

    _, _, live, ended, _ = tf.while_loop(more, another, (tf.constant(0), logits, (first, texts, shares), (none, texts, shares), own))
    # of texts that did not end, as many as are missing
    length = tf.cast(most, tf.float32) ** length_penalty
    missing = tf.where(closed(ended[0])[:, None], -float("inf"), live[0] / length)
    _, texts, shares = _best(1, ended, (missing, *live[1:]))
    return texts[:, 0], shares[:, 0]


def _best(count: int, before: tuple | None, new: tuple) -> tuple:
    """The best by their first entry, [batch, count, ...], of those before and the new ones."""
    both = new if before is None else tuple(tf.concat(pair, 1) for pair in zip(before, new))
    best, places = tf.math.top_k(both[0], count)
    return best, *(tf.gather(entry, places, batch_dims=1) for entry in both[1:])
