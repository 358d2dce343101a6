"""Runs, searches and data at s3://: what is killed on one machine ends on another as if it never was; then it is used from there."""

import json

import numpy as np
import pytest

from extensions.cluster.tests.ray_nodes import extra
from tests import processes
from tests.finished_run import quartet, run
from tests.tuning.test_search import EXPERIMENT, outcome

SETTINGS = ("vision/digits", "train.epochs=40", "train.precision=float32", "train.devices=cpu", "train.deterministic=true",
            "train.checkpoint_seconds=0.2", "train.keep_state=true", "monitor.tensorboard=false", "evaluate.baseline=false",
            "evaluate.worst=0", "--name", "run")
PREFIX = "runs/vision/digits/run"


def rows(content):
    times = ("time_s", "examples_per_second", "input_wait_fraction", "memory_bytes", "device_memory_bytes")
    return [{name: value for name, value in json.loads(line).items() if name not in times} for line in content.splitlines()]


def weights(path):
    import keras

    return keras.models.load_model(path, compile=False).get_weights()


@pytest.mark.slow(seconds=40)
def test_killed_on_one_machine_it_ends_on_another_bit_identical(store, tmp_path, monkeypatch):
    box = store.objects["box"]
    started = processes.start("-m", "quartet", "train", *SETTINGS, "--runs", "s3://box/runs", "--quiet")
    store.after = lambda key: started.kill() if key.endswith("resume.npz") else None
    assert started.wait() == -9
    store.after = lambda key: None
    assert f"{PREFIX}/checkpoints/resume.npz" in box and f"{PREFIX}/report/report.json" not in box
    (listed,) = json.loads(quartet("runs", "--runs", "s3://box/runs", "--json").stdout)
    assert listed["state"] in ("running", "interrupted") and listed["bytes"] > 0

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    resumed = quartet("train", *SETTINGS, "--runs", "s3://box/runs")
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming at step" in resumed.stderr + resumed.stdout and "s3://box/runs/vision/digits/run" in resumed.stdout
    whole = quartet("train", *SETTINGS, "--runs", str(tmp_path / "runs"), "--quiet")
    assert whole.returncode == 0, whole.stderr

    ours, model = tmp_path / "runs" / "vision" / "digits" / "run", tmp_path / "model.keras"
    model.write_bytes(box[f"{PREFIX}/model/model.keras"])
    assert all(np.array_equal(one, other) for one, other in zip(weights(model), weights(ours / "model" / "model.keras"), strict=True))
    assert rows(box[f"{PREFIX}/metrics.jsonl"]) == rows((ours / "metrics.jsonl").read_bytes())
    again = quartet("train", *SETTINGS, "--runs", "s3://box/runs")  # finished: nothing to do, and nothing is written
    assert again.returncode == 0 and "test accuracy" in again.stdout


@pytest.mark.slow(seconds=15)
def test_a_run_in_a_store_answers_and_is_judged_from_there(store, tmp_path):
    from PIL import Image

    box = store.objects["box"]
    box |= {f"runs/vision/digits/small/{file.relative_to(run()).as_posix()}": file.read_bytes()
            for file in run().rglob("*") if file.is_file() and not file.name.startswith(".")}
    for label in ("0", "1"):
        for number in range(2):
            Image.fromarray(np.full((8, 8), 60 * number, np.uint8)).save(tmp_path / "one.png")
            box[f"photos/{label}/{number}.png"] = (tmp_path / "one.png").read_bytes()
    done = quartet("predict", "digits/small", "s3://box/photos", "--runs", "s3://box/runs", "--output", "s3://box/answers.jsonl")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in box["answers.jsonl"].splitlines()]
    names = ("0/0.png", "0/1.png", "1/0.png", "1/1.png")
    assert sorted(answer["input"] for answer in answers) == [f"s3://box/photos/{name}" for name in names]
    again = quartet("predict", "digits/small", "s3://box/photos", "--runs", "s3://box/runs", "--output", "s3://box/answers.jsonl")
    assert again.returncode == 2 and "s3://box/answers.jsonl is there already" in again.stderr
    judged = quartet("evaluate", "s3://box/runs/vision/digits/small", "--data", "s3://box/photos")
    assert judged.returncode == 0, judged.stderr
    assert any(key.startswith("runs/vision/digits/small/report/") and key.endswith("report.json") and key.count("/") == 6 for key in box)
    missing = quartet("report", "digits/none", "--runs", "s3://box/runs")
    assert missing.returncode == 2 and "there are vision/digits/small" in missing.stderr


