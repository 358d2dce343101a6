"""The interface of tokenizers: token numbers, and the words that each token covers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

PAD, UNKNOWN, FIRST = 0, 1, 2  # FIRST: the first number of a learned vocabulary


@dataclass(frozen=True)
class Cut:
    """Texts as tokens.

    Attributes:
        ids: [texts, None] int32, 1 to size - 1.
        first, last: [texts, None] int32, the words that each token covers, by place in the text.
    """

    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    last: tf.RaggedTensor


@dataclass(frozen=True)
class Tokenizer:
    """A way to tokenise.

    Attributes:
        size: rows of the embedding; every number is below it.
        words: [n] string -> [n, None] string: the words as a person sees them.
        cut: [n] string -> Cut; in graph.
        letters: the first number of character n-grams, where they have numbers of their own, after those of the words.
        cut_plain: as `cut`, of texts that `is_plain` takes, without branches; None where there is no shorter way.
        is_plain: whether it takes a text, UTF-8: a cheap look.
        marks: how many tokens of every text stand before its own, and behind them.
        resources: tables and the like that `cut` reads, which a saved model has to hold.
    """

    size: int
    words: Callable[[tf.Tensor], tf.RaggedTensor]
    cut: Callable[[tf.Tensor], Cut]
    letters: int | None = None
    cut_plain: Callable[[tf.Tensor], Cut] | None = None
    is_plain: Callable[[bytes], bool] = lambda text: False
    marks: tuple[int, int] = (0, 0)
    resources: tuple[Any, ...] = ()

    @cached_property
    def ids(self) -> Callable[[tf.Tensor], tf.RaggedTensor]:
        """[n] string -> [n, None] int32; traced once for all splits and datasets, since a trace of so many operations takes a second."""
        return tf.function(lambda texts: self.cut(texts).ids, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


def joined(parts: Sequence[Sequence[tf.RaggedTensor]]) -> list[tf.RaggedTensor]:
    """tf.concat([part[field] for part in parts], 1) for each field of the parts.

    Args:
        parts: of each a [rows, None] for each field; the fields of a part have the same row lengths.
    """
    splits = [part[0].row_splits for part in parts]
    before = tf.cumsum(tf.stack([one[-1] for one in splits]), exclusive=True)  # values of the parts before
    starts, ends = (tf.reshape(tf.stack([one[which] + before[number] for number, one in enumerate(splits)], 1), [-1])
                    for which in (slice(None, -1), slice(1, None)))  # [rows x parts]
    order = tf.ragged.range(starts, ends).flat_values
    rows = tf.add_n(splits)
    return [tf.RaggedTensor.from_row_splits(tf.gather(tf.concat([one.flat_values for one in field], 0), order), rows, validate=False)
            for field in zip(*parts)]


WIDE = 1 << 62


def hashes(strings: tf.Tensor) -> tf.Tensor:
    """FarmHash of each string, int64 in 0 .. 2**62 - 1; the same on every machine and in every version."""
    return tf.strings.to_hash_bucket_fast(strings, WIDE)


def finder(entries: Sequence[str], first: int, missing: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function [n] string -> [n] int32: `first` + the entry's place, `missing` for others.

    Two of 100,000 strings share a hash with probability 1e-9; the function of a string that is no entry is wrong with 2e-14.
    """
    if not entries:
        return lambda strings: tf.fill(tf.shape(strings), missing)
    with tf.init_scope(), tf.device("CPU:0"):
        hashed = hashes(tf.constant(list(entries))).numpy()
    order = np.argsort(hashed, kind="stable")
    keys, numbers = hashed[order], (order + first).astype(np.int32)

    def find(strings: tf.Tensor) -> tf.Tensor:
        wanted = hashes(strings)
        place = tf.minimum(tf.searchsorted(tf.constant(keys), wanted), len(keys) - 1)
        return tf.where(tf.gather(tf.constant(keys), place) == wanted, tf.gather(tf.constant(numbers), place), missing)

    return find
