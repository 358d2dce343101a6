"""The baseline of texts that are written from texts: what train has for the text that is most like it, as a translation memory does."""

from collections.abc import Callable

import numpy as np

from nlp.data.translations import rows_of
from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.baselines import MOST
from pipelines.task.results import Baseline

AT_ONCE = 512  # texts that are looked for together


def fit(train: Source, tokens_of: Callable[[list[str]], np.ndarray]) -> Baseline:
    """By the cosine of tf-idf vectors of words and pairs of them.

    Args:
        train: entries text and text_pair.
        tokens_of: texts -> their tokens [n, most] int32, padded with 0.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    part = fitting_part(train, MOST)
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+|[^\w\s]", sublinear_tf=True)
    known = words.fit_transform(rows_of(part, "text")).T.tocsc()
    written = rows_of(part, "text_pair")

    def answers(source: Source) -> dict[str, np.ndarray]:
        asked = words.transform(rows_of(source, "text"))
        nearest = [np.asarray((asked[at:at + AT_ONCE] @ known).argmax(1)).ravel() for at in range(0, asked.shape[0], AT_ONCE)]
        tokens = tokens_of([written[number] for number in np.concatenate(nearest)])
        return {"tokens": tokens, "confidence": np.ones(len(tokens), np.float32)}

    return Baseline("what train has for the most similar text", answers=answers)
