"""Texts into token numbers, in graph and with TensorFlow alone, so that training and the saved model share the code.

Number 0 is padding and 1 an unknown token; every text has at least one token. Nothing here keeps a lookup table: words are found by
their 62-bit hash in a sorted constant, which a SavedModel carries as it is.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from nlp.settings import Hashed, Subwords, Words
from nlp.tokens import hashed, subwords, words
from nlp.tokens.base import Tokenizer


def learn(settings: Words | Hashed | Subwords, batches: Iterable[tf.Tensor]) -> dict[str, Any]:
    """What is learned from the texts of train ([n] string each): the facts that `make` needs. Nothing for hashed tokens."""
    if isinstance(settings, Words):
        return {"vocabulary": words.learn(settings, batches)}
    if isinstance(settings, Subwords):
        return {"vocabulary": subwords.learn(settings, batches)}
    return {}


def make(settings: Words | Hashed | Subwords, facts: dict[str, Any]) -> Tokenizer:
    """The tokenizer of these settings; `facts` as `learn` gave them."""
    if isinstance(settings, Words):
        return words.make(settings, facts["vocabulary"])
    if isinstance(settings, Subwords):
        return subwords.make(settings, facts["vocabulary"])
    return hashed.make(settings)
