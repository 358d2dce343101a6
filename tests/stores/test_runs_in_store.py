"""Runs and data at s3://: a training killed on one machine ends on another as one that never was; then it is used from there."""

import json

import numpy as np
import pytest

from tests import processes
from tests.finished_run import quartet, run

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


def test_what_a_store_cannot_do_is_refused_before_any_work(store):
    for call, why in ((("tune", "vision/digits", "--runs", "s3://box/runs"), "a search is kept on a disk"),
                      (("train", "vision/digits", "--runs", "s3://none/runs"), "s3://none: there is no such bucket")):
        done = quartet(*call)
        assert done.returncode in (1, 2) and why in done.stderr and "Traceback" not in done.stderr
