"""Several labels an example: metrics agree with scikit-learn, thresholds are the best for each label unless few examples say so, and a
kernel machine beside the model is fitted to all labels at once."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit
from sklearn.metrics import average_precision_score, f1_score, label_ranking_average_precision_score

from pipelines.config.schema import ClassificationLoss, Evaluate
from pipelines.fitting import kernel
from pipelines.outputs.label_metrics import EVEN, judge_many, label_threshold, label_thresholds, ranking_precision
from pipelines.outputs.labels import Labels

DRAW = np.random.default_rng(5)


def drawn(count, shares, noise=0.3):
    true = (DRAW.random((count, len(shares))) < np.array(shares)).astype(np.float32)
    return np.clip(0.3 * true + 0.2 + noise * DRAW.normal(size=true.shape), 0, 1).astype(np.float32), true


class Named:
    def name(self, number):
        return f"row {number}"


def test_metrics_agree_with_scikit_learn():
    probabilities, true = drawn(300, [0.5, 0.2, 0.05, 0.0])
    thresholds = label_thresholds(probabilities, true)
    given = probabilities >= thresholds.astype(np.float32)
    found = judge_many(probabilities, true, list("abcd"), Named(), Evaluate(bootstrap=100), thresholds)
    assert found.metrics["mean_average_precision"].value == pytest.approx(average_precision_score(true[:, :3], probabilities[:, :3]))
    assert found.metrics["label_ranking_precision"].value == pytest.approx(label_ranking_average_precision_score(true, probabilities))
    for name in ("macro_f1", "micro_f1", "mean_average_precision", "label_ranking_precision", "subset_accuracy"):
        metric = found.metrics[name]
        assert metric.low < metric.value < metric.high, name
    for k, row in enumerate(found.tables["per_class"][:3]):
        assert row["f1"] == pytest.approx(f1_score(true[:, k], given[:, k])) and row["f1_low"] <= row["f1"] <= row["f1_high"]
        assert row["average_precision"] == pytest.approx(average_precision_score(true[:, k], probabilities[:, k]))
        assert row["threshold"] == pytest.approx(thresholds[k], abs=1e-6)
    assert found.tables["per_class"][3]["average_precision"] is None and "labels_together" in found.figures
    assert found.notes[0].startswith("Each label is given from a probability of its own on, 0.")


def test_ties_and_examples_without_labels_rank_as_scikit_learn_has_them():
    probabilities, true = np.round(DRAW.random((200, 5)), 1), DRAW.random((200, 5)) < 0.3
    assert ranking_precision(probabilities, true).mean() == pytest.approx(label_ranking_average_precision_score(true, probabilities))
    assert ranking_precision(probabilities[:1], np.zeros((1, 5), bool)).tolist() == [1.0]


def test_a_threshold_of_its_own_needs_examples_with_and_without_the_label():
    probabilities, true = drawn(4000, [0.5, 0.02], noise=0.05)
    probabilities[:, 1] *= 0.5  # a label that is given with less
    own = [label_threshold(probabilities[:, k:k + 1], true[:, k:k + 1]) for k in (0, 1)]
    shared = label_threshold(probabilities, true)
    found = label_thresholds(probabilities, true)
    assert found[0] == pytest.approx(own[0], abs=0.01) and own[1] < found[1] < shared
    few = label_thresholds(probabilities[:200], true[:200])
    assert few[1] > found[1]  # nearer to the shared one
    assert label_thresholds(probabilities, np.ones_like(true)).tolist() == pytest.approx([EVEN, EVEN])
    assert label_thresholds(probabilities, np.zeros_like(true)).tolist() == pytest.approx([EVEN, EVEN])


def labels_of(facts, **loss):
    experiment = SimpleNamespace(data=SimpleNamespace(label_separator=";"), loss=ClassificationLoss(**loss))
    return Labels(SimpleNamespace(experiment=experiment, facts={"classes": ["a", "b", "c"], **facts}, input=None))


@pytest.mark.parametrize(("facts", "expected"), [
    ({}, [b"c;b", b""]), ({"threshold": 0.3}, [b"c;b", b"a"]), ({"thresholds": [0.2, 0.65, 0.1]}, [b"c", b"a;c"])])
def test_answers_are_the_labels_above_their_threshold_most_probable_first(facts, expected):
    answers = {"probabilities": tf.constant([[0.1, 0.6, 0.9], [0.4, 0.1, 0.2]])}
    assert labels_of(facts).respond(answers)["labels"].numpy().tolist() == expected


def test_labels_that_are_there_weigh_as_asked_and_in_training_alone():
    facts = {"class_counts": [50, 10, 100], "splits": {"train": {"examples": 100}}}
    logits, true = tf.constant([[0.3, -1.0, 0.5]]), tf.constant([[1.0, 1.0, 0.0]])
    plain = labels_of(facts).loss(logits, true, True).numpy()
    log = np.log1p(np.exp(-np.array([0.3, -1.0])))
    for setting, weights in (("balanced", [1.0, 9.0]), ({"b": 3.0}, [1.0, 3.0])):
        output = labels_of(facts, class_weights=setting)
        assert output.loss(logits, true, True).numpy() == pytest.approx(plain + ((np.array(weights) - 1) * log).sum(), rel=1e-5)
        assert output.loss(logits, true, False).numpy() == pytest.approx(plain)


def test_a_kernel_machine_is_fitted_to_all_labels_at_once():
    features = DRAW.normal(size=(400, 6))
    true = np.stack([features[:, 0] > 0, features[:, 1] * features[:, 2] > 0.5, features[:, 3] > 1.2], axis=1).astype(np.float32)
    fitted = kernel.fit(features[:300], true[:300], 3)
    assert fitted.held_out.shape == fitted.truth.shape == (300, 3)
    thresholds = label_thresholds(expit(fitted.held_out), fitted.truth)
    given = expit(fitted.logits(features[300:])) >= thresholds
    assert f1_score(true[300:], given, average="macro") > 0.75
    alone = kernel.fit(features[:300], true[:300, 0].astype(int), 2)
    assert np.mean((fitted.logits(features[300:])[:, 0] > 0) == alone.logits(features[300:]).argmax(1)) > 0.9
