"""A trial's training: judged on validation alone, paused and resumed exactly, ended by the median rule."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Cost
from pipelines.data.source import ArraySource
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.task.contract import Splits
from pipelines.tuning.trial import CostOfModel, MedianRule, TooCostly, read_costs, train_when_free, trial, trial_policy
from tests.training.runs import checkpoint, rows
from tests.training.toy import ToyTask, experiment

pytestmark = pytest.mark.slow


class Poisoned(ArraySource):
    """A test split that must not be read."""

    def gather(self, numbers):
        raise AssertionError("the test split was read")


class PoisonedTask(ToyTask):
    def splits(self):
        found = super().splits()
        return Splits(found.train, found.validation, Poisoned(found.test.arrays, labels=found.test.labels, title="poisoned"))


def run(folder: Path, *, epochs=None, further=(), task=PoisonedTask, **changes):
    changes = {"monitor": {"tensorboard": False}, **changes}
    call = Call("toy/toy", task, quiet=True, policy=trial_policy({"train.epochs": 4}, "01", epochs=epochs, hooks=tuple(further)))
    return train(experiment(**changes), RunFolder(folder), call)


TRAIN = {"epochs": 4, "deterministic": True, "learning_rate": {"peak": 0.02, "schedule": "cosine"}, "ema": 0.9}


def test_a_trial_reads_no_test_split_saves_no_model_and_says_what_it_came_to(tmp_path):
    report = run(tmp_path, train=TRAIN)
    assert set(report["metrics"]) == {"validation/accuracy"}
    assert not (tmp_path / "model").exists() and not (tmp_path / "report" / "figures").exists()
    assert json.loads((tmp_path / "report" / "report.json").read_text())["metrics"] == report["metrics"]
    settings = experiment(train=TRAIN, monitor={"tensorboard": False})
    with pytest.raises(AssertionError, match="the test split was read"):
        train(settings, RunFolder(tmp_path / "run"), Call("toy/toy", PoisonedTask, quiet=True))


def test_a_paused_trial_goes_on_under_the_schedule_of_the_whole(tmp_path):
    run(tmp_path / "whole", train=TRAIN)
    for epochs in (1, 3):
        found = run(tmp_path / "paused", train=TRAIN, epochs=epochs)
        assert found["timing"]["epochs"] == epochs and "validation/accuracy" in found["metrics"]
        assert not RunFolder(tmp_path / "paused").finished
    run(tmp_path / "paused", train=TRAIN)
    (one, about), (other, about2) = checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "paused")
    assert about == about2
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert rows(tmp_path / "whole") == rows(tmp_path / "paused")
    metrics = [RunFolder(tmp_path / name).read_report()["metrics"] for name in ("whole", "paused")]
    assert metrics[0] == metrics[1]


def test_a_trial_waits_for_a_process_that_still_trains_in_its_folder(tmp_path, monkeypatch):
    """The search was killed, and a worker on another machine was not: that is no failure of the trial."""
    monkeypatch.setattr("pipelines.tuning.trial.LOCKED_SECONDS", 0.1)
    free = threading.Event()

    def train_there():
        with RunFolder(tmp_path).locked():
            begun.set()
            free.wait(60)

    begun, other = threading.Event(), threading.Thread(target=train_there)
    other.start()
    begun.wait(60)
    threading.Timer(0.5, free.set).start()
    call = Call("toy/toy", PoisonedTask, quiet=True, policy=trial_policy({}, "01"))
    report = train_when_free(experiment(monitor={"tensorboard": False}), RunFolder(tmp_path), call)
    assert free.is_set() and "validation/accuracy" in report["metrics"]
    other.join()


def curve(folder: Path, name: str, values) -> Path:
    path = folder / f"{name}.jsonl"
    lines = [json.dumps({"step": number, "epoch": number, "validation/accuracy": value}) for number, value in enumerate(values, 1)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_what_costs_more_than_the_limit_is_not_trained(tmp_path):
    file = tmp_path / "free.json"
    assert read_costs(file) == {}
    run(tmp_path / "free", train=TRAIN, further=(CostOfModel(Cost(measure="parameters"), file),))
    cost = read_costs(file)["cost"]
    assert cost > 0
    limited = CostOfModel(Cost(measure="parameters", limit=cost - 1), tmp_path / "limited.json")
    with pytest.raises(TooCostly, match=r"weights, and tune\.cost\.limit is"):
        run(tmp_path / "limited", train=TRAIN, further=(limited,))
    assert not (tmp_path / "limited" / "report").exists() and not rows(tmp_path / "limited")


def test_the_median_rule_ends_what_is_hopeless_and_leaves_the_rest(tmp_path):
    good = [curve(tmp_path, f"good{number}", [0.9, 1.1, 1.1, 1.1]) for number in range(3)]
    bad = [curve(tmp_path, f"bad{number}", [0.0, 0.01, 0.02, 0.03]) for number in range(3)]
    stopped = run(tmp_path / "stopped", train=TRAIN, further=[MedianRule("accuracy", "max", good)])
    assert stopped["timing"]["epochs"] < 4
    assert any("the median of 3 trials before it" in note for note in stopped["notes"])
    for name, peers in (("two", good[:2]), ("bad", bad)):  # two are too few to compare with
        assert run(tmp_path / name, train=TRAIN, further=[MedianRule("accuracy", "max", peers)])["timing"]["epochs"] == 4


def order(folder: Path, values: dict, **changes) -> dict:
    """A trial of the embedded digits, tiny."""
    text = """
task: vision.classification
data: {source: digits, limit: 200}
model: {name: cnn, widths: [4], hidden: 4}
train: {epochs: 1, devices: cpu}
evaluate: {bootstrap: 100}
monitor: {tensorboard: false}
"""
    (folder / "search.yaml").write_text(text)
    return {"experiment": str(folder / "search.yaml"), "folder": str(folder / "trial"), "name": "digits", "values": values, "title": "01",
            "objective": "accuracy", "direction": "max", "precision": "bfloat16", "epochs": None, "peers": [], **changes}


def test_a_precision_that_is_searched_is_the_trials_and_auto_is_the_searchs(tmp_path):
    for name, values, expected in (("own", {"train.precision": "float32"}, "float32"), ("auto", {}, "bfloat16")):
        (tmp_path / name).mkdir()
        trial(order(tmp_path / name, values))
        assert json.loads((tmp_path / name / "trial" / "environment.json").read_text())["precision"] == expected


def test_a_loss_that_is_logged_and_not_judged_can_be_the_objective(tmp_path):
    """It is that of the epoch whose weights are judged."""
    found = trial(order(tmp_path, {"train.epochs": 3, "train.keep": "last"}, objective="loss", direction="min"))
    losses = [row["validation/loss"] for row in rows(tmp_path / "trial") if "validation/loss" in row]
    assert len(losses) == 3 and found["value"] == losses[-1] == found["metrics"]["validation/loss"]["value"]
    with pytest.raises(ConfigError, match=r"tune.objective: 'los' is no metric of this task"):
        trial(order(tmp_path, {"train.epochs": 3, "train.keep": "last"}, objective="los"))
