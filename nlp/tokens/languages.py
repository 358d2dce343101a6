"""Whether an encoder's tokenizer knows the language of texts."""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from nlp.tokens.base import Tokenizer

# pieces a word. MiniLM-L6: English 1.03 to 1.15, French 1.5, German 1.8, Russian 4; of Chinese 62 % are unknown
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+|[^\w\s]")  # or sign, or character where no blanks stand between words
MANY_PIECES, MANY_UNKNOWN = 1.4, 0.05
# vocabularies of many languages have fewer pieces for each, and cut words more often (Rust et al. 2021, arXiv:2012.15613); both limits are
# guesses, since no such tokenizer was at hand
MULTILINGUAL, PIECES_OF_MANY = 100_000, 2.5
BEGINNING = 20  # words of each text
NO_LETTER = "\ue000"  # unknown to every tokenizer


def foreign(tokenizer: Tokenizer, texts: Sequence[str]) -> str | None:
    """Why an encoder says little of texts: its tokenizer breaks their words into many pieces, or knows few of them, as those of another
    language; None where it does not."""
    words = [WORD.findall(text)[:BEGINNING] for text in texts]

    def pieces(rows: list[str]) -> np.ndarray:
        ids: np.ndarray = tokenizer.cut(tf.constant(rows)).ids.flat_values.numpy()
        return ids

    own, marks = pieces([" ".join(row) for row in words]), pieces([""])
    own, unknown = own[~np.isin(own, marks)], np.setdiff1d(pieces([NO_LETTER]), marks)
    each, lost = len(own) / max(1, sum(map(len, words))), float(np.isin(own, unknown).mean()) if len(own) else 0.0
    most = PIECES_OF_MANY if tokenizer.size >= MULTILINGUAL else MANY_PIECES
    if each <= most and lost <= MANY_UNKNOWN:
        return None
    return ("it does not know their language: " + (f"{lost:.0%} of their parts are unknown to it" if lost > MANY_UNKNOWN else
                                                   f"it reads a word as {each:.1f} pieces on average"))
