"""A kernel machine: what it chooses by, that folds are left out exactly, and that the layer answers as the fit does."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.fitting import kernel
from pipelines.fitting.folds import by_chance, by_group, fitting_part


@pytest.fixture(scope="module")
def quadrants():
    """Points that no line divides: which of two diagonal pairs of quadrants they lie in."""
    points = np.random.default_rng(0).normal(size=(600, 2))
    return points, (points[:, 0] * points[:, 1] > 0).astype(np.int64)


def test_it_learns_what_no_line_divides(quadrants):
    points, labels = quadrants
    fitted = kernel.fit(points[:400], labels[:400], 2)
    assert np.mean(fitted.logits(points[400:]).argmax(1) == labels[400:]) > 0.95


def test_fewer_examples_stand_for_all(quadrants):
    points, labels = quadrants
    fitted = kernel.fit(points[:400], labels[:400], 2, support=40)
    assert len(fitted.examples) == 40 and np.mean(fitted.logits(points[400:]).argmax(1) == labels[400:]) > 0.9


def test_a_fold_is_left_out_as_if_it_had_not_been_there():
    rng = np.random.default_rng(1)
    scaled, wanted, fold = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), np.arange(30) % 4
    similar = np.exp(-kernel._distances(scaled, scaled))
    answers = kernel.held_out(similar, wanted, 0.1, fold)
    for number in range(4):
        own, others = fold == number, fold != number
        coefficients = np.linalg.solve(similar[np.ix_(others, others)] + 0.1 * np.eye(others.sum()), wanted[others])
        np.testing.assert_allclose(answers[own], similar[np.ix_(own, others)] @ coefficients, atol=1e-9)


def test_the_layer_answers_as_the_fit_does(quadrants):
    points, labels = quadrants
    fitted = kernel.fit(points[:100], labels[:100], 2)
    model = kernel.build((2,), tf.identity, support=120, classes=2)
    assert not np.any(model(points[:5].astype(np.float32))) and not model.trainable_weights
    model.get_layer("machine").put(fitted)
    np.testing.assert_allclose(model(points.astype(np.float32)), fitted.logits(points), atol=1e-3)


def test_confidence_is_what_held_out_examples_bear_out(quadrants):
    """Of labels a fifth of which are wrong, no answer is surer than that for long."""
    points, labels = quadrants
    noisy = np.where(np.random.default_rng(2).random(600) < 0.2, 1 - labels, labels)
    logits = kernel.fit(points[:400], noisy[:400], 2).logits(points[400:])
    sure = np.exp(logits.max(1)) / np.exp(logits).sum(1)
    assert abs(sure.mean() - np.mean(logits.argmax(1) == noisy[400:])) < 0.08


def test_blocks_of_features_count_alike():
    """One telling feature beside a hundred that say nothing is not lost where it is a block of its own."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 200)
    features = np.concatenate([labels[:, None] + 0.3 * rng.normal(size=(200, 1)), rng.normal(size=(200, 100))], 1)

    def right(blocks):
        return np.mean(kernel.fit(features[:100], labels[:100], 2, blocks=blocks).logits(features[100:]).argmax(1) == labels[100:])

    assert right((1, 100)) > 0.85 > right((101,))


def test_a_feature_that_never_changes_says_nothing():
    labels = np.arange(40) % 2
    features = np.stack([labels + 0.01 * np.arange(40), np.full(40, 7.0)], 1)
    fitted = kernel.fit(features, labels, 2)
    changed = features + np.array([0.0, 100.0])
    np.testing.assert_allclose(fitted.logits(changed), fitted.logits(features))


def test_folds_keep_groups_together_and_divide_classes_evenly():
    groups = np.repeat(np.array(["a", "b", "c"]), [5, 2, 3])
    fold = by_group(groups)
    assert all(len(set(fold[groups == name])) == 1 for name in "abc") and len(set(fold)) == 3
    labels = np.repeat([0, 1], 25)
    assert np.all(np.bincount(2 * by_chance(labels, 50, 0) + labels) == 5)


def test_a_bounded_part_of_train_is_fitted_to():
    from pipelines.data.source import ArraySource

    source = ArraySource({"x": np.zeros(25, np.float32)})
    assert len(fitting_part(source, 20)) == 20 and fitting_part(source, 25) is source
    assert fitting_part(source, 20).fingerprint() == fitting_part(source, 20).fingerprint()
