"""The cheap model beside a text classifier."""

import numpy as np

from nlp.metrics import baseline
from pipelines.data.source import ArraySource


def texts(*rows: tuple[str, int]) -> ArraySource:
    return ArraySource({"text": np.array([text for text, _ in rows], object), "label": np.array([label for _, label in rows], np.int32)})


def test_it_learns_words_and_leaves_out_texts_of_no_class():
    train = texts(*[("a good film", 1), ("a bad film", 0)] * 10, ("weather", 2))
    cheap = baseline.fit_classifier(train, 2, many=False)
    assert cheap is not None
    np.testing.assert_array_equal(cheap.score(texts(("so bad", 0), ("so good", 1), ("good", 0))), [1.0, 1.0, 0.0])


def test_texts_without_a_word_have_no_baseline():
    assert baseline.fit_classifier(texts((" ", 0), ("", 1)), 2, many=False) is None
