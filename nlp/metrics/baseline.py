"""The baselines of texts, on words and parts of words, fitted in seconds: a linear support vector machine, of numbers ridge regression."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from nlp import tokens
from nlp.data.ngrams import ngrams_for
from nlp.models import linear, ridge
from nlp.settings import Hashed
from nlp.tokens.base import Tokenizer
from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.baselines import MOST
from pipelines.outputs.label_metrics import example_f1
from pipelines.task.results import Baseline

NAME = "linear SVM on tf-idf of words and characters"
ROWS = 1 << 21  # for n-grams of words, and as many for those of characters: two hardly ever share one
SAMPLE = 2_000  # texts by which n-grams are chosen


def fit_classifier(train: Source, classes: int, many: bool) -> Baseline | None:
    """Fits texts of the classes; those of no class are ignored. None where no text has a word.

    Args:
        train: entries text and label: the class [n], or, with several labels a text, [n, classes] of 0 and 1.
        classes: their number.
        many: whether texts have several labels; the metric is then the F1 of each text.
    """
    part = fitting_part(train, MOST)
    tokenizer = _tokenizer(part)
    if tokenizer is None:
        return None
    fitted = linear.fit(tokens.cut_labelled(part, tokenizer), tokenizer, classes, groups=part.groups)

    def score(source: Source) -> np.ndarray:
        parts = [(fitted.logits([ids]), labels) for ids, labels in tokens.cut_labelled(source, tokenizer)]
        logits, labels = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        return example_f1(logits >= 0.0, labels) if many else (logits.argmax(1) == labels).astype(np.float64)

    return Baseline(NAME, "example_f1" if many else "accuracy", score)


def fit_numbers(train: Source, output: Any) -> Baseline | None:
    """Ridge regression of numbers; None where no text has a word.

    Args:
        train: entries text and target.
        output: a pipelines.outputs.numbers.Numbers.
    """
    part = fitting_part(train, MOST)
    tokenizer = _tokenizer(part)
    if tokenizer is None:
        return None

    def cut(source: Source) -> Iterator[tuple[tf.Tensor, np.ndarray]]:
        return tokens.cut_labelled(source, tokenizer, TARGET)

    fitted = ridge.fit(((ids, output.fitted_to({TARGET: numbers})) for ids, numbers in cut(part)), tokenizer, groups=part.groups)

    def score(source: Source) -> np.ndarray:
        return np.concatenate([output.errors(fitted.logits([ids]), {TARGET: numbers}) for ids, numbers in cut(source)])

    return Baseline("ridge regression on tf-idf of words and characters", output.watch[0], score, output.watch[1])


def _tokenizer(part: Source) -> Tokenizer | None:
    """Hashed n-grams that suit the texts; None where none has a word."""
    sample = [text.decode("utf-8", "replace") for text in fitting_part(part, SAMPLE).gather(
        tf.range(min(SAMPLE, len(part)), dtype=tf.int64))["text"].numpy().tolist()]
    if not any(text.strip() for text in sample):
        return None
    words, characters = ngrams_for(sample)
    return tokens.make(Hashed(name="hashed", words=words, characters=characters and list(characters), distinct=True, buckets=ROWS,
                              character_buckets=ROWS if characters else None), {})
