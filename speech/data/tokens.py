"""Texts to tokens and back. Tokens are learned from train's transcripts alone.

The last output of a model is CTC's blank; tokens are numbered from 0, and from 1 where 0 stands for "no token".
"""

import io
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pipelines.base.errors import DataError
from speech.settings import Tokens

SPACE = "▁"  # sentencepiece's sign for the beginning of a word


def normalized(text: str, settings: Tokens) -> str:
    """A transcript as it is learned and judged: composed characters (NFC), single blanks, no dashes that stand
    alone, and what the settings ask for."""
    text = unicodedata.normalize("NFC", text)
    if settings.remove:
        text = text.translate({ord(character): None for character in settings.remove})
    if settings.lowercase:
        text = text.lower()
    # a dash or an apostrophe that stands alone is not spoken
    return " ".join(word for word in text.split() if word.strip("-'\u2013\u2014\u2019"))


@dataclass(frozen=True)
class Alphabet:
    """Tokens by number.

    Attributes:
        unit: characters, subwords or words.
        tokens: their texts; a subword that begins a word begins with SPACE.
    """

    unit: str
    tokens: tuple[str, ...]

    def text(self, numbers: Sequence[int]) -> str:
        """Token numbers, from 0, as text."""
        parts = [self.tokens[number] for number in numbers]
        if self.unit == "words":
            return " ".join(parts)
        joined = "".join(parts)
        return " ".join((joined.replace(SPACE, " ") if self.unit == "subwords" else joined).split())

    def begins_word(self) -> list[bool]:
        """For each token, whether a word begins with it wherever it stands."""
        return [self.unit == "words" or (self.unit == "subwords" and token.startswith(SPACE)) for token in self.tokens]


class Encoder:
    """Texts to token numbers.

    Args:
        alphabet: the tokens.
        model: sentencepiece's, for subwords.
    """

    def __init__(self, alphabet: Alphabet, model: bytes | None = None):
        self.alphabet = alphabet
        self._numbers = {token: number for number, token in enumerate(alphabet.tokens)}
        self._pieces: Any = None
        if model is not None:
            import sentencepiece

            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(self, text: str) -> list[int]:
        """Numbers of the tokens of a normalised text; what train lacks is left out."""
        if self.alphabet.unit == "words":
            parts: Sequence[str] = text.split()
        elif self._pieces is not None:
            parts = self._pieces.encode(text, out_type=str)
        else:
            parts = text
        return [self._numbers[part] for part in parts if part in self._numbers]


def learn(texts: Sequence[str], settings: Tokens) -> Encoder:
    """Tokens from train's normalised transcripts.

    Raises:
        DataError: no text, or too little for so many subwords.
    """
    if not any(texts):
        raise DataError("the transcripts of train are empty")
    if settings.unit == "words":
        return Encoder(Alphabet("words", tuple(sorted({word for text in texts for word in text.split()}))))
    if settings.unit == "characters":
        return Encoder(Alphabet("characters", tuple(sorted(set("".join(texts))))))
    import sentencepiece

    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=written, vocab_size=settings.size + 1, model_type="unigram", character_coverage=1.0,
            bos_id=-1, eos_id=-1, unk_id=0, hard_vocab_limit=False, num_threads=1, minloglevel=2, normalization_rule_name="identity",
            max_sentence_length=65_536)
    except RuntimeError as error:
        raise DataError(f"tokens.size: {settings.size} subwords cannot be learned from {len(texts):,} transcripts: {str(error).strip()}; "
                        "set fewer, or tokens.unit: characters") from error
    model = written.getvalue()
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    return Encoder(Alphabet("subwords", tuple(pieces.id_to_piece(number) for number in range(1, pieces.get_piece_size()))), model)


def steps_needed(tokens: Sequence[int]) -> int:
    """Steps of the output that CTC needs to write these tokens: one each, and a blank between two that are alike."""
    return len(tokens) + sum(first == second for first, second in pairwise(tokens))
