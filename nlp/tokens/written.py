"""Pieces of words from which a text can be written again: letters stay as they are, and a blank is part of the piece behind it.

Marks and letters of scripts without blanks are cut apart, as everywhere here; a piece that follows a blank begins with `BEGIN`. So what is
read back differs from a text in its blanks alone: several become one, and those at its ends are left out.
"""

from collections.abc import Iterable, Iterator

import tensorflow as tf

from nlp.settings import Pieces
from nlp.tokens.base import FIRST, UNKNOWN, Cut, Tokenizer, finder
from nlp.tokens.normalise import APART, GAP
from nlp.tokens.subwords import BEGIN, cut_words, learn_pieces, lines

_START = "\ue000"  # BEGIN, while marks are cut apart: it is one itself; no text has it, since GAP takes it out


def learn(settings: Pieces, batches: Iterable[tf.Tensor]) -> list[str]:
    """The pieces of texts, [n] string each; see `nlp.tokens.subwords.learn`."""
    def sentences() -> Iterator[str]:
        for batch in batches:
            for text in _spaced(batch).numpy().tolist():
                yield from lines(text.decode().split(" "))

    return learn_pieces(sentences(), settings.vocabulary, settings.algorithm, "set a smaller tokens.vocabulary")


def make(pieces: list[str], limit: int) -> Tokenizer:
    """Numbers are 2 + the piece's place; 1 for each character that no piece begins with."""
    find, longest = finder(pieces, FIRST, UNKNOWN), max((len(piece) for piece in pieces), default=1)

    def split(texts: tf.Tensor) -> tf.RaggedTensor:
        started = tf.strings.join([_START, tf.strings.regex_replace(_spaced(texts), " ", f" {_START}")])
        words = tf.strings.split(tf.strings.regex_replace(started, f"({_START}?){APART}", r" \1\2 "))
        return words.with_flat_values(tf.strings.regex_replace(words.flat_values, _START, BEGIN))

    def cut(texts: tf.Tensor) -> Cut:
        return cut_words(split(texts)[:, :limit], find, longest, limit)

    return Tokenizer(FIRST + len(pieces), split, cut)


def texts(ids: tf.Tensor, pieces: list[str]) -> tf.Tensor:
    """What tokens [n, time] int32 write, [n] string; what is no piece, such as padding, writes nothing."""
    strings = tf.constant(["", "", *pieces, ""])
    written = tf.strings.reduce_join(tf.gather(strings, tf.minimum(ids, len(pieces) + FIRST)), axis=-1)
    return tf.strings.strip(tf.strings.regex_replace(written, BEGIN, " "))


def _spaced(given: tf.Tensor) -> tf.Tensor:
    """Valid UTF-8 with single blanks, and without BEGIN."""
    valid = tf.strings.unicode_transcode(given, "UTF-8", "UTF-8", errors="replace")
    return tf.strings.regex_replace(tf.strings.strip(tf.strings.regex_replace(valid, GAP, " ")), BEGIN, "_")
