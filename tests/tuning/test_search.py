"""Searches through the command line, each in a process of its own: trials, kills, workers, failures, wrong calls."""

import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.finished_run import environment, quartet

pytestmark = pytest.mark.slow

EXPERIMENT = """\
# A search for tests.
task: vision.classification
data: {source: digits, validation: 0.1, test: 0.2}
model: {name: cnn, widths: [4], hidden: 8}
train: {epochs: 2, batch_size: 128, precision: float32, devices: cpu, deterministic: true, checkpoint_seconds: 0.2}
evaluate: {bootstrap: 100}
monitor: {samples: 0, tensorboard: false}
tune:
  trials: 5
  seeds: 0
  space:
    train.learning_rate.peak: {float: [1.0e-3, 3.0e-2], scale: log}
    model.hidden: {choice: [8, 16]}
"""


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "vision.tune", str(folder / "digits.yaml"), *arguments, "--runs", str(folder)]


def tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=300, check=False, env=environment())


def events(search: Path) -> list[dict]:
    path = search / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def outcome(search: Path) -> list[tuple]:
    """What must not depend on kills and workers: each trial's number, setting and metrics; and that none is lost and none twice."""
    starts = [event["trial"] for event in events(search) if event["event"] == "start"]
    ends = [event["trial"] for event in events(search) if event["event"] == "end"]
    assert sorted(starts) == sorted(ends) == list(range(1, len(starts) + 1))
    assert len(list((search / "trials").iterdir())) == len(starts)
    content = json.loads((search / "report" / "search.json").read_text())
    return [(trial["trial"], trial["values"], trial["value"], trial["metrics"]) for trial in content["trials"]] + [content["best"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("tune")
    (place / "digits.yaml").write_text(EXPERIMENT)
    return place


@pytest.fixture(scope="module")
def whole(folder) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A search that was never killed, with the best trained anew over two seeds and compared with the start."""
    done = tune(folder, "tune.seeds=2", "tune.compare=true")
    assert done.returncode == 0, done.stderr
    return folder / "vision" / "digits" / "search", done


def test_a_search_says_its_trials_its_best_and_what_several_seeds_make_of_it(whole, folder):
    search, done = whole
    content = json.loads((search / "report" / "search.json").read_text())
    assert len(content["trials"]) == 5 and all(trial["status"] == "completed" for trial in content["trials"])
    assert content["best"]["value"] == max(trial["value"] for trial in content["trials"])
    assert all(name.startswith("validation/") for trial in content["trials"] for name in trial["metrics"])
    assert "best of 5 trials: trial" in done.stdout and "trained anew over 2 seeds" in done.stdout
    assert "Against the experiment as it was, test/accuracy" in done.stdout and "5 of 5 trials done, best accuracy" in done.stderr
    assert len(list(csv.DictReader((search / "report" / "trials.csv").read_text().splitlines()))) == 5
    page = (search / "report" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 1 and "Against the experiment as it was" in page
    again = tune(folder, "tune.seeds=2", "tune.compare=true")
    assert again.returncode == 0 and again.stdout == done.stdout and again.stderr == ""


def test_best_yaml_is_taken_by_train_as_it_is(whole):
    search, _ = whole
    best = yaml.safe_load((search / "best.yaml").read_text())
    content = json.loads((search / "report" / "search.json").read_text())
    assert best["train"]["learning_rate"]["peak"] == content["best"]["values"]["train.learning_rate.peak"]
    assert best["model"]["hidden"] == content["best"]["values"]["model.hidden"] and "tune" not in best
    done = quartet("train", str(search / "best.yaml"), "--runs", str(search.parent / "again"), "--quiet")
    assert done.returncode == 0, done.stderr
    report = json.loads(next((search.parent / "again").rglob("report.json")).read_text())
    assert report["metrics"]["validation/accuracy"]["value"] == content["best"]["value"]  # deterministic


def test_killed_at_random_moments_it_has_the_same_trials_and_the_same_best(whole, folder):
    draw, search = random.Random(1), folder / "vision" / "digits" / "killed"
    for _ in range(3):
        before = len(events(search))
        process = subprocess.Popen(command(folder, "--name", "killed"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        limit = time.monotonic() + 120
        while len(events(search)) <= before and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 2.5))
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        time.sleep(0.3)
        assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _mentions(pid, str(search))]
    done = tune(folder, "--name", "killed")
    assert done.returncode == 0 and "going on:" in done.stderr, done.stderr
    assert outcome(search) == outcome(whole[0])


def _mentions(pid: str, text: str) -> bool:
    """Whether a process is one of that search's."""
    try:
        return text in Path(f"/proc/{pid}/cmdline").read_text() and "vision.tune" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def test_two_workers_come_to_the_same_and_a_signal_is_gone_on_from(whole, folder):
    search = folder / "vision" / "digits" / "two"
    process = subprocess.Popen(command(folder, "--name", "two", "--workers", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment())
    limit = time.monotonic() + 120
    while len(events(search)) < 4 and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 143 and "the same command goes on from here" in errors and "Traceback" not in errors
    done = tune(folder, "--name", "two", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert outcome(search) == outcome(whole[0])


def test_chief_and_workers_come_to_the_same(whole, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    search, processes = folder / "vision" / "digits" / "several", []
    for name in ("chief", "one", "two"):
        variables = {"KERASTUNER_ORACLE_IP": "127.0.0.1", "KERASTUNER_ORACLE_PORT": port, "KERASTUNER_TUNER_ID": name}
        processes.append(subprocess.Popen(command(folder, "--name", "several"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**environment(), **variables}))
    said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert outcome(search) == outcome(whole[0])
    assert sum(errors.count("trial ") for _, errors in said[1:]) == 5  # the workers had them all


def test_a_trial_that_fails_fails_alone_and_its_reason_is_kept(folder):
    space = "tune.space={train.learning_rate.peak: {choice: [0.01, 1.0e+30]}, model.hidden: {choice: [8, 1000000000]}}"
    done = tune(folder, "--name", "failing", space, "tune.algorithm=grid", "tune.trials=10", "train.clip.value=1000")
    assert done.returncode == 0, done.stderr
    content = json.loads((folder / "vision" / "digits" / "failing" / "report" / "search.json").read_text())
    by_values = {tuple(trial["values"].values()): trial for trial in content["trials"]}
    assert len(by_values) == 4 and content["best"]["values"] == {"train.learning_rate.peak": 0.01, "model.hidden": 8}
    assert "not finite" in by_values[1.0e30, 8]["reason"]
    assert all(by_values[rate, 1000000000]["status"] == "failed" for rate in (0.01, 1.0e30))
    assert "3 failed" in done.stderr and "failed" in done.stdout


def test_wrong_calls_do_nothing(whole, folder):
    wrong = tune(folder, "--name", "wrong", "tune.objective=acuracy")
    assert wrong.returncode == 2
    assert "tune.objective: 'acuracy' is no metric of this task; did you mean accuracy? (there are: accuracy," in wrong.stderr
    assert not (folder / "vision" / "digits" / "wrong" / "trials").exists()
    few = tune(folder, "--name", "few", "tune.space={model.hidden: {choice: [8, 16]}}")
    assert few.returncode == 2 and "5 trials, and the space holds only 2 different settings" in few.stderr
    none = quartet("tune", "vision/digits", "--runs", str(folder), "tune=null")
    assert none.returncode == 2 and "there is nothing to search" in none.stderr
    before = (whole[0] / "search.yaml").read_text()
    other = tune(folder, "--name", "search", "train.epochs=3")
    assert other.returncode == 2 and "train.epochs: 2 there, 3 now" in other.stderr and (whole[0] / "search.yaml").read_text() == before
