"""How words are written: in capitals, with digits, as marks; beside tokens that know small letters alone. In graph."""

import tensorflow as tf

# the first that fits counts, or else none
_FORMS = (r"[\pP\pS]", r"\p{Nd}+", r"\p{Lu}", r"\p{Lu}[\p{Lu}\p{Nd}]+", r"\p{Lu}\p{Ll}+", r"\p{Ll}+", r"[\p{Lo}\p{Lm}\pM]+", r"\p{Lu}.*",
          r".*\p{Lu}.*")
_KINDS = len(_FORMS) + 1
SHAPES = 1 + 2 * _KINDS  # 0 is padding and the marks of a tokenizer; each form with a blank before its word, or without


def shapes(texts: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.RaggedTensor:
    """The shape of each token's word, [n, None] int32 below SHAPES.

    Args:
        texts: [n] string; the words lie between the bytes `starts` and `ends`, [n, None] int32 each, as nlp.tokens.offsets has them.
    """
    rows, begin, end = starts.value_rowids(), starts.flat_values, ends.flat_values
    inside = end > begin
    last = tf.math.unsorted_segment_max(tf.where(inside, end, 0), rows, tf.shape(texts)[0])
    seen = tf.strings.substr(texts, tf.zeros_like(last), tf.maximum(last, 0))  # not all of a long text, for each of its tokens
    words = tf.strings.substr(tf.gather(seen, rows), tf.where(inside, begin, 0), end - begin)
    kind = tf.fill(tf.shape(begin), len(_FORMS))
    for number, form in reversed(list(enumerate(_FORMS))):
        kind = tf.where(tf.strings.regex_full_match(words, form), number, kind)
    before = tf.concat([[-1], end], 0)[:-1]
    joined = (before == begin) & (before > 0)  # behind the mark at a text's beginning, or that of the text before, nothing is joined
    return starts.with_flat_values(tf.where(inside, 1 + kind + _KINDS * tf.cast(joined, tf.int32), 0))
