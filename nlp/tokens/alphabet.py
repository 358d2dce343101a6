"""What ways of cutting running texts into tokens have in common. In graph, with TensorFlow alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from nlp.tokens.base import FIRST
from pipelines.outputs.automata import TokenTrie


class Alphabet(ABC):
    """Of the tokens that `strings` write, from FIRST on.

    Args:
        settings: the section `tokens`.
        vocabulary: what was learned.
    """

    learns: ClassVar[bool] = True

    def __init__(self, settings: Any, vocabulary: list[str]):
        self.settings, self.strings = settings, self.strings_of(vocabulary)

    @staticmethod
    def learn(settings: Any, batches: Iterable[tf.Tensor]) -> list[str]:
        """The vocabulary, of train's texts, [n] string each."""
        return []

    @staticmethod
    def strings_of(vocabulary: list[str]) -> list[bytes]:
        return [one.encode() for one in vocabulary]

    @property
    def end(self) -> int:
        """The end of a document, and what stands before it."""
        return FIRST + len(self.strings)

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return FIRST + len(self.strings) + 1

    @property
    def resources(self) -> tuple[Any, ...]:
        """Tables and the like that `ids` reads, which a saved model has to hold."""
        return ()

    @property
    def pieces(self) -> list[bytes]:
        """What each token is in `texts`."""
        return [b"", b"", *self.strings, b""]

    @property
    def written(self) -> list[bytes]:
        """What each token writes in a text that has a form."""
        return self.pieces

    @cached_property
    def trie(self) -> TokenTrie:
        return TokenTrie(self.written)

    @property
    def sizes(self) -> np.ndarray:
        """Bytes that each token stands for, [size] int32."""
        return np.array([0, 1, *map(len, self.strings), 0], np.int32)

    @property
    def longest(self) -> int:
        """Characters of a text that become one token, at most."""
        return int(self.sizes.max())

    @abstractmethod
    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """[n] string -> [n, None] int32."""

    def texts(self, ids: tf.Tensor) -> tf.Tensor:
        """What tokens [n, time] int32 write, [n] string; padding and the end write nothing."""
        parts = tf.gather(tf.constant(self.pieces), ids)
        joined = tf.strings.reduce_join(parts, axis=-1)
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="ignore")
