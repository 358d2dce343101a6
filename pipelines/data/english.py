"""Whether texts are in English, by its commonest words. Imports no TensorFlow."""

import re
from collections.abc import Iterable

_COMMON = re.compile(r"\b(?:a|an|and|are|can|do|does|for|how|i|in|is|it|me|my|of|on|that|the|this|to|was|what|when|where|who|with|you)\b",
                     re.I)
_SHARE = 0.15  # of the words


def are_english(texts: Iterable[str]) -> bool:
    """Whether so many of the texts' words are common in English, and in no other language, that they are English."""
    words = common = 0
    for text in texts:
        words += len(text.split())
        common += len(_COMMON.findall(text))
    return common > 0 and common >= _SHARE * words
