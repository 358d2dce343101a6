"""Answers condensed batch by batch say what all probabilities at once would, and many classes cost what the examples cost."""

import tracemalloc

import numpy as np
import pytest

from pipelines.base.errors import TrainingError
from pipelines.config.schema import Evaluate
from pipelines.outputs import classification, classifier
from pipelines.outputs.per_class import per_class
from pipelines.task.units import EXAMPLES, grouped


def drawn(rng, n, count, strength=4.0):
    labels = rng.integers(0, count, n)
    logits = rng.normal(size=(n, count)).astype(np.float32)
    logits[np.arange(n), labels] += strength
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True), labels


def test_batches_say_what_all_at_once_does():
    probabilities, labels = drawn(np.random.default_rng(0), 500, 12)
    probabilities[3] = 1 / 12  # equals
    parts = [classification.condensed(probabilities[start:start + 64], labels[start:start + 64], [5]) for start in range(0, 500, 64)]
    answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = [str(number) for number in range(12)]
    one, other = classification.of_condensed(answers, labels, names, [5]), classification.classified(probabilities, labels)
    for name in ("predicted", "confidence", "probability", "ranks", "losses"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert set(one.columns) == {5} and np.array_equal(one.columns[5], probabilities[:, 5])
    order = np.argsort(-probabilities, axis=1, kind="stable")
    assert np.array_equal(other.ranks, (order == labels[:, None]).argmax(axis=1))


def test_a_label_of_no_class_is_kept_and_not_judged():
    answers = classification.condensed(np.full((2, 4), 0.25), np.array([4, 1]))
    assert answers["probability"].tolist() == [0.0, 0.25]
    with pytest.raises(ValueError, match="do not fit 4 classes"):
        classification.of_condensed(answers, np.array([4, 1]), list("abcd"))


def test_answers_that_are_not_finite_are_counted_over_all_batches():
    probabilities = np.full((4, 2), 0.5)
    probabilities[1, 0] = np.inf
    parts = [classification.condensed(probabilities, np.zeros(4, int)) for _ in range(2)]
    answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    with pytest.raises(TrainingError, match=r"2 of 8 examples \(the first is example 1\)"):
        classification.of_condensed(answers, np.zeros(8, int), ["a", "b"])


@pytest.mark.parametrize("units", [EXAMPLES, grouped(np.arange(600) // 20, "speaker")])
def test_a_hundred_thousand_classes_cost_what_the_examples_cost(units):
    rng, count, n = np.random.default_rng(1), 100_000, 600
    labels, near = rng.integers(0, count, n), rng.random(n)
    predicted = np.where(near < 0.7, labels, (labels + 1) % count)
    confidence = rng.uniform(0.3, 0.9, n)
    answers = {"predicted": predicted, "confidence": confidence, "probability": np.where(near < 0.7, confidence, 0.05),
               "rank": (near >= 0.7).astype(int), "finite": np.ones(n, bool), "columns": np.zeros((n, 0))}
    tracemalloc.start()
    answered = classification.of_condensed(answers, labels, list(map(str, range(count))))
    made = classifier.judgement(answered, Evaluate(bootstrap=100), units, str)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6  # the matrix would be 80 GB
    assert made.metrics["accuracy"].value == pytest.approx((near < 0.7).mean()) and made.metrics["top5_accuracy"].value == 1.0
    assert len(made.tables["per_class"]) <= 2000 and all(row["f1"] is not None for row in made.tables["per_class"])
    assert len(made.tables["worst_confusions"]) == 20 and any("Of 100,000 classes" in note for note in made.notes)


def test_of_many_classes_the_worst_are_shown():
    probabilities, labels = drawn(np.random.default_rng(2), 400, 30, strength=1.0)
    answers = classification.classified(probabilities, labels)
    every, some = per_class(answers, resamples=100), per_class(answers, resamples=100, limit=10)
    assert [row["f1"] for row in some] == sorted(row["f1"] for row in every)[:10]
    assert all(row == next(other for other in every if other["class"] == row["class"]) for row in some if row["f1"] == 0)
