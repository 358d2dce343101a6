"""Where the tokens of a text lie in it, in bytes of the text as it was given: for answers that are places, such as names in a sentence.

The text is cut into the words that stand in it - between separators, each mark and symbol by itself - and each word into tokens by itself,
so that places hold whatever a tokenizer does within a word (decomposes letters, makes them small). In graph.
"""

import numpy as np
import tensorflow as tf

from nlp.tokens.base import Tokenizer, joined
from nlp.tokens.normalise import APART, GAP


def placed_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """[n] string, UTF-8 -> the words as they stand there [n, None] string, and where each begins and ends, [n, None] int32 bytes."""
    letters, starts = tf.strings.unicode_split_with_offsets(texts, "UTF-8")
    rows, starts = letters.value_rowids(), tf.cast(starts.flat_values, tf.int32)
    sizes = tf.strings.length(texts)
    same = tf.concat([rows[1:] == rows[:-1], [False]], 0)[:tf.size(rows)]  # the next letter is of the same text
    after = tf.concat([starts[1:], [0]], 0)[:tf.size(rows)]
    ends = tf.where(same, after, tf.gather(sizes, rows))
    gap = tf.strings.regex_full_match(letters.flat_values, GAP)
    apart = tf.strings.regex_full_match(letters.flat_values, APART)
    first = tf.concat([[True], ~same[:-1]], 0)[:tf.size(rows)]
    breaks = tf.concat([[True], (gap | apart)[:-1]], 0)[:tf.size(rows)]
    begins = ~gap & (first | breaks | apart)
    word = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    inside = tf.where(~gap)[:, 0]
    count = tf.reduce_sum(tf.cast(begins, tf.int32))
    place = tf.boolean_mask(starts, begins)
    end = tf.math.unsorted_segment_max(tf.gather(ends, inside), tf.gather(word, inside), count)
    row = tf.boolean_mask(rows, begins)
    words = tf.strings.substr(tf.gather(texts, row), place, end - place)
    return tuple(tf.RaggedTensor.from_value_rowids(value, row, tf.size(texts, tf.int64)) for value in (words, place, end))


def placed_tokens(tokenizer: Tokenizer, texts: tf.Tensor, limit: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The tokens of texts [n] string, at most `limit` each, and the bytes of its word where each begins and ends: [n, None] int32 each. The
    marks that a tokenizer puts before and behind a text lie at its beginning and its end, and have no bytes."""
    words, starts, ends = placed_words(texts)
    distinct, which = tf.unique(words.flat_values)
    nothing = tokenizer.ids(tf.constant([""]))[0]
    before, behind = tokenizer.marks
    cut = tokenizer.ids(distinct)
    counts = cut.row_lengths() - before - behind
    own = tf.ragged.range(cut.row_starts() + before, cut.row_starts() + before + counts)
    tokens = tf.gather(cut.flat_values, tf.gather(own, which).flat_values)
    lengths = tf.gather(counts, which)

    def by_text(values: tf.Tensor) -> tf.RaggedTensor:
        of_word = tf.RaggedTensor.from_row_lengths(values, lengths)
        return tf.RaggedTensor.from_row_splits(values, tf.gather(of_word.row_splits, words.row_splits))[:, :limit - before - behind]

    ids, begin, end = by_text(tokens), by_text(tf.repeat(starts.flat_values, lengths)), by_text(tf.repeat(ends.flat_values, lengths))
    empty = tf.cast(ids.row_lengths() == 0, tf.int64)
    alone = nothing[before:tf.size(nothing) - behind]  # what a text without any word is cut into
    blank = tf.RaggedTensor.from_row_lengths(tf.tile(alone, [tf.reduce_sum(tf.cast(empty, tf.int32))]), empty * tf.size(alone, tf.int64))
    zeros = blank.with_flat_values(tf.zeros_like(blank.flat_values))
    marks = [tf.RaggedTensor.from_tensor(tf.tile(some[None], [tf.size(texts), 1])) for some in (nothing[:before],
                                                                                               nothing[tf.size(nothing) - behind:])]
    first, last = tf.zeros_like(marks[0]), tf.zeros_like(marks[1]) + tf.strings.length(texts)[:, None]
    parts = [[marks[0], first, first], [ids, begin, end], [blank, zeros, zeros], [marks[1], last, last]]
    return tuple(joined(parts))  # type: ignore[return-value]


def in_characters(texts: tf.Tensor, *places: tf.RaggedTensor) -> tuple[tf.RaggedTensor, list[tf.Tensor]]:
    """The characters of texts [n] string as code points, [n, None] int32, and bytes of them [n, None] as numbers of characters,
    [n, time] int32 each, 0 where there is padding."""
    letters, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    bytes_ = tf.cast(offsets, tf.int32).to_tensor(np.iinfo(np.int32).max)  # of each character
    most = tf.cast(offsets.row_lengths(), tf.int32)[:, None]  # behind the last character there is none to search for
    return letters, [tf.minimum(tf.searchsorted(bytes_, value.to_tensor()), most) for value in places]
