"""Words and marks, each by its place in a vocabulary of train's most frequent."""

from collections.abc import Callable, Iterable
from functools import partial

import tensorflow as tf

from nlp.settings import Words
from nlp.tokens import normalise
from nlp.tokens.base import FIRST, UNKNOWN, Cut, Tokenizer, finder


def learn(settings: Words, batches: Iterable[tf.Tensor]) -> list[str]:
    """The most frequent words of the texts, most frequent first, equals in alphabetical order."""
    counts: dict[bytes, int] = {}
    for batch in batches:
        words = normalise.words(batch, lower=settings.lower, html=settings.html)
        distinct, _, times = tf.unique_with_counts(words.flat_values)
        for word, count in zip(distinct.numpy().tolist(), times.numpy().tolist()):
            counts[word] = counts.get(word, 0) + count
    counts.pop(b"", None)
    kept = sorted(((-count, word) for word, count in counts.items() if count >= settings.least))[: settings.vocabulary]
    return [word.decode("utf-8", "replace") for _, word in kept]


def make(settings: Words, vocabulary: list[str]) -> Tokenizer:
    """Numbers are 2 + the word's place in the vocabulary, 1 for other words."""
    find = finder(vocabulary, FIRST, UNKNOWN)

    def split(texts: tf.Tensor, how: Callable[..., tf.RaggedTensor] = normalise.words) -> tf.RaggedTensor:
        return how(texts, lower=settings.lower, html=settings.html)[:, : settings.limit]

    def cut(texts: tf.Tensor, how: Callable[..., tf.RaggedTensor] = normalise.words) -> Cut:
        words = split(texts, how)
        places = tf.cast(tf.ragged.range(words.row_lengths()), tf.int32)
        return Cut(words.with_flat_values(find(words.flat_values)), places, places)

    return Tokenizer(FIRST + len(vocabulary), split, cut, None, partial(cut, how=normalise.plain_words),
                     partial(normalise.is_plain, html=settings.html))
