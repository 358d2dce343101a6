"""Linear support vector machines of texts: the model answers as the fit does, and its odds are those of texts that were held out."""

import numpy as np
import pytest
import tensorflow as tf

from nlp import tokens
from nlp.models import linear
from nlp.settings import Hashed, Linear

TOKENS = Hashed(name="hashed", characters=[2, 3], distinct=True, buckets=1 << 12, character_buckets=1 << 12)


@pytest.fixture(scope="module")
def texts():
    """(tokenizer, token numbers, labels): a word tells three classes apart, but a fifth of the labels are drawn by chance."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    rows = [f"{['red', 'green', 'blue'][label]} {' '.join(rng.choice(['one', 'two', 'six', 'ten'], 3))}" for label in labels]
    labels = np.where(rng.random(300) < 0.2, rng.integers(0, 3, 300), labels)
    tokenizer = tokens.make(TOKENS, {})
    return tokenizer, tokenizer.ids(tf.constant(rows)).to_tensor(), labels


def test_the_model_answers_as_the_fit_does(texts):
    tokenizer, ids, labels = texts
    fitted = linear.fit([(ids[:200], labels[:200])], tokenizer, 3)
    model = linear.build(Linear(name="linear"), size=tokenizer.size, classes=3, letters=tokenizer.letters)
    linear.put(model, fitted)
    assert not model.trainable_weights
    np.testing.assert_allclose(model(ids), fitted.logits([ids[:150], ids[150:]]), atol=1e-4)


def test_confidence_is_what_held_out_texts_bear_out(texts):
    tokenizer, ids, labels = texts
    logits = linear.fit([(ids[:200], labels[:200])], tokenizer, 3).logits([ids[200:]])
    sure = np.exp(logits.max(1)) / np.exp(logits).sum(1)
    assert abs(sure.mean() - np.mean(logits.argmax(1) == labels[200:])) < 0.08


def test_with_several_labels_even_odds_are_where_f1_is_best(texts):
    """A label that one text in ten has is given although its odds are never even."""
    tokenizer, ids, labels = texts
    rare = (labels == 0) & (np.random.default_rng(1).random(300) < 0.4)
    fitted = linear.fit([(ids[:200], np.stack([labels == 1, rare], 1)[:200].astype(np.float32))], tokenizer, 2)
    given, true = fitted.logits([ids[200:]]) >= 0.0, np.stack([labels == 1, rare], 1)[200:]
    f1 = 2 * (given & true).sum() / (given.sum() + true.sum())
    assert f1 > 0.7 and (given & true)[:, 1].any()


def test_texts_of_no_class_are_left_out_and_a_class_without_texts_is_never_answered(texts):
    tokenizer, ids, labels = texts
    logits = linear.fit([(ids, np.where(labels == 2, 9, labels))], tokenizer, 4).logits([ids])
    assert set(logits.argmax(1)) == {0, 1}
