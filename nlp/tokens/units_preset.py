"""The tokens of a language model's preset. Numbers are the preset's plus 1, so that 0 is always padding."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.tokens import preset as preset_tokens
from nlp.tokens.alphabet import Alphabet
from nlp.tokens.subwords import BEGIN
from pipelines.base.errors import ConfigError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in SentencePiece's names
_SPECIAL = re.compile(r"<.*>|\[.*\]")  # marks that write nothing


_KNOWN: dict[str, tuple[Any, Any]] = {}
_MOST = 2  # presets


def _known(kept: Mapping[str, Any]) -> tuple[Any, Any]:
    """(the tokenizer of keras-hub, how it cuts texts), made and traced once for all that have these facts: a trace takes seconds."""
    key = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    if key not in _KNOWN:
        tokenizer = preset_tokens.restored(dict(kept))

        def cut(texts: tf.Tensor) -> tf.RaggedTensor:
            ids = tf.cast(tokenizer(texts), tf.int32) + 1
            return tf.ragged.boolean_mask(ids, ids > 0)  # in a graph, 0 stands for bytes that a small vocabulary lacks

        for old in list(_KNOWN)[:len(_KNOWN) + 1 - _MOST]:
            _KNOWN.pop(old, None)
        _KNOWN[key] = tokenizer, tf.function(cut, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    return _KNOWN[key]


class PresetTokens(Alphabet):
    """Texts without marks; a document's end is that of the preset.

    Args:
        kept: the fact `tokenizer`.

    Attributes:
        marks: names of tokens that write nothing; in a text they are these tokens.
    """

    learns = False

    def __init__(self, kept: Mapping[str, Any]):
        self.tokenizer, self._in_graph = _known(kept)
        names = [self.tokenizer.id_to_token(number) for number in range(int(self.tokenizer.vocabulary_size()))]
        merged = hasattr(self.tokenizer, "merges")
        self.marks = set(getattr(self.tokenizer, "unsplittable_tokens", None) or ())
        self._end: int | None = None
        self.strings = [b"" if name in self.marks or (_SPECIAL.fullmatch(name) and not _BYTE.fullmatch(name)) else
                        _bytes_of(name) if merged else _bytes_of_piece(name) for name in names]

    def ended_by(self, mark: str) -> None:
        """A text ends with this mark, in place of the preset's own."""
        self._end = int(self.tokenizer.token_to_id(mark)) + 1

    @property
    def end(self) -> int:
        if self._end is not None:
            return self._end
        number = getattr(self.tokenizer, "end_token_id", None)
        if number is None:
            raise ConfigError("model.preset: its tokenizer has no token that ends a text")
        return int(number) + 1

    @property
    def size(self) -> int:
        return 1 + len(self.strings)

    @property
    def pieces(self) -> list[bytes]:
        return [b"", *self.strings]

    @property
    def resources(self) -> tuple[Any, ...]:
        return tuple(one for one in tf.train.TrackableView(self.tokenizer).descendants()
                     if isinstance(one, tf.saved_model.experimental.TrackableResource))

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.array([0, *map(len, self.strings)], np.int32)

    @property
    def longest(self) -> int:
        return max(super().longest, *map(len, self.marks), 1)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Always in graph, as when served: outside of one, keras-hub cuts runs of blanks in another way."""
        return self._in_graph(texts)


def _bytes_of(name: str) -> bytes:
    """Of byte-pair encoding's names, in which each byte is a letter (Radford et al. 2019)."""
    known = _letters()
    return bytes(known[one] for one in name) if all(one in known for one in name) else name.encode()


@cache
def _letters() -> dict[str, int]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [number for number in range(256) if number not in plain]
    return {chr(number): number for number in plain} | {chr(256 + place): number for place, number in enumerate(others)}


def _bytes_of_piece(name: str) -> bytes:
    match = _BYTE.fullmatch(name)
    return bytes([int(match[1], 16)]) if match else name.replace(BEGIN, " ").encode()
