"""The benchmark on strangers' data: what it says of missing data, and whom it calls better."""

from benchmarks.strangers.__main__ import SETS, sides, table
from benchmarks.strangers.stranger import Missing, Result, Stranger, run


def test_a_baseline_is_better_only_beyond_the_interval():
    peers = [{"name": name, "score": score, "seconds": 1.0} for name, score in (("much", 0.95), ("little", 0.91), ("worse", 0.8))]
    result = Result("signs", "test", "accuracy", 0.9, 0.88, 0.92, examples=400, baselines=peers)
    assert result.beaten_by == ["much"]
    result.lower = True  # an error rate
    assert result.beaten_by == ["worse"]
    result.lower = False
    text = table([result])
    assert "accuracy 90.0 [88.0, 92.0]" in text and "**much 95.0 (1.0 s)**" in text and "**little" not in text


def test_data_that_are_not_there_are_said_and_leave_nothing(tmp_path):
    def lay_out(folder, choosing):
        (folder / "half").mkdir()
        raise Missing("of nobody")

    result = run(Stranger("none", "vision", lay_out, lambda judged: []), tmp_path, choosing=False, say=lambda text: None)
    assert "of nobody" in result.problem and "of nobody" in table([result])
    assert not (tmp_path / "data" / "none").exists()


def test_every_set_of_the_suite_has_a_name_and_a_known_domain():
    assert {one.domain for one in SETS.values()} == {"vision", "speech", "nlp", "recsys"}
    assert {"hand_signs", "cifar10_1000", "cifar10_all", "questions", "gowalla", "yes_no"} <= SETS.keys()


def test_small_pictures_are_laid_out_as_folders(tmp_path):
    data = SETS["odd"].lay_out(tmp_path, False)
    assert sorted(len(list(folder.iterdir())) for folder in data.iterdir()) == [40, 40, 60, 80, 120, 160]


def test_rules_race_and_expert_stand_side_by_side():
    peers = [{"name": "logistic regression", "score": 0.7, "seconds": 1.0}, {"name": "RBF-SVM", "score": 0.8, "seconds": 1.0}]
    kept = {f"odd {side}": Result("odd", "test", "accuracy", score, examples=100, seconds=9.0, baselines=peers)
            for side, score in (("rules", 0.75), ("race", 0.85))}
    assert "| `odd` | accuracy, 100 | 75.0 (9 s) | 85.0 (9 s) | RBF-SVM 80.0 |" in sides(kept, ["odd", "cells"])
