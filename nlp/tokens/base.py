"""The interface of tokenizers: token numbers, and the words that each token covers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

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
    """

    size: int
    words: Callable[[tf.Tensor], tf.RaggedTensor]
    cut: Callable[[tf.Tensor], Cut]
    letters: int | None = None
    cut_plain: Callable[[tf.Tensor], Cut] | None = None
    is_plain: Callable[[bytes], bool] = lambda text: False

    @cached_property
    def ids(self) -> Callable[[tf.Tensor], tf.RaggedTensor]:
        """[n] string -> [n, None] int32; traced once for all splits and datasets, since a trace of so many operations takes a second."""
        return tf.function(lambda texts: self.cut(texts).ids, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
