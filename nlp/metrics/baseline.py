"""The baseline of text classifiers: a linear support vector machine on words and parts of words, fitted in seconds."""

import numpy as np
import tensorflow as tf

from nlp import tokens
from nlp.data.ngrams import ngrams_for
from nlp.models import linear
from nlp.settings import Hashed
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
    sample = [text.decode("utf-8", "replace") for text in fitting_part(part, SAMPLE).gather(
        tf.range(min(SAMPLE, len(part)), dtype=tf.int64))["text"].numpy().tolist()]
    if not any(text.strip() for text in sample):
        return None
    words, characters = ngrams_for(sample)
    tokenizer = tokens.make(Hashed(name="hashed", words=words, characters=characters and list(characters), distinct=True, buckets=ROWS,
                                   character_buckets=ROWS if characters else None), {})
    fitted = linear.fit(tokens.cut_labelled(part, tokenizer), tokenizer, classes, groups=part.groups)

    def score(source: Source) -> np.ndarray:
        parts = [(fitted.logits([ids]), labels) for ids, labels in tokens.cut_labelled(source, tokenizer)]
        logits, labels = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        return example_f1(logits >= 0.0, labels) if many else (logits.argmax(1) == labels).astype(np.float64)

    return Baseline(NAME, "example_f1" if many else "accuracy", score)
