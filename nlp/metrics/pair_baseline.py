"""The baselines of pairs of texts: what these have in common, by ridge or logistic regression, fitted in seconds."""

from typing import Any

import numpy as np
import tensorflow as tf

from nlp import tokens
from nlp.metrics import ranks
from nlp.models import pair_overlap
from nlp.settings import Hashed
from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.baselines import MOST
from pipelines.task.results import Baseline

CUTTING = Hashed(name="hashed", words=1, characters=[2, 5], distinct=True, buckets=1 << 17, character_buckets=1 << 18)


def fit_classifier(train: Source, classes: int) -> Baseline:
    """Logistic regression; texts of no class are ignored.

    Args:
        train: entries text, text_pair and label [n].
    """
    tokenizer, part = tokens.make(CUTTING, {}), fitting_part(train, MOST)
    cut, labels = zip(*pair_overlap.cut(part, tokenizer, "label"))
    fitted = pair_overlap.fit_classes(list(cut), np.concatenate(labels), classes, tokenizer)

    def answers(source: Source) -> dict[str, np.ndarray]:
        logits = fitted.logits(ids for ids, _ in pair_overlap.cut(source, tokenizer, "label"))
        return {"probabilities": tf.nn.softmax(logits).numpy()}

    return Baseline("logistic regression on tf-idf overlap of both texts", answers=answers)


def fit_ranks(train: Source, metric: str) -> Baseline:
    """Cosines of tf-idf vectors of words and pairs of them, whose rarity is that of train.

    Args:
        train: entries text, text_pair, first and second.
        metric: of nlp.metrics.ranks.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    def both(source: Source) -> list[list[str]]:
        rows = source.gather(tf.range(len(source), dtype=tf.int64))
        return [[text.decode("utf-8", "replace") for text in rows[name].numpy()] for name in ("text", "text_pair")]

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    words.fit([text for texts in both(fitting_part(train, MOST)) for text in texts] or ["none"])

    def score(source: Source) -> np.ndarray:
        first, second = (words.transform(texts) for texts in both(source))
        numbers = source.gather(tf.range(len(source), dtype=tf.int64))
        found, _ = ranks.ranks(lambda some, others: (first[some] @ second[others].T).toarray(),
                               *(numbers[key].numpy() for key in ("first", "second")))
        return ranks.of_ranks(found)[metric]

    return Baseline("cosine of tf-idf vectors", metric=metric, score=score)


def fit_numbers(train: Source, output: Any) -> Baseline:
    """Ridge regression.

    Args:
        train: entries text, text_pair and target.
        output: a pipelines.outputs.numbers.Numbers.
    """
    tokenizer, part = tokens.make(CUTTING, {}), fitting_part(train, MOST)
    cut, numbers = zip(*pair_overlap.cut(part, tokenizer, TARGET))
    fitted = pair_overlap.fit_numbers(list(cut), output.fitted_to({TARGET: np.concatenate(numbers)}), tokenizer)

    def answers(source: Source) -> dict[str, np.ndarray]:
        value = fitted.logits(ids for ids, _ in pair_overlap.cut(source, tokenizer, TARGET))
        return dict.fromkeys(("value", "low", "high"), value)

    return Baseline("ridge regression on tf-idf overlap of both texts", answers=answers)
