"""How Whisper's tokens are chosen: a beam over texts, of which one alone is greedy decoding; and the rules of its time stamps. In graph.

Both as OpenAI's reference has them (github.com/openai/whisper, decoding.py): a text counts as ended where its end is among the best
candidates, the search stops with as many ended texts as are followed, and the best is that of the highest mean log probability of a token.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

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
