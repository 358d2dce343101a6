"""The baseline of answers in passages: the sentence that has most words of the question, and in it the words that the question lacks."""

import re
from collections import Counter
from math import log

import numpy as np
import tensorflow as tf

from nlp.data.passages import ANSWERS
from nlp.metrics.answer_judging import compared
from pipelines.data.source import Source
from pipelines.task.results import Baseline

_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+(?:[.!?\u3002\uff01\uff1f]+(?!\s)[^.!?\u3002\uff01\uff1f\n]*)*")
MOST = 12  # words of an answer


def fit(train: Source) -> Baseline:
    """Words weigh by how few passages of train have them."""
    rows = train.gather(tf.range(len(train), dtype=tf.int64))
    passages = {text.decode("utf-8", "replace") for text in rows["text_pair"].numpy()}
    seen = Counter(word for passage in passages for word in {one.lower() for one in _WORD.findall(passage)})

    def weight(word: str) -> float:
        return log((1 + len(passages)) / (1 + seen[word]))

    def place(question: str, passage: str) -> tuple[int, int]:
        asked = {word.lower() for word in _WORD.findall(question)}
        best, found = -1.0, (0, 0)
        for sentence in _SENTENCE.finditer(passage):
            words = [(one.group().lower(), one.start() + sentence.start(), one.end() + sentence.start())
                     for one in _WORD.finditer(sentence.group())]
            score = sum(map(weight, asked & {word for word, _, _ in words}))
            runs: list[list[tuple[str, int, int]]] = [[]]
            for one in words:
                if one[0] in asked or len(runs[-1]) == MOST:
                    runs.append([])
                if one[0] not in asked:
                    runs[-1].append(one)
            longest = max(runs, key=lambda run: sum(weight(word) for word, _, _ in run))
            if longest and score > best:
                best, found = score, (longest[0][1], longest[-1][2])
        return found

    def answers(source: Source) -> dict[str, np.ndarray]:
        rows = source.gather(tf.range(len(source), dtype=tf.int64))
        texts = [[text.decode("utf-8", "replace") for text in rows[name].numpy()] for name in ("text", "text_pair")]
        places = np.array([place(*both) for both in zip(*texts)], np.int32).reshape(-1, 2)
        result = []
        for passage, packed, (start, end) in zip(texts[1], rows[ANSWERS].numpy(), places.tolist()):
            true = np.frombuffer(packed, np.int32).reshape(1, -1, 2)
            letters = np.array([[ord(one) for one in passage] or [0]], np.int32)
            result.append(compared(np.array([start]), np.array([end]), true, letters))
        scores = {name: np.concatenate([one[name] for one in result]) for name in result[0]}
        ones = np.ones((len(places), 1), np.float32)
        return {**scores, "starts": places[:, :1], "ends": places[:, 1:], "chances": ones, "nothing": np.zeros(len(places), np.float32)}

    return Baseline("words of the sentence that is most like the question", answers=answers)
