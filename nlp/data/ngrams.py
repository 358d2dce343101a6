"""The number of different n-grams in texts, to size embedding tables. Imports no TensorFlow."""

import math
import re
from collections.abc import Sequence

WORD = re.compile(r"\w+|[^\w\s]")  # roughly as nlp.tokens.normalise tokenises


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
