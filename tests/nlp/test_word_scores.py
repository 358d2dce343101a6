"""Linear classifiers of runs of tokens beside an encoder: what they count, and that no text is scored by one that has seen it."""

import numpy as np
import pytest
import tensorflow as tf

from nlp.models.pretrained import scoring
from nlp.models.word_scores import FOLDS, NUMBERS, WordScores, buckets_for, fit, folds
from nlp.settings import Pretrained
from pipelines.base.errors import ConfigError


def built(longest, classes, buckets=1 << 16):
    layer = WordScores(longest, classes, buckets)
    layer.build(None)
    return layer


def texts_of(generator, count, length=9, vocabulary=500):
    ids = generator.integers(2, vocabulary, (count, length)).astype(np.int32)
    ids[:, length // 2:][generator.random(count) < 0.5] = 0  # padding behind half of them
    return ids


def test_a_text_holds_each_run_once_and_padding_changes_nothing():
    layer = built(2, 3)
    runs = layer.runs(tf.constant([[5, 7, 5, 7, 0, 0]])).numpy()[0]
    assert len(set(runs[runs > 0].tolist())) == (runs > 0).sum() == 4  # 5, 7, "5 7", "7 5"
    alone, padded = (layer.runs(tf.constant([[5, 7, 9, *more]])).numpy()[0] for more in ([], [0] * 4))
    assert set(alone.tolist()) - {0} == set(padded.tolist()) - {0} and (alone > 0).sum() == 5
    assert len({tuple(sorted(layer.runs(tf.constant([pair])).numpy()[0].tolist())) for pair in ([5, 7], [7, 5])}) == 2
    ids = texts_of(np.random.default_rng(0), 2000)
    fold = folds(tf.constant(ids)).numpy()
    assert (fold == folds(tf.pad(ids, [[0, 0], [0, 3]])).numpy()).all() and np.bincount(fold, minlength=FOLDS).min() > 300


def test_a_text_is_scored_by_the_classifier_that_was_fitted_to_the_other_folds():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    generator, layer = np.random.default_rng(1), built(2, 3)
    ids = texts_of(generator, 300, vocabulary=30)
    labels = (ids[:, 0] % 3).astype(np.int64)
    fit(layer, [(tf.constant(ids[:200]), labels[:200]), (tf.constant(ids[200:]), labels[200:])])
    found, fold = layer(tf.constant(ids)).numpy(), folds(tf.constant(ids)).numpy()
    words = [" ".join(f"w{number}" for number in row if number) for row in ids.tolist()]
    expected = TfidfVectorizer(ngram_range=(1, 2), binary=True).fit_transform(words)
    for number in range(FOLDS):
        machine = LinearSVC(random_state=0, tol=1e-2).fit(expected[fold != number], labels[fold != number])
        assert found[fold == number] == pytest.approx(machine.decision_function(expected[fold == number]), abs=2e-2)


def test_what_cannot_be_known_of_new_texts_is_not_known_of_training_texts():
    generator, layer = np.random.default_rng(2), built(2, 2)
    ids, labels = texts_of(generator, 400), generator.integers(0, 2, 400)
    fit(layer, [(tf.constant(ids), labels)])
    scores = layer(tf.constant(ids)).numpy()
    assert 0.35 < (scores.argmax(1) == labels).mean() < 0.65 and scores[:, 0] == pytest.approx(-scores[:, 1])


def test_texts_of_several_labels_of_none_and_of_a_class_that_a_fold_lacks():
    generator = np.random.default_rng(3)
    ids, layer = texts_of(generator, 200, vocabulary=20), built(1, 3)
    several = np.stack([(ids == 7).any(1), (ids == 8).any(1), np.zeros(200)], 1).astype(np.float32)
    fit(layer, [(tf.constant(ids), several)])
    scores = layer(tf.constant(ids)).numpy()
    assert ((scores > 0) == (several > 0)).mean() > 0.95 and (scores[:, 2] == -1.0).all()
    labels = np.where((ids == 7).any(1), 1, 0)
    labels[0], labels[1] = 2, 3  # one text of the last class, and one of none
    fit(layer, [(tf.constant(ids), labels)])
    table = layer.table.numpy().reshape(FOLDS, -1, 3)
    lacking = int(folds(tf.constant(ids[:1]))[0])
    assert not table[lacking, :, 2].any() and layer.border.numpy()[lacking, 2] == -1.0


def test_tables_are_as_large_as_the_texts_need():
    assert [buckets_for(count, 2) for count in (1, 60, 1000, 25_000, 10**9)] == [1 << 12, 1 << 12, 1 << 16, 1 << 20, 1 << 20]
    assert NUMBERS // 2 < buckets_for(10**6, 500) * FOLDS * 500 <= NUMBERS and buckets_for(10**6, 1000) is None


def test_a_frozen_encoder_has_them_where_a_class_has_ten_texts():
    frozen, whole = (Pretrained(name="pretrained", preset="x", finetune={"name": name}) for name in ("frozen", "whole"))
    assert scoring(frozen, 60, 6, False) == {"words": 2, "buckets": 1 << 12}
    for settings, *given in ((frozen, 59, 6, False), (frozen, 60, 6, True), (whole, 600, 6, False), (frozen, 10**6, 10**4, False)):
        assert scoring(settings, *given) == {"words": 0, "buckets": None}
    assert scoring(whole.model_copy(update={"words": 1}), 10, 6, False)["words"] == 1
    with pytest.raises(ConfigError, match=r"model\.words: 10,000 classes are too many"):
        scoring(frozen.model_copy(update={"words": 1}), 10**6, 10**4, False)
