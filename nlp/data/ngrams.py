"""The number of different n-grams in texts, to size embedding tables. Imports no TensorFlow."""

import math
import re
from collections.abc import Sequence
from statistics import median

# letters of scripts without spaces, each of which nlp.tokens.normalise makes a word of its own
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")  # roughly as it divides texts
SHORT = 40  # words of a usual text up to which character n-grams are worth their time
Grams = tuple[int, tuple[int, int] | None]  # words of an n-gram at most; fewest and most characters of one, None: there are none


def ngrams_for(sample: Sequence[str]) -> Grams:
    """What tells texts like these apart.

    Of scripts without spaces each letter is a word of its own, so that n-grams of words are those of letters.
    """
    letters = [letter for text in sample for letter in text[:400] if letter.isalpha()]
    if len(re.findall(f"[{UNSPACED}]", "".join(letters))) >= 0.5 * max(1, len(letters)):
        return 3, None
    usual = median(len(WORD.findall(text)) for text in sample) if sample else 0
    return 2, (2, 5) if usual <= SHORT or sum(letter.isascii() for letter in letters) < 0.5 * len(letters) else None


def ngram_counts(sample: Sequence[str], texts: int, words: int, characters: tuple[int, int] | None) -> tuple[int, int]:
    """Different word n-grams and character n-grams of `texts` texts, from a sample of them.

    Beyond the sample their number is assumed to grow as a power of the number of texts, estimated from one half of the sample to the
    whole (Heaps' law).

    Args:
        sample: texts, in any order.
        texts: their total number.
        words: longest word n-gram.
        characters: [shortest, longest] character n-gram within words, their ends counted as characters; None for none.
    """
    runs: set[tuple[str, ...]] = set()
    single: set[str] = set()
    half = (0, 0)
    for number, text in enumerate([*sample[1::2], *sample[::2]]):  # every second one first: a folder's texts are sorted by class
        if number == len(sample) // 2:
            half = len(runs), _parts(single, characters)
        tokens = WORD.findall(text.lower())
        single.update(tokens)
        for size in range(1, words + 1):
            runs.update(zip(*(tokens[start:] for start in range(size))))
    return _extrapolated(half[0], len(runs), len(sample), texts), _extrapolated(half[1], _parts(single, characters), len(sample), texts)


def _parts(words: set[str], characters: tuple[int, int] | None) -> int:
    if characters is None:
        return 0
    shortest, longest = characters
    marked = [f"\2{word}\3" for word in words]
    return len({word[start:start + size] for word in marked for size in range(shortest, longest + 1)
                for start in range(len(word) - size + 1)})


def _extrapolated(half: int, whole: int, sample: int, texts: int) -> int:
    if texts <= sample or not half or not whole:
        return whole
    return round(whole * (texts / sample) ** math.log2(whole / half))
