"""Texts into token numbers, in graph and with TensorFlow alone, so that training and the saved model share the code.

Number 0 is padding and 1 an unknown token; every text has at least one token. Nothing here keeps a lookup table: words are found by
their 62-bit hash in a sorted constant, which a SavedModel carries as it is.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.settings import TOKENS
from nlp.tokens.base import FIRST as FIRST
from nlp.tokens.base import PAD as PAD
from nlp.tokens.base import UNKNOWN as UNKNOWN
from nlp.tokens.base import Tokenizer
from pipelines.config.schema import Section
from pipelines.data.source import Source

AT_ONCE = 1024  # texts


def learn(settings: Section, batches: Iterable[tf.Tensor]) -> dict[str, Any]:
    """What is learned from the texts of train ([n] string each): the facts that `make` needs. Nothing for hashed tokens."""
    cutter = TOKENS.builder(settings)
    return {"vocabulary": cutter.learn(settings, batches)} if hasattr(cutter, "learn") else {}


def make(settings: Section, facts: dict[str, Any]) -> Tokenizer:
    """The tokenizer of these settings; `facts` as `learn` gave them."""
    return TOKENS.builder(settings).make(settings, facts.get("vocabulary", []))


def cut_labelled(source: Source, tokenizer: Tokenizer, key: str = "label") -> Iterator[tuple[tf.Tensor, np.ndarray]]:
    """(token numbers [n, time] int32, labels [n, ...]) of some examples {"text", key} after the other."""
    for start in range(0, len(source), AT_ONCE):
        rows = source.gather(tf.range(start, min(start + AT_ONCE, len(source)), dtype=tf.int64))
        yield tokenizer.ids(rows["text"]).to_tensor(PAD), rows[key].numpy()
