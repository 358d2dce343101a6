"""Intervals drawn by groups hold the truth about as often as they say, and every judge draws its source's groups."""

import numpy as np
import pytest

from pipelines.config.schema import Evaluate
from pipelines.outputs import classification, classifier
from pipelines.outputs.per_class import per_class
from pipelines.reports.report import Reported, write_report
from pipelines.task import intervals
from pipelines.task.units import EXAMPLES, grouped, units_of

SETTINGS = Evaluate(bootstrap=200)


def answers_of(rng, groups=20, each=25, classes=3, spread=0.35):
    """(answers, group of each): every group has its own share of right answers, as speakers do; their mean is 0.6."""
    who = np.repeat(np.arange(groups), each)
    right = rng.random(len(who)) < np.clip(0.6 + spread * rng.uniform(-1, 1, groups), 0, 1)[who]
    labels = rng.integers(0, classes, len(who))
    predicted = np.where(right, labels, (labels + 1) % classes)
    probabilities = np.full((len(who), classes), 0.1 / (classes - 1))
    probabilities[np.arange(len(who)), predicted] = 0.9
    return classification.classified(probabilities, labels), who


def test_whole_groups_cover_the_truth_and_examples_do_not():
    rng = np.random.default_rng(0)
    covered = {"groups": 0, "examples": 0}
    for _ in range(60):
        answers, who = answers_of(rng)
        for name, units in (("groups", grouped(who, "speaker")), ("examples", EXAMPLES)):
            found = classification.metrics(answers, resamples=200, units=units)["accuracy"]
            covered[name] += found.low <= 0.6 <= found.high
    assert covered["groups"] >= 0.85 * 60 and covered["examples"] < 0.75 * 60


def test_every_metric_and_table_is_wider_and_says_what_was_drawn():
    answers, who = answers_of(np.random.default_rng(1), groups=12, each=60)
    alone, together = (classifier.judgement(answers, SETTINGS, units, str) for units in (EXAMPLES, grouped(who, "speaker")))
    for name, metric in together.metrics.items():
        assert (metric.unit, metric.units, metric.n) == ("speaker", 12, len(who)) and alone.metrics[name].unit == "example"
        if name != "calibration_error":
            assert metric.high - metric.low > 1.2 * (alone.metrics[name].high - alone.metrics[name].low), name
    for row, other in zip(together.tables["per_class"], alone.tables["per_class"]):
        assert row["recall"] == other["recall"] and row["recall_high"] - row["recall_low"] > other["recall_high"] - other["recall_low"]
        assert row["f1"] == other["f1"] and row["f1_high"] - row["f1_low"] > other["f1_high"] - other["f1_low"]
    assert "95 % intervals are drawn by 12 speakers." in together.notes and not any("drawn by" in note for note in alone.notes)


def test_intervals_of_classes_by_group_against_a_plain_loop():
    answers, who = answers_of(np.random.default_rng(2), groups=15)
    rows = per_class(answers, resamples=400, units=grouped(who, "speaker"))
    rng, own, drawn = np.random.default_rng(5), answers.labels == 1, []
    for _ in range(400):
        counts = np.bincount(rng.integers(0, 15, 15), minlength=15)[who]
        drawn.append((counts * own * answers.hits).sum() / (counts * own).sum())
    assert (rows[1]["recall_low"], rows[1]["recall_high"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_a_share_of_one_is_wilsons_by_groups():
    who = np.repeat(np.arange(8), 10)
    found = intervals.share(np.ones(80, bool), units=grouped(who, "patient"))
    assert found.low == pytest.approx(intervals.wilson(8, 8)[0]) and (found.unit, found.units) == ("patient", 8)
    answers = classification.classified(np.eye(2)[who % 2], who % 2)
    row = per_class(answers, units=grouped(who, "patient"))[0]
    assert row["recall"] == 1.0 and row["recall_low"] == pytest.approx(intervals.wilson(4, 4)[0])


def test_few_groups_and_one_are_said():
    class Grouped:
        groups = np.array(["a"] * 3 + ["b"] * 3)

    few = units_of(Grouped(), "patient_id")
    assert few.name == "patient" and few.count(6) == 2 and "few to draw from" in few.notes()[1]
    one = few.pick(np.arange(3))
    assert one.of is None and "All examples are of one patient" in one.notes()[0]
    assert units_of(object(), None) is EXAMPLES and EXAMPLES.notes() == []


def test_the_report_says_what_was_drawn(tmp_path):
    answers, who = answers_of(np.random.default_rng(3), groups=12)
    made = classifier.judgement(answers, SETTINGS, grouped(who, "speaker"), str)
    read = write_report(tmp_path, Reported(task="vision.classification", experiment="x", run="r", judgements={"test": made}, timing={}))
    assert read["metrics"]["test/accuracy"]["unit"] == "speaker" and read["metrics"]["test/accuracy"]["units"] == 12
    for name in ("report.md", "report.html"):
        assert "drawn by 12 speakers" in (tmp_path / name).read_text()
    assert "12 speakers" in (tmp_path / "model_card.md").read_text()
