"""Written answers: the search for the best text of each row, token by token, by whatever says what may follow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipelines.task.writer import Automaton

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


@dataclass(frozen=True)
class Drawn:
    """How a token is drawn.

    Attributes:
        temperature: what logits are divided by; 0 takes the most probable one.
        top_k, top_p: only the most probable ones are drawn, so many, or those that have this probability together (Holtzman et al. 2020).
        repetition: logits of tokens that are written already are divided by it where they are above 0, else multiplied.
        seed: noise depends on it and the place in the text alone, so that a text does not depend on others in its batch.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition: float = 1.0
    seed: int = 0

    def __call__(self, logits: tf.Tensor, written: tf.Tensor, number: Any) -> tf.Tensor:
        """The next token of each row, [rows] int32, by logits [rows, vocabulary] float32 and which tokens are there, the same as bool."""
        size = logits.shape[1]
        if self.repetition != 1.0:
            logits = tf.where(written, tf.where(logits > 0, logits / self.repetition, logits * self.repetition), logits)
        if not self.temperature:
            return tf.argmax(logits, 1, tf.int32)
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < size:
            logits = tf.where(logits < tf.math.top_k(logits, self.top_k).values[:, -1:], -float("inf"), logits)
        if self.top_p is not None and self.top_p < 1.0:
            ordered = tf.sort(logits, direction="DESCENDING")
            before = tf.cumsum(tf.nn.softmax(ordered), 1, exclusive=True)
            lowest = tf.reduce_min(tf.where(before < self.top_p, ordered, float("inf")), 1, keepdims=True)
            logits = tf.where(logits < lowest, -float("inf"), logits)
        noise = tf.random.stateless_uniform([1, size], [self.seed, number], minval=1e-20)
        return tf.argmax(logits - tf.math.log(-tf.math.log(noise)), 1, tf.int32)  # Gumbel's, by which the largest is a draw


class FormSteps:
    """An automaton in a graph: see Automaton.

    Args:
        most: tokens written.
    """

    def __init__(self, form: Automaton, most: int):
        self._table, self._kinds, self._left = tf.constant(form.table), tf.constant(form.kinds), tf.constant(form.left)
        self._most = most

    def allowed(self, logits: tf.Tensor, states: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Logits [rows, tokens], -inf for tokens that lead out of the form, or too far from its end, behind `number` tokens."""
        fits = tf.gather(self._left, tf.cast(tf.gather(self._table, states), tf.int32)) < self._most - number
        return tf.where(tf.gather(fits, self._kinds, axis=1), logits, -float("inf"))

    def behind(self, states: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """[rows] int32."""
        return tf.cast(tf.gather_nd(self._table, tf.stack([states, tf.gather(self._kinds, tokens)], 1)), tf.int32)


def sample(following: Following, prompt: tf.Tensor, own: Any, allowed: Callable[[tf.Tensor], tf.Tensor], drawn: Drawn, *, most: int,
           end: int, fewest: int = 0, form: Automaton | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """A text behind each prompt, drawn token by token. Arguments and result as those of `beam`, but tokens are as they are, and `allowed`
    sees logits alone.

    Args:
        fewest: tokens written before a text may end.
        form: that texts have, which then says itself when they may end.
    """
    rows, begin = tf.shape(prompt)[0], tf.shape(prompt)[1]
    logits, own = following(prompt, 0, own)
    size = logits.shape[1]
    there = tf.reduce_any(tf.one_hot(prompt, size, on_value=True, off_value=False), 1) if drawn.repetition != 1.0 else tf.zeros(
        [rows, size], tf.bool)

    follow_form = None if form is None else FormSteps(form, most)

    def more(number: tf.Tensor, _: Any, __: Any, ended: tf.Tensor, *___: Any) -> tf.Tensor:
        return (number < most) & ~tf.reduce_all(ended)

    def another(number: tf.Tensor, logits: tf.Tensor, texts: tf.Tensor, ended: tf.Tensor, shares: tf.Tensor, there: tf.Tensor,
                states: tf.Tensor, own: Any) -> tuple:
        before = logits, texts, ended, shares, there, states, own
        logits = allowed(logits)
        if follow_form is not None:
            logits = follow_form.allowed(logits, states, number)
        elif fewest:
            logits = tf.where((tf.range(size) == end) & (number < fewest), -float("inf"), logits)
        token = drawn(logits, there, number)
        if follow_form is not None:
            states = follow_form.behind(states, token)
        ended |= token == end
        likely = tf.gather(tf.nn.softmax(logits), token, batch_dims=1)
        shares += tf.where(ended, 0.0, likely)
        texts = tf.where((tf.range(most) == number) & ~ended[:, None], token[:, None], texts)
        if drawn.repetition != 1.0:
            there |= tf.one_hot(token, size, on_value=True, off_value=False)
        logits, own = following(token[:, None], begin + number, own)
        after = logits, texts, ended, shares, there, states, own
        return number + 1, *tf.nest.map_structure(lambda new, old: tf.ensure_shape(new, old.shape), after, before)

    none = tf.zeros([rows, most], tf.int32), tf.zeros([rows], tf.bool), tf.zeros([rows])
    states = tf.zeros([rows], tf.int32)
    _, _, texts, _, shares, *_ = tf.while_loop(more, another, (tf.constant(0), logits, *none, there, states, own))
    return texts, shares
