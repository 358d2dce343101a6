"""The baseline of text classifiers: TF-IDF of words and pairs with a linear support vector machine, fitted in seconds."""

from typing import Any

import numpy as np
import tensorflow as tf

from nlp.metrics.judging import example_f1
from pipelines.data.source import Source
from pipelines.reports.baselines import fitting_part
from pipelines.task.results import Baseline

NAME = "TF-IDF and linear SVC"
READ = 4096  # texts at a time
TOKEN = r"(?u)\w+|[^\w\s]"  # words, and marks one by one


def fit_classifier(train: Source, classes: int, many: bool) -> Baseline | None:
    """Fits texts of the classes; those of no class are ignored. None where no text has a word.

    Args:
        train: entries text and label: the class [n], or, with several labels a text, [n, classes] of 0 and 1.
        classes: their number.
        many: whether texts have several labels; the metric is then the F1 of each text.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    texts, labels = read(fitting_part(train))
    if not many:
        inside = labels < classes
        texts, labels = [text for text, kept in zip(texts, inside) if kept], labels[inside]
    if not any(text.strip() for text in texts):
        return None
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKEN, dtype=np.float32)
    machine: Any = OneVsRestClassifier(LinearSVC(random_state=0)) if many else LinearSVC(random_state=0)
    machine.fit(vectors.fit_transform(texts), labels)

    def score(source: Source) -> np.ndarray:
        texts, labels = read(source)
        predicted = machine.predict(vectors.transform(texts))
        if not many:
            return (predicted == labels).astype(np.float64)
        return example_f1(predicted, labels)

    return Baseline(NAME, "example_f1" if many else "accuracy", score)


def read(source: Source) -> tuple[list[str], np.ndarray]:
    """All texts of a source and their labels."""
    parts = [source.gather(tf.range(start, min(start + READ, len(source)), dtype=tf.int64)) for start in range(0, len(source), READ)]
    texts = [text.decode("utf-8", "replace") for part in parts for text in part["text"].numpy().tolist()]
    return texts, np.concatenate([part["label"].numpy() for part in parts]).astype(np.int64)
