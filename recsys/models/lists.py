"""From a user's vector to the best items of the whole catalogue, in chunks, so that memory does not grow with it."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

NOTHING = -1e30  # score of what is no candidate
Score = Callable[[slice], tf.Tensor]  # items from .. to -> their scores, [batch, items] float32


def products(queries: tf.Tensor, items: tf.Tensor, bias: tf.Tensor, similar: tf.Tensor | None = None) -> Score:
    """Scores of vectors.

    Args:
        queries: [batch, width] float32.
        items: [1 + items, width] float32, the vectors of all.
        bias: [1 + items] float32, added to the dot products.
        similar: [batch] int32; where > 0 the score is the cosine to that item's vector.
    """
    if similar is None:
        return lambda part: tf.matmul(queries, items[part], transpose_b=True) + bias[part]
    asked = (similar > 0)[:, None]
    queries = tf.where(asked, tf.math.l2_normalize(tf.gather(items, similar), -1), queries)
    inverse = tf.cond(tf.reduce_any(asked), lambda: tf.math.rsqrt(tf.reduce_sum(tf.square(items), -1) + 1e-12),
                      lambda: tf.ones([int(items.shape[0])]))

    def score(part: slice) -> tf.Tensor:
        dots = tf.matmul(queries, items[part], transpose_b=True)
        return tf.where(asked, dots * inverse[part], dots + bias[part])

    return score


def recommend(
    score: Score,
    *,
    known: tf.Tensor,
    popularity: tf.Tensor,
    seen: tf.Tensor,
    held: tf.Tensor | None = None,
    allow: tf.Tensor | None = None,
    similar: tf.Tensor | None = None,
    k: int,
    chunk: int,
) -> dict[str, tf.Tensor]:
    """The `k` best items for each user, best first; of equal scores the lower number goes first.

    Args:
        score: of items; item 0 is no candidate.
        known: [batch] bool; where False the score is `popularity`.
        popularity: [1 + items] float32.
        seen: [batch, any] int32, no candidates; 0 fills up.
        held: [batch, any] int32, held-out items for the loss; 0 fills up, less than 0 is ignored.
        allow: [batch, any] int32; where a row has any item, only these are candidates.
        similar: [batch] int32; where > 0 that item is asked about: it is no candidate, and the score is not `popularity`.
        k: length of the lists, at most the number of items.
        chunk: items scored at a time.

    Returns:
        items [batch, k] int32 (0 where there are no more), scores [batch, k] float32 (of such: 0), and with `held` loss [batch]: the mean
        over held-out items of -log softmax over all items.
    """
    total = int(popularity.shape[0])
    chunk = min(chunk, total)
    chunks = -(-total // chunk)
    batch = tf.shape(known)[0]
    lively = known[:, None]
    if similar is not None:
        lively |= (similar > 0)[:, None]
        seen = tf.concat([seen, similar[:, None]], 1)
    some_held = held if held is not None else tf.zeros([batch, 0], tf.int32)

    def step(turn: tf.Tensor, best: tf.Tensor, where: tf.Tensor, high: tf.Tensor, mass: tf.Tensor, own: tf.Tensor) -> Any:
        # the last chunk begins earlier: all are of one size without a padded copy of the catalogue; what it has again does not count
        first = tf.minimum(turn * chunk, total - chunk)
        part = slice(first, first + chunk)
        numbers = first + tf.range(chunk)
        scores = tf.where(lively, score(part), popularity[part])
        real = numbers >= tf.maximum(turn * chunk, 1)
        plain = tf.where(real, scores, NOTHING)
        if held is not None:
            top = tf.maximum(high, tf.reduce_max(plain, -1))
            mass = mass * tf.exp(high - top) + tf.reduce_sum(tf.exp(plain - top[:, None]), -1)
            high = top
            inside = (some_held >= turn * chunk) & (some_held < first + chunk)
            matching = tf.gather(plain, tf.clip_by_value(some_held - first, 0, chunk - 1), batch_dims=1)
            own = tf.where(inside, matching, own)
        scores = _struck(plain, seen, first, chunk)
        if allow is not None:
            scores = tf.where(tf.reduce_any(allow > 0, -1, keepdims=True), _only(scores, allow, first, chunk), scores)
        both = tf.concat([best, scores], 1)
        names = tf.concat([where, tf.broadcast_to(numbers, tf.shape(scores))], 1)
        best, order = tf.math.top_k(both, k)
        return turn + 1, best, tf.gather(names, order, batch_dims=1), high, mass, own

    start = (
        tf.constant(0),
        tf.fill([batch, k], 2 * NOTHING),
        tf.zeros([batch, k], tf.int32),
        tf.fill([batch], NOTHING),
        tf.zeros([batch]),
        tf.zeros(tf.shape(some_held)),
    )
    shapes = (tf.TensorShape([]), *(tf.TensorShape([None, k]),) * 2, *(tf.TensorShape([None]),) * 2, tf.TensorShape([None, None]))
    _, best, where, high, mass, own = tf.while_loop(
        lambda turn, *_: turn < chunks, step, start, shape_invariants=shapes, parallel_iterations=1
    )
    there = best > NOTHING / 2
    answer = {"items": tf.where(there, where, 0), "scores": tf.where(there, best, 0.0)}
    if held is not None:
        counted = tf.cast(some_held > 0, tf.float32)
        lost = (high + tf.math.log(mass))[:, None] - own
        answer["loss"] = tf.reduce_sum(lost * counted, -1) / tf.maximum(tf.reduce_sum(counted, -1), 1.0)
    return answer


def among_last(score: Score, count: int, *, known: tf.Tensor, popularity: tf.Tensor, seen: tf.Tensor, k: int, chunk: int) -> tf.Tensor:
    """[batch, min(k, count)] int32: the best of the last `count` items alone, for each user; otherwise as `recommend`."""
    before = int(popularity.shape[0]) - 1 - count  # these are no candidates; the last of them has the place of item 0
    found = recommend(lambda part: score(slice(part.start + before, part.stop + before)), known=known, popularity=popularity[before:],
                      seen=tf.maximum(seen - before, 0), k=min(k, count), chunk=chunk)["items"]
    return tf.where(found > 0, found + before, 0)


def _cells(numbers: tf.Tensor, first: tf.Tensor, chunk: int) -> tf.Tensor:
    """[n, 2] int32: (row, column of the chunk) of those of `numbers` [batch, any] that are > 0 and within the chunk."""
    inside = (numbers > 0) & (numbers >= first) & (numbers < first + chunk)
    rows = tf.where(inside)
    return tf.stack([tf.cast(rows[:, 0], tf.int32), tf.gather_nd(numbers, rows) - first], 1)


def _struck(scores: tf.Tensor, numbers: tf.Tensor, first: tf.Tensor, chunk: int) -> tf.Tensor:
    cells = _cells(numbers, first, chunk)
    return tf.tensor_scatter_nd_update(scores, cells, tf.fill([tf.shape(cells)[0]], NOTHING))


def _only(scores: tf.Tensor, numbers: tf.Tensor, first: tf.Tensor, chunk: int) -> tf.Tensor:
    cells = _cells(numbers, first, chunk)
    allowed = tf.tensor_scatter_nd_update(tf.zeros_like(scores, tf.bool), cells, tf.ones([tf.shape(cells)[0]], tf.bool))
    return tf.where(allowed, scores, NOTHING)
