"""Texts into token numbers, in graph and with TensorFlow alone, so that the same code cuts for training and in the saved model.

Number 0 is padding and 1 an unknown token; every text has at least one token. Nothing here keeps a lookup table: words are found by
their 62-bit hash in a sorted constant, which a SavedModel carries as it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from nlp.settings import Hashed, Subwords, Words

PAD, UNKNOWN, FIRST = 0, 1, 2  # FIRST: the first number that a learned vocabulary gives


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
    """A way of cutting.

    Attributes:
        size: rows of the embedding; every number is below it.
        words: [n] string -> [n, None] string: what a person would call the words.
        cut: [n] string -> Cut; in graph.
        letters: the first number of character n-grams, where they have numbers of their own, after those of the words.
    """

    size: int
    words: Callable[[tf.Tensor], tf.RaggedTensor]
    cut: Callable[[tf.Tensor], Cut]
    letters: int | None = None

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """[n] string -> [n, None] int32."""
        return self.cut(texts).ids


def learn(settings: Words | Hashed | Subwords, batches: Iterable[tf.Tensor]) -> dict[str, Any]:
    """What is learned from the texts of train ([n] string each): the facts that `make` needs. Nothing for hashed tokens."""
    from nlp.tokens import subwords, words

    if isinstance(settings, Words):
        return {"vocabulary": words.learn(settings, batches)}
    if isinstance(settings, Subwords):
        return {"vocabulary": subwords.learn(settings, batches)}
    return {}


def make(settings: Words | Hashed | Subwords, facts: dict[str, Any]) -> Tokenizer:
    """The tokenizer of these settings; `facts` as `learn` gave them."""
    from nlp.tokens import hashed, subwords, words

    if isinstance(settings, Words):
        return words.make(settings, facts["vocabulary"])
    if isinstance(settings, Subwords):
        return subwords.make(settings, facts["vocabulary"])
    return hashed.make(settings)
