"""The baseline of tagging: the spans of train as a dictionary, the longest match first."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from nlp.tokens.offsets import placed_words
from pipelines.data.source import Source
from pipelines.task.results import Baseline

BATCH = 1024
Words = list[tuple[str, int, int]]  # each with its first character and the one behind its last


def fit(train: Source) -> Baseline:
    """Words that are a span of train more often than not are one of its most frequent type, wherever they stand in a text and in whatever
    letters, small or capital."""
    kinds: defaultdict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
    every = list(_read(train))
    for words, spans in every:
        for start, end, kind in spans:
            kinds[tuple(word for word, begin, stop in words if begin < end and stop > start)][kind] += 1
    kinds.pop((), None)
    longest = max(map(len, kinds), default=0)
    seen: Counter[tuple[str, ...]] = Counter()
    for words, _ in every:
        for at in range(len(words)):
            for size in range(1, longest + 1):
                key = tuple(word for word, _, _ in words[at:at + size])
                if len(key) == size and key in kinds:
                    seen[key] += 1
    known = {key: counted.most_common(1)[0][0] for key, counted in kinds.items() if 2 * counted.total() > seen[key]}

    def match(words: Words) -> list[tuple[int, int, int]]:
        found, at = [], 0
        while at < len(words):
            for size in range(min(longest, len(words) - at), 0, -1):
                kind = known.get(tuple(word for word, _, _ in words[at:at + size]))
                if kind is not None:
                    found.append((words[at][1], words[at + size - 1][2], kind))
                    at += size - 1
                    break
            at += 1
        return found

    def answers(source: Source) -> dict[str, np.ndarray]:
        matched = [match(words) for words, _ in _read(source)]
        spans = np.zeros((len(matched), max(map(len, matched), default=0) or 1, 3), np.int32)
        for row, found in zip(spans, matched):
            row[:len(found)] = np.array(found, np.int32).reshape(-1, 3)
        return {"spans": spans}

    return Baseline("a dictionary of the spans of train", answers=answers)


def _read(source: Source) -> Iterator[tuple[Words, list[list[int]]]]:
    """The words of each text in small letters, and its spans."""
    for start in range(0, len(source), BATCH):
        rows = source.gather(tf.range(start, min(start + BATCH, len(source)), dtype=tf.int64))
        words, starts, ends = (value.to_list() for value in placed_words(rows["text"]))
        for text, packed, own, begins, stops in zip(rows["text"].numpy(), rows["spans"].numpy(), words, starts, ends):
            place = {at: number for number, at in enumerate(_offsets(text))}
            yield ([(word.decode("utf-8", "replace").lower(), place[begin], place[stop]) for word, begin, stop in zip(own, begins, stops)],
                   np.frombuffer(packed, np.int32).reshape(-1, 3).tolist())


def _offsets(text: bytes) -> list[int]:
    """The byte where each character begins, and the end."""
    return [at for at, byte in enumerate(text) if byte & 0xC0 != 0x80] + [len(text)]
