"""Scores of a whole split are those that the report has."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, f1_score, r2_score

from pipelines.outputs import label_metrics, number_metrics


def test_labels():
    rng = np.random.default_rng(0)
    labels = (rng.random((60, 4)) < [0.5, 0.2, 0.1, 0.0]).astype(np.float32)
    probabilities = np.clip(0.3 * labels + 0.7 * rng.random((60, 4)), 0, 1).astype(np.float32)
    found = label_metrics.set_scores(probabilities, labels)
    given = probabilities >= label_metrics.label_thresholds(probabilities, labels).astype(np.float32)
    seen = given.any(0) | (labels > 0).any(0)
    assert found["micro_f1"] == pytest.approx(f1_score(labels, given, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(labels[:, seen], given[:, seen], average="macro", zero_division=0))
    assert found["mean_average_precision"] == pytest.approx(average_precision_score(labels[:, :3], probabilities[:, :3], average="macro"))


def test_numbers_where_some_are_missing():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(50, 2))
    values = truth + rng.normal(size=(50, 2))
    truth[:5, 1] = np.nan
    found = number_metrics.set_scores(values, truth)
    columns = [(truth[:, 0], values[:, 0]), (truth[5:, 1], values[5:, 1])]
    assert found["r2"] == pytest.approx(np.mean([r2_score(*one) for one in columns]))
    assert found["spearman"] == pytest.approx(np.mean([spearmanr(*one).statistic for one in columns]))
    assert number_metrics.set_scores(values, np.full((50, 2), np.nan)) == {"r2": 0.0, "spearman": 0.0}