@pytest.mark.slow(seconds=25)
def test_a_search_killed_on_one_machine_has_the_same_trials_on_another(store, tmp_path, monkeypatch):
    box, prefix = store.objects["box"], "runs/vision/digits/search"
    (tmp_path / "digits.yaml").write_text(EXPERIMENT)
    call = ("tune", str(tmp_path / "digits.yaml"), "tune.trials=4", "--name", "search", "--runs")
    started = processes.start("-m", "quartet", *call, "s3://box/runs")
    store.after = lambda key: started.kill() if key == f"{prefix}/journal.jsonl" and b'"end"' in box[key] else None
    assert started.wait() == -9, started.printed()
    store.after = lambda key: None
    assert f"{prefix}/report/search.json" not in box
    first = [line for line in box[f"{prefix}/journal.jsonl"].splitlines() if b'"end"' in line]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    resumed = quartet(*call, "s3://box/runs")
    assert resumed.returncode == 0, resumed.stderr
    assert f"resuming: {len(first)} trial" in resumed.stderr and f" train s3://box/{prefix}/best.yaml --name" in resumed.stdout
    assert quartet(*call, str(tmp_path / "runs")).returncode == 0
    for key in [key for key in box if key.startswith(f"{prefix}/")]:
        file = tmp_path / "there" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(box[key])
    assert outcome(tmp_path / "there" / prefix) == outcome(tmp_path / "runs" / "vision" / "digits" / "search")
    listed = json.loads(quartet("runs", "--runs", "s3://box/runs", "--json").stdout)
    assert [one["state"] for one in listed] == ["finished"] * 4
    best = quartet("check", f"s3://box/{prefix}/best.yaml", "--output", str(tmp_path / "check.json"))
    assert best.returncode == 0, best.stderr


@extra
@pytest.mark.slow(seconds=30)
def test_predictions_on_ray_go_from_a_store_into_a_store(store, tmp_path):
    from PIL import Image

    box = store.objects["box"]
    box |= {f"runs/vision/digits/small/{file.relative_to(run()).as_posix()}": file.read_bytes()
            for file in run().rglob("*") if file.is_file() and not file.name.startswith(".")}
    for number in range(1100):  # two parts
        if number < 2:
            Image.fromarray(np.full((8, 8), 60 * number, np.uint8)).save(tmp_path / f"{number}.png")
        box[f"photos/{number:04d}.png"] = (tmp_path / f"{number % 2}.png").read_bytes()
    call = ("predict", "digits/small", "s3://box/photos", "--runs", "s3://box/runs", "--output", "s3://box/answers", "--ray")
    done = quartet(*call, anew=True)
    assert done.returncode == 0 and "1,100 answered" in done.stderr and "2 parts in s3://box/answers" in done.stderr, done.stderr
    first, second = sorted(key for key in box if key.startswith("answers/part-"))
    answers = [json.loads(line) for line in (box[first] + box[second]).splitlines()]
    assert [answer["input"] for answer in answers] == [f"s3://box/photos/{number:04d}.png" for number in range(1100)]
    before = box.pop(second)
    again = quartet(*call, anew=True)
    assert "76 answered" in again.stderr and "1 of them from before" in again.stderr, again.stderr
    assert box[second] == before
    other = quartet(*call, "--top", "2", anew=True)
    assert other.returncode == 2 and "s3://box/answers has the answers of another call (top differ)" in other.stderr, other.stderr


def test_what_a_store_cannot_do_is_refused_before_any_work(store):
    done = quartet("train", "vision/digits", "--runs", "s3://none/runs")
    assert done.returncode in (1, 2) and "s3://none: there is no such bucket" in done.stderr and "Traceback" not in done.stderr
