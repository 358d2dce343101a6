"""Several seeds: a run each, a joint report, and resuming with the seed that is not finished."""

import json
import shutil

import pytest

from tests.finished_run import quartet

pytestmark = pytest.mark.slow

CALL = ("train", "vision/digits", "seeds=2", "train.epochs=1", "train.seed=5", "train.precision=float32", "train.devices=cpu",
        "train.deterministic=true", "monitor.tensorboard=false", "evaluate.bootstrap=100", "evaluate.baseline=false",
        "--name", "two", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    done = quartet(*CALL, "--runs", str(folder))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def report(folder, name):
    return json.loads((folder / "vision/digits" / name / "report/report.json").read_text())


def test_each_seed_is_a_run_and_the_report_has_mean_and_spread(runs):
    folder, said = runs
    one, other, joint = report(folder, "two-seed5"), report(folder, "two-seed6"), report(folder, "two")
    assert one["settings"]["train"]["seed"] == 5 and other["settings"]["train"]["seed"] == 6 and one["settings"]["seeds"] == 1
    values = [found["metrics"]["test/accuracy"]["value"] for found in (one, other)]
    assert values[0] != values[1]
    assert joint["metrics"]["test/accuracy"]["value"] == pytest.approx(sum(values) / 2)
    std = abs(values[0] - values[1]) / 2 ** 0.5
    assert joint["spread"]["test/accuracy"] == {"mean": pytest.approx(sum(values) / 2), "std": pytest.approx(std), "n": 2}
    assert [seed["run"] for seed in joint["seeds"]] == ["two-seed5", "two-seed6"]
    assert "mean of 2 seeds, spread" in said and "predict" in said and "two-seed5" in said


def test_an_interrupted_command_goes_on_with_the_unfinished_seed(runs, tmp_path):
    folder, _ = runs
    copied = tmp_path / "runs"
    shutil.copytree(folder, copied)
    place = copied / "vision/digits"
    for name in ("two/report", "two-seed6"):
        shutil.rmtree(place / name)
    listed = json.loads(quartet("runs", "--runs", str(copied), "--match", "digits/two", "--json").stdout)
    assert {one["name"]: one["progress"] for one in listed}["two"] == "1 of 2 seeds done"
    before = (place / "two-seed5/report/report.json").stat().st_mtime_ns
    done = quartet(*CALL, "--runs", str(copied))
    assert done.returncode == 0, done.stderr
    assert (place / "two-seed5/report/report.json").stat().st_mtime_ns == before
    # trained alone in its process, the second seed is what it was as the second of its process
    assert report(copied, "two-seed6")["metrics"] == report(folder, "two-seed6")["metrics"]
    assert report(copied, "two")["spread"] == report(folder, "two")["spread"]


def test_a_joint_run_names_the_runs_that_have_models(runs):
    folder, _ = runs
    done = quartet("export", "two", "--runs", str(folder))
    assert done.returncode == 2 and "two-seed5 and two-seed6" in done.stderr
