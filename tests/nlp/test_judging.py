"""Metrics agree with scikit-learn; thresholds are the best of those there are; what no class fits is counted apart."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from nlp.metrics.judging import condensed, judge_one, reject_threshold
from nlp.settings import TextEvaluate
from pipelines.outputs.label_metrics import judge_many, label_threshold
from pipelines.reports.report import Reported, write_report

SETTINGS = TextEvaluate(bootstrap=100)


class Named:
    def name(self, number):
        return f"row {number}"


def softmax(values):
    e = np.exp(values - values.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def judged():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 400)  # 3 is of no class
    logits = draw.normal(0, 1, (400, 3))
    inside = labels < 3
    logits[np.flatnonzero(inside), labels[inside]] += 3
    return softmax(logits), labels


def test_reject_threshold_is_the_best_of_all(judged):
    probabilities, labels = judged
    threshold = reject_threshold(probabilities.max(axis=1), probabilities.argmax(axis=1), labels, 3, None)

    def right(at):
        passed = probabilities.max(axis=1) >= at
        return np.where(labels < 3, passed & (probabilities.argmax(axis=1) == labels), ~passed).sum()

    assert right(threshold) == max(right(at) for at in [0, *probabilities.max(axis=1), 1.1])
    accepted = reject_threshold(probabilities.max(axis=1), probabilities.argmax(axis=1), labels, 3, 0.9)
    assert (probabilities.max(axis=1) >= accepted)[labels < 3].mean() == pytest.approx(0.9, abs=0.01)


def test_rejection_is_judged_apart(judged):
    probabilities, labels = judged
    found = judge_one(condensed(probabilities, labels), labels, ["a", "b", "c"], Named(), SETTINGS, 0.6)
    inside, passed = labels < 3, probabilities.max(axis=1) >= 0.6
    hits = probabilities.argmax(axis=1) == labels
    assert found.metrics["accuracy"].n == inside.sum() and found.metrics["accuracy"].value == pytest.approx(hits[inside].mean())
    assert found.metrics["out_of_scope_recall"].value == pytest.approx((~passed)[~inside].mean())
    assert found.metrics["accuracy_with_rejection"].value == pytest.approx((passed & hits)[inside].mean())
    assert 0.5 < found.metrics["out_of_scope_auroc"].value < 1
    assert all(labels[row["number"]] < 3 and row["example"] == f"row {row['number']}" for row in found.tables["worst_mistakes"])
    assert {"confusion", "reliability", "rejection"} <= set(found.figures)


def test_two_classes_have_curves():
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, 300)
    probabilities = softmax(np.stack([np.zeros(300), draw.normal(0, 1, 300) + labels], axis=1))
    found = judge_one(condensed(probabilities, labels), labels, ["no", "yes"], Named(), SETTINGS, None)
    from sklearn.metrics import average_precision_score, roc_auc_score

    assert found.metrics["auroc"].value == pytest.approx(roc_auc_score(labels, probabilities[:, 1]))
    assert found.metrics["average_precision"].value == pytest.approx(average_precision_score(labels, probabilities[:, 1]))
    assert {"roc", "precision_recall"} <= set(found.figures)


def test_several_labels():
    draw = np.random.default_rng(2)
    true = (draw.random((200, 4)) < 0.3).astype(np.float32)
    true[:, 3] = 0  # a label that nothing has
    probabilities = np.clip(0.6 * true + draw.random((200, 4)) * 0.5, 0, 1).astype(np.float32)
    threshold = label_threshold(probabilities, true)
    given = probabilities >= np.float32(threshold)
    best = max(f1_score(true, probabilities >= at, average="micro", zero_division=0) for at in np.unique(probabilities)[::7])
    assert f1_score(true, given, average="micro") >= best - 1e-6
    found = judge_many(probabilities, true, list("abcd"), Named(), SETTINGS, threshold)
    assert found.metrics["micro_f1"].value == pytest.approx(f1_score(true, given, average="micro"))
    assert found.metrics["example_f1"].value == pytest.approx(f1_score(true, given, average="samples", zero_division=1))
    assert found.metrics["subset_accuracy"].value == pytest.approx((given == true).all(axis=1).mean())
    seen = (true.any(axis=0)) | given.any(axis=0)
    assert found.metrics["macro_f1"].value == pytest.approx(f1_score(true[:, seen], given[:, seen], average="macro", zero_division=0))
    assert {"roc", "precision_recall"} <= set(found.figures) and found.tables["per_class"][3]["auroc"] is None
    assert found.notes == [f"A label is given from probability {threshold:.3f} on (chosen on validation)."]
    without = judge_many(probabilities, true, list("abcd"), Named(), SETTINGS, None)
    assert without.notes == ["A label is given from probability 0.500 on (there is no validation split to choose it on)."]
    assert without.metrics["micro_f1"].value == pytest.approx(f1_score(true, probabilities >= 0.5, average="micro"))


def test_150_classes_make_a_page(tmp_path):
    draw = np.random.default_rng(3)
    labels = draw.integers(0, 150, 1000)
    logits = draw.normal(0, 1, (1000, 150))
    logits[np.arange(1000), labels] += 4
    found = judge_one(condensed(softmax(logits), labels), labels, [f"class_{number}" for number in range(150)], Named(), SETTINGS, None)
    assert len(found.tables["worst_confusions"]) == 20
    write_report(tmp_path, Reported(task="nlp.classification", experiment="nlp/x", run="r", judgements={"test": found}, timing={}))
    assert "class_" in (tmp_path / "report.md").read_text()
