"""How numbers are written."""

import pytest

from pipelines.base import formatting
from pipelines.config import registry
from pipelines.task.results import Metric

registry.tasks()  # domains declare their metrics


@pytest.mark.parametrize("value, name, text", [
    (0.7312, "test/accuracy", "73.1 %"), (0.99954, "accuracy", "99.95 %"), (0.0004, "wer", "0.04 %"), (1.0, "accuracy", "100.0 %"),
    (0.25512, "log_loss", "0.2551"), (2.3456, "loss", "2.346"), (45.678, "rmse", "45.68"), (1234.5, "", "1,234"), (0.00012, "", "1.20e-04"),
    (3, "", "3"), (12345, "support", "12,345"), (True, "", "yes"), (None, "", "–"),
    (float("nan"), "", "not finite"), (0.0, "loss", "0"),
    (0.5, "recall_low", "50.0 %"), (0.31, "ndcg@10", "31.0 %"), (0.2, "input_wait_fraction", "20.0 %"),
    ("cat", "class", "cat"), (-2.5, "", "-2.500"),
])
def test_number(value, name, text):
    assert formatting.number(value, name) == text


@pytest.mark.parametrize("seconds, text", [
    (0.0123, "12 ms"), (0.45, "0.5 s"), (4.24, "4.2 s"), (9.99, "10 s"), (59.4, "59 s"), (59.7, "1 min 00 s"), (200, "3 min 20 s"),
    (3599.6, "1 h 00 min"), (7500, "2 h 05 min"), (273600, "3 d 4 h"), (float("inf"), "unknown"), (0, "0 ms"),
])
def test_duration(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize("name, text", [
    ("top5_accuracy", "Top-5 accuracy"), ("ndcg@10", "NDCG@10"), ("hit_rate@5", "Hit rate@5"), ("worst_mistakes", "Worst mistakes"),
    ("gain_in_mae", "Gain in MAE"), ("gain_in_ndcg@10", "Gain in NDCG@10"), ("gain_in_top5_accuracy", "Gain in top-5 accuracy"),
    ("absolute_error", "Absolute error"), ("mean_average_precision", "mAP"), ("r2", "R squared"),
])
def test_title(name, text):
    assert formatting.title(name) == text


@pytest.mark.parametrize("name, text", [
    ("top5_accuracy", "top-5 accuracy"), ("ndcg@10", "NDCG@10"), ("r2", "R squared"), ("spearman", "Spearman's rank correlation"),
    ("f1", "F1"), ("macro_f1", "macro F1"), ("hit_rate@5", "hit rate@5"),
])
def test_a_title_within_a_sentence_keeps_the_capitals_of_abbreviations(name, text):
    assert formatting.title_within(name) == text


def test_a_metric_has_a_unit_by_its_name_or_by_its_data():
    formatting.declare({"edge_distance": formatting.MetricKind("min", unit="px")})
    assert formatting.number(4.25, "test/edge_distance") == "4.250 px"
    assert Metric(4.25, 4.0, 5.0).text("edge_distance") == "4.250 px [4.000, 5.000]"
    assert Metric(4.25, 4.0, 5.0, measured_in="years").text("mae") == "4.250 years [4.000, 5.000]"


def test_metric_with_and_without_interval():
    assert Metric(0.731, 0.722, 0.74, 100).text("accuracy") == "73.1 % [72.2, 74.0]"
    assert Metric(0.8, None, None, 1).text("log_loss") == "0.8000"


def test_direction_and_sizes():
    assert formatting.size(24 * 2**30) == "24.0 GiB" and formatting.size(12) == "12 B"
    assert formatting.yaml_value([0.5, "a: b"]) == "[0.5, 'a: b']"
    assert formatting.yaml_value(None) == "null" and formatting.yaml_value(True) == "true"
