"""Running texts as tokens that write them again: characters, bytes, or pieces of words. In graph, with TensorFlow alone.

Number 0 is padding, 1 a character that train lacks, the last one the end of a document, which stands before its beginning, too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.settings import UNITS, Pieces
from nlp.tokens import written
from nlp.tokens.alphabet import Alphabet
from nlp.tokens.base import FIRST, UNKNOWN, joined
from pipelines.config.schema import Section

LINE = "\ue001"  # the end of a line, while blanks become single ones; no text has it, since `written` takes it out
EVERYTHING = 1 << 30


class Characters(Alphabet):
    """See nlp.settings.Characters."""

    @staticmethod
    def learn(settings: Any, batches: Iterable[tf.Tensor]) -> list[str]:
        counts = Counter[str]()
        for batch in batches:
            for text in batch.numpy():
                counts.update(text.decode("utf-8", "replace"))
        return sorted(one for one, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:settings.most])

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        known = sorted(ord(one.decode()) for one in self.strings)
        place = tf.minimum(tf.searchsorted(tf.constant(known), points.flat_values), len(known) - 1)
        found = tf.gather(tf.constant(known), place) == points.flat_values
        return points.with_flat_values(tf.where(found, place + FIRST, UNKNOWN))


class Bytes(Alphabet):
    """See nlp.settings.Bytes."""

    learns = False

    @staticmethod
    def strings_of(vocabulary: list[str]) -> list[bytes]:
        return [bytes([number]) for number in range(256)]

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        flat = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(valid), tf.uint8), tf.int32) + FIRST
        return tf.RaggedTensor.from_row_lengths(flat, tf.cast(tf.strings.length(valid), tf.int64))


class Parts(Alphabet):
    """See nlp.settings.Parts. A piece that begins with a blank does not write it at the beginning of a line."""

    @staticmethod
    def learn(settings: Any, batches: Iterable[tf.Tensor]) -> list[str]:
        def lines() -> Iterator[tf.Tensor]:
            for batch in batches:
                for text in batch.numpy():
                    yield tf.constant([line for line in text.split(b"\n") if line.strip()] or [b""])

        return [LINE, *written.learn(Pieces(vocabulary=settings.vocabulary, algorithm=settings.algorithm), lines())]

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        pieces = [one.decode() for one in self.strings]
        lines = tf.strings.split(tf.strings.regex_replace(texts, "\r\n?", "\n"), "\n")  # [n, lines]
        cut = written.make(pieces, EVERYTHING).cut(lines.flat_values).ids
        blank = tf.strings.regex_full_match(lines.flat_values, r"[\pZ\pC]*")
        cut = tf.ragged.boolean_mask(cut, cut.with_flat_values(~tf.gather(blank, cut.value_rowids())))  # of an empty line nothing
        ends = tf.RaggedTensor.from_tensor(tf.fill([cut.nrows(), 1], FIRST))
        (ended,) = joined([[cut], [ends]])
        return lines.with_values(ended).merge_dims(1, 2)[:, :-1]  # no line ends behind the last one

    @property
    def sizes(self) -> np.ndarray:
        return np.array([0, 1, 1, *(len(one.decode().replace(written.BEGIN, " ").encode()) for one in self.strings[1:]), 0], np.int32)

    @property
    def written(self) -> list[bytes]:
        """Without ends of lines: what follows one depends on it."""
        return [one.replace(written.BEGIN.encode(), b" ") if one != LINE.encode() else b"" for one in self.pieces]

    def texts(self, ids: tf.Tensor) -> tf.Tensor:
        text = tf.strings.regex_replace(super().texts(ids), written.BEGIN, " ")
        return tf.strings.regex_replace(tf.strings.regex_replace(text, f"{LINE} ", LINE), LINE, "\n")


def learn(settings: Section, batches: Iterable[tf.Tensor]) -> list[str]:
    vocabulary: list[str] = UNITS.builder(settings).learn(settings, batches)
    return vocabulary


def make(settings: Section, facts: Mapping[str, Any]) -> Alphabet:
    """The tokens of these settings, or of a preset whose tokenizer stands in the facts."""
    if facts.get("tokenizer"):
        from nlp.tokens.units_preset import PresetTokens

        return PresetTokens(facts["tokenizer"])
    alphabet: Alphabet = UNITS.builder(settings)(settings, facts.get("vocabulary") or [])
    return alphabet
