"""A classifier's metrics against scikit-learn's, on random cases and at the edges."""

import numpy as np
import pytest
from sklearn import metrics as sk

from pipelines.base.errors import TrainingError
from pipelines.outputs import classification
from pipelines.outputs.per_class import per_class
from pipelines.task.intervals import wilson


def made(n, count, *, seed=0, strength=2.0, absent=()):
    """Random probabilities and labels; classes `absent` occur neither as label nor as answer."""
    rng = np.random.default_rng(seed)
    present = np.setdiff1d(np.arange(count), absent)
    labels = rng.choice(present, n)
    logits = rng.normal(size=(n, count)) * 1.5
    logits[np.arange(n), labels] += strength
    logits[:, list(absent)] = -20
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (exponent / exponent.sum(axis=1, keepdims=True)).astype(np.float32), labels


CASES = [(1, 3, ()), (2, 2, ()), (50, 4, (1,)), (1000, 10, ()), (1000, 10, (0, 9)), (700, 40, (3, 4, 5)), (30, 100, ())]


@pytest.mark.parametrize("n, count, absent", CASES)
def test_values_are_scikit_learns(n, count, absent):
    probabilities, labels = made(n, count, seed=n + count, absent=absent)
    answers = classification.classified(probabilities, labels)
    found = classification.metrics(answers, resamples=100)
    predicted = probabilities.argmax(axis=1)
    assert found["accuracy"].value == pytest.approx(sk.accuracy_score(labels, predicted))
    assert found["macro_f1"].value == pytest.approx(sk.f1_score(labels, predicted, average="macro", zero_division=0))
    exact = probabilities.astype(np.float64)
    expected = sk.log_loss(labels, exact / exact.sum(axis=1, keepdims=True), labels=range(count))
    assert found["log_loss"].value == pytest.approx(expected, rel=1e-5)
    if count > 5:
        expected = sk.top_k_accuracy_score(labels, probabilities, k=5, labels=range(count))
        assert found["top5_accuracy"].value == pytest.approx(expected)
    else:
        assert "top5_accuracy" not in found
    assert all(metric.n == n for metric in found.values())
    for name, metric in found.items():
        # macro F1 of a resample leaves out other classes: with few examples its percentiles may lie to one side
        assert metric.low is None or metric.low - 1e-12 <= metric.value <= metric.high + 1e-12 or name == "macro_f1"


@pytest.mark.parametrize("n, count, absent", CASES)
def test_tables_are_scikit_learns(n, count, absent):
    probabilities, labels = made(n, count, seed=7, absent=absent)
    answers = classification.classified(probabilities, labels, [f"class {k}" for k in range(count)])
    precision, recall, f1, support = sk.precision_recall_fscore_support(
        labels, answers.predicted, labels=range(count), zero_division=np.nan)
    for k, row in enumerate(per_class(answers)):
        assert row["class"] == f"class {k}" and row["support"] == support[k]
        for name, expected in (("precision", precision[k]), ("recall", recall[k]), ("f1", f1[k])):
            if name == "f1" and row["f1"] is not None and np.isnan(expected):
                assert row["f1"] == 0  # scikit-learn calls it undefined where precision is
            else:
                assert (row[name] is None and np.isnan(expected)) or row[name] == pytest.approx(expected)
        for name in ("precision", "recall"):
            assert row[name] is None or 0 <= row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] <= 1
        assert row["f1_low"] is None or 0 <= row["f1_low"] <= row["f1"] <= row["f1_high"] <= 1
    matrix = classification.confusions(answers)
    assert np.array_equal(matrix.toarray(), sk.confusion_matrix(labels, answers.predicted, labels=range(count)))


def test_of_equal_probabilities_the_first_class_is_the_answer():
    probabilities = np.full((3, 10), 0.1, np.float32)
    found = classification.metrics(classification.classified(probabilities, np.array([0, 4, 5])), resamples=100)
    assert found["accuracy"].value == pytest.approx(1 / 3)
    assert found["top5_accuracy"].value == pytest.approx(2 / 3)
    assert classification.classified(probabilities, np.array([0, 4, 5])).ranks.tolist() == [0, 4, 5]


def test_calibration_error_by_hand():
    # three answers at 0.95 of which two are right, one at 0.55 that is right: 3/4 |2/3 - 0.95| + 1/4 |1 - 0.55|
    confidence = np.array([0.95, 0.95, 0.95, 0.55])
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    found = classification.metrics(classification.classified(probabilities, np.array([0, 0, 1, 0])), resamples=100)
    assert found["calibration_error"].value == pytest.approx(0.75 * (0.95 - 2 / 3) + 0.25 * 0.45)


def test_calibration_bins_are_open_below_and_closed_above():
    edges = np.arange(1, 16) / 15
    assert classification.bin_numbers(edges).tolist() == list(range(15))
    assert classification.bin_numbers(np.nextafter(edges[:-1], 1)).tolist() == list(range(1, 15))
    assert classification.bin_numbers(np.array([0.0, 1.0])).tolist() == [0, 14]


