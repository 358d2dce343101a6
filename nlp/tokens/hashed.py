"""Word n-grams and character n-grams by hash, in a fixed number of rows (Weinberger et al. 2009, arXiv:0902.2206)."""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from nlp.settings import Hashed
from nlp.tokens import normalise
from nlp.tokens.base import UNKNOWN, Cut, Tokenizer, hashes, joined

# odd constants without pattern, as 64-bit two's complement (of splitmix64, Steele et al. 2014)
GOLDEN, MIX1, MIX2 = (value - (1 << 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
LETTERS = 0x2545F4914F6CDD1D  # begins the hash of a character n-gram, so that it differs from a word's


def make(settings: Hashed, vocabulary: Sequence[str] = ()) -> Tokenizer:
    """Numbers are 1 + hash modulo (buckets - 1); the words first, then the pairs, ..., then the character n-grams.

    With `character_buckets` these have the numbers from `buckets` on.
    """
    letters = settings.buckets if settings.character_buckets else None
    size = settings.buckets + (settings.character_buckets or 0)

    def split(texts: tf.Tensor, how: Callable[..., tf.RaggedTensor] = normalise.words) -> tf.RaggedTensor:
        return how(texts, lower=settings.lower, html=settings.html)[:, : settings.limit]

    def cut(texts: tf.Tensor, how: Callable[..., tf.RaggedTensor] = normalise.words) -> Cut:
        words = split(texts, how)
        parts = [(_rows(ids, 1, settings.buckets), *places) for ids, *places in word_ngrams(words, settings.words)]
        if settings.characters:
            own = (letters, size) if letters else (1, settings.buckets)
            parts += [(_rows(ids, *own), *places) for ids, *places in character_ngrams(words, *settings.characters)]
        tokens = Cut(*joined(parts))
        return distinct(tokens, size) if settings.distinct else tokens

    return Tokenizer(max(size, UNKNOWN + 1), split, cut, letters, partial(cut, how=normalise.plain_words),
                     partial(normalise.is_plain, html=settings.html))


Part = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]  # hash int64, first and last word int32; all [texts, None]


def word_ngrams(words: tf.RaggedTensor, longest: int) -> list[Part]:
    """Hashes of all runs of 1 to `longest` words within a text, shortest first."""
    own = hashes(words.flat_values)
    owner, places = words.value_rowids(), tf.cast(tf.ragged.range(words.row_lengths()), tf.int32).flat_values
    rows = words.nrows()
    whole, parts = own, []
    for size in range(1, longest + 1):
        if size > 1:
            whole = whole[:-1] * GOLDEN + own[size - 1:]
        count = tf.size(whole)
        within = tf.equal(owner[:count], owner[size - 1:])
        values = (whole, places[:count], places[size - 1:])
        if size > 1:
            values = tuple(tf.boolean_mask(value, within) for value in values)
            rowids = tf.boolean_mask(owner[:count], within)
        else:
            rowids = owner
        parts.append(tuple(tf.RaggedTensor.from_value_rowids(value, rowids, nrows=rows, validate=False) for value in values))
    return parts


def character_ngrams(words: tf.RaggedTensor, shortest: int, longest: int) -> list[Part]:
    """Hashes of all runs of `shortest` to `longest` characters within a word, whose ends count as a character each."""
    letters = tf.strings.unicode_decode(tf.strings.join(["\u0002", words.flat_values, "\u0003"]), "UTF-8")
    word = letters.value_rowids()  # of each character, counted over all texts
    text, rows = words.value_rowids(), words.nrows()
    places = tf.cast(tf.ragged.range(words.row_lengths()), tf.int32).flat_values
    own = tf.cast(letters.flat_values, tf.int64)
    whole, parts = own + LETTERS, []
    for size in range(1, longest + 1):
        if size > 1:
            whole = whole[:-1] * GOLDEN + own[size - 1:]
        if size < shortest:
            continue
        count = tf.size(whole)
        within = tf.equal(word[:count], word[size - 1:])
        owner = tf.boolean_mask(word[:count], within)
        place = tf.gather(places, owner)
        rowids = tf.gather(text, owner)
        parts.append(tuple(tf.RaggedTensor.from_value_rowids(value, rowids, nrows=rows, validate=False)
                           for value in (tf.boolean_mask(whole, within), place, place)))
    return parts


def distinct(cut: Cut, size: int) -> Cut:
    """Each number once a text, at its first place."""
    texts = cut.ids.value_rowids()
    keys = texts * size + tf.cast(cut.ids.flat_values, tf.int64)
    once, which = tf.unique(keys)
    place = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), which, tf.size(once))
    rows = once // size  # ascending, since unique keeps the order

    def ragged(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_value_rowids(values, rows, nrows=cut.ids.nrows(), validate=False)

    return Cut(ragged(tf.cast(once % size, tf.int32)), ragged(tf.gather(cut.first.flat_values, place)),
               ragged(tf.gather(cut.last.flat_values, place)))


def _rows(hashed: tf.RaggedTensor, begin: int, end: int) -> tf.RaggedTensor:
    """Hashes as numbers begin .. end - 1, int32."""
    return hashed.with_flat_values(tf.cast(_mixed(hashed.flat_values) % (end - begin) + begin, tf.int32))


def _mixed(values: tf.Tensor) -> tf.Tensor:
    """Spreads int64 values over 0 .. 2**62 - 1: products alone leave the low bits of the last factor as they were."""
    for factor in (MIX1, MIX2):
        values = tf.bitwise.bitwise_xor(values, tf.bitwise.bitwise_and(tf.bitwise.right_shift(values, tf.constant(30, tf.int64)),
                                                                       tf.constant((1 << 34) - 1, tf.int64))) * factor
    return tf.bitwise.bitwise_and(tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, tf.constant(31, tf.int64))),
                                  tf.constant((1 << 62) - 1, tf.int64))
