"""Exact match and F1 of answers in words, as the official scripts of SQuAD 1.1 and 2 compute them (Rajpurkar et al. 2016, 2018)."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)
# scripts without blanks between words, whose characters count as words: the official scripts know English alone
_APART = re.compile(r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])")


def words_of(text: str) -> list[str]:
    """Words in small letters, without punctuation and English articles."""
    return _APART.sub(r" \1 ", _ARTICLES.sub(" ", text.lower().translate(_MARKS))).split()


def compare(given: str, true: Iterable[str]) -> tuple[float, float]:
    """(F1, exact match) of an answer, each the best over the true ones; where there is none of these, of the empty text."""
    own = words_of(given)
    every = [words_of(one) for one in true] or [[]]
    return max(_f1(own, other) for other in every), max(float(own == other) for other in every)


def _f1(own: list[str], other: list[str]) -> float:
    if not own or not other:
        return float(own == other)
    same = (Counter(own) & Counter(other)).total()
    return 2.0 * same / (len(own) + len(other))