def test_calibration_error_against_a_plain_loop_and_its_bins():
    probabilities, labels = made(2000, 10, seed=3)
    answers = classification.classified(probabilities, labels)
    total = 0.0
    for m in range(15):
        inside = (answers.confidence > m / 15) & (answers.confidence <= (m + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(answers.hits[inside].mean() - answers.confidence[inside].mean())
    found = classification.metrics(answers, resamples=100)["calibration_error"]
    assert found.value == pytest.approx(total, abs=1e-9)
    rows = classification.reliability(answers)
    assert sum(row["count"] for row in rows) == 2000
    filled = [row for row in rows if row["count"]]
    assert sum(row["count"] / 2000 * abs(row["accuracy"] - row["confidence"]) for row in filled) == pytest.approx(total, abs=1e-9)
    assert all(row["low"] < row["confidence"] <= row["high"] for row in filled)


def test_the_calibration_interval_reaches_down_to_a_calibrated_truth():
    """The plain percentile interval of a calibrated classifier never contains its true error, 0."""
    reached = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.5, 1.0, 500)
        right = rng.random(500) < confidence
        answers = classification.classified(np.stack([confidence, 1 - confidence], 1), np.where(right, 0, 1))
        reached += classification.metrics(answers, resamples=200)["calibration_error"].low < 0.01
    assert reached >= 15


def test_macro_f1_interval_against_a_plain_loop():
    probabilities, labels = made(300, 5, seed=2)
    answers = classification.classified(probabilities, labels)
    found = classification.metrics(answers, resamples=1000)["macro_f1"]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        numbers = rng.integers(0, 300, 300)
        drawn.append(sk.f1_score(labels[numbers], answers.predicted[numbers], average="macro", zero_division=0))
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.012)


def test_a_faultless_classifier_is_not_called_certain():
    answers = classification.classified(np.eye(3, dtype=np.float32)[[0, 1, 2] * 20], np.array([0, 1, 2] * 20))
    found = classification.metrics(answers, resamples=100)
    assert found["accuracy"].value == 1.0 and 0.9 < found["accuracy"].low < 0.97 and found["accuracy"].high == 1.0
    assert found["macro_f1"].low is None
    assert found["log_loss"].value == 0.0
    assert classification.worst_mistakes(answers, 10) == [] and classification.worst_confusions(answers) == []


def test_worst_mistakes_are_ordered_by_loss_and_never_right():
    probabilities, labels = made(500, 6, seed=5)
    answers = classification.classified(probabilities, labels, list("abcdef"))
    worst = classification.worst_mistakes(answers, 20)
    assert [mistake.loss for mistake in worst] == sorted(answers.losses[~answers.hits], reverse=True)[:20]
    for mistake in worst:
        row = probabilities[mistake.number]
        assert mistake.true == labels[mistake.number] != mistake.predicted == row.argmax()
        assert mistake.confidence == pytest.approx(row.max()) and mistake.loss == pytest.approx(-np.log(row[mistake.true]), rel=1e-5)
    table = classification.mistakes_table(answers, 3, lambda number: f"data[{number}]")
    assert table[0]["example"] == f"data[{worst[0].number}]" and table[0]["true"] == "abcdef"[worst[0].true]


def test_mistakes_beyond_the_smallest_probability_are_ordered_by_confidence_then_number():
    probabilities = np.array([[0.9, 0.1, 0.0], [1.0, 0.0, 0.0], [0.9, 0.1, 0.0]])
    worst = classification.worst_mistakes(classification.classified(probabilities, np.array([2, 2, 2])), 3)
    assert [mistake.number for mistake in worst] == [1, 0, 2]
    assert worst[0].loss == pytest.approx(-np.log(np.finfo(np.float32).eps))


def test_worst_confusions_count_and_share():
    labels = np.array([0] * 10 + [1] * 5)
    predicted = np.array([1] * 4 + [0] * 6 + [0] * 3 + [2] * 2)
    answers = classification.classified(np.eye(3)[predicted], labels, ["cat", "dog", "eel"])
    assert classification.worst_confusions(answers) == [
        {"true": "cat", "predicted": "dog", "count": 4, "share": 0.4}, {"true": "dog", "predicted": "cat", "count": 3, "share": 0.6},
        {"true": "dog", "predicted": "eel", "count": 2, "share": 0.4}]
    assert "(cat) would be right for 66.7 %" in classification.baseline_note(answers)


def test_intervals_of_a_class_against_plain_loops():
    probabilities, labels = made(400, 4, seed=3)
    answers = classification.classified(probabilities, labels)
    row = per_class(answers)[2]
    rng = np.random.default_rng(0)
    drawn = [sk.f1_score(labels[numbers], answers.predicted[numbers], labels=[2], average=None)[0]
             for numbers in (rng.integers(0, 400, 400) for _ in range(400))]
    assert (row["f1_low"], row["f1_high"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    said = answers.predicted == 2
    assert (row["precision_low"], row["precision_high"]) == pytest.approx(wilson((labels[said] == 2).sum(), said.sum()))


def test_no_examples():
    answers = classification.classified(np.zeros((0, 3), np.float32), np.zeros(0, int))
    assert classification.metrics(answers) == {}
    assert [row["recall"] for row in per_class(answers)] == [None] * 3


@pytest.mark.parametrize("probabilities, labels, message", [
    (np.ones((2, 2)) / 2, [0, 2], "do not fit 2 classes"),
    (np.ones((2, 2)) / 2, [0, -1], "do not fit 2 classes"),
    (np.ones((2, 2)) / 2, [0], "expected"),
    (np.array([[3.0, -1.0]]), [0], "logits"),
])
def test_wrong_input_is_named(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        classification.classified(probabilities, np.array(labels))


def test_answers_that_are_not_finite_are_an_error_that_counts_them():
    probabilities = np.full((4, 2), 0.5, np.float32)
    probabilities[2, 1] = np.nan
    with pytest.raises(TrainingError, match=r"1 of 4 examples \(the first is example 2\)"):
        classification.classified(probabilities, np.zeros(4, int))
    with pytest.raises(ValueError, match="3 class names for 2"):
        classification.classified(np.full((4, 2), 0.5), np.zeros(4, int), ["a", "b", "c"])
