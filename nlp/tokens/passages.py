"""A question and the passage behind it as tokens, with the places of the passage's words; in graph."""

import tensorflow as tf

from nlp.tokens.base import PAD, joined
from nlp.tokens.pairs import part

# what the second column says of a token: of the question, its marks or padding; within a word of the passage; at its beginning; a mark
# behind the passage
QUESTION, WITHIN, BEGINS, MARK = range(4)


def behind(question: tf.RaggedTensor, passage: tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor], *, limit: int, asked: int,
           marks: tuple[int, int], doubled: bool = False) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The passage behind the question, [n, None] int32 each: tokens, what they are (QUESTION, WITHIN, BEGINS, MARK), and the bytes of the
    passage between which the word of each lies, 0 and 0 of what is no word of it.

    Args:
        question: [n, None] int32, tokens with the marks of a text by itself.
        passage: tokens, first bytes and last ones, as nlp.tokens.offsets.placed_tokens gives them.
        limit: of all tokens together; the passage is cut.
        asked: tokens of a question that are used.
        marks: how many stand before a text's own tokens, and behind them.
        doubled: two end marks stand between both, as RoBERTa has it, and not one.
    """
    start, end = marks
    own = question.row_lengths() - (start + end)
    opening, closing = question[:, :start], part(question, start + own, tf.fill(tf.shape(own), tf.constant(end, own.dtype)))
    question = part(question, start, tf.minimum(own, asked))
    room = limit - start - (2 + doubled) * end - question.row_lengths()
    size = tf.minimum(passage[0].row_lengths() - (start + end), room)
    ids, begin, stop = (part(one, start, size) for one in passage)
    before = tf.concat([[-1], begin.flat_values], 0)[:-1]
    first = tf.scatter_nd(ids.row_starts()[:, None], tf.ones_like(size, tf.int32), tf.shape(begin.flat_values, tf.int64)[:1] + 1)[:-1]
    kind = tf.where((before != begin.flat_values) | (first > 0), BEGINS, WITHIN)
    kinds = ids.with_flat_values(tf.where(stop.flat_values > begin.flat_values, kind, MARK))

    def plain(ids: tf.RaggedTensor, kind: int) -> list[tf.RaggedTensor]:
        zeros = tf.zeros_like(ids)
        return [ids, zeros + kind, zeros, zeros]

    parts = [plain(opening, QUESTION), plain(question, QUESTION), *[plain(closing, QUESTION)] * (1 + doubled), [ids, kinds, begin, stop],
             plain(closing, MARK)]
    return tuple(joined(parts))  # type: ignore[return-value]


def padded(tokens: tf.RaggedTensor, kinds: tf.RaggedTensor) -> tf.Tensor:
    """Both beside one another, [n, time, 2] int32."""
    return tf.stack([tokens.to_tensor(PAD), kinds.to_tensor(QUESTION)], 2)
