"""Promise 2: what is killed and started again ends bit-identical. A matrix over the toy in this process, where a kill is an exception that
nothing saves at; and the command line with SIGKILL at random moments and with signals, each run in a process."""

import itertools
import json
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks.kill_resume import command, measure
from pipelines.training import other_run
from tests import processes
from tests.finished_run import quartet
from tests.training.runs import assert_same_outcome, killed, whole
from tests.training.toy import TableToyTask, other_network
from tests.waiting import until_or_over

pytestmark = pytest.mark.slow(seconds=60)


def test_killed_twice_it_ends_bit_identical(tmp_path):
    """The run that is never killed is a Python of its own, with hashes in an order of their own."""
    number = itertools.count()

    def start(runs: Path, epochs: int) -> processes.Process:
        return processes.start(*command(runs, epochs)[1:], "model.widths=[4, 4]", "model.hidden=8", anew=next(number) == 0)

    assert measure(2, 40, 1, tmp_path, start) == []


def start(runs: Path) -> processes.Process:
    settings = ["train.epochs=15", "train.precision=float32", "monitor.tensorboard=false", "evaluate.worst=0", "evaluate.baseline=false"]
    return processes.start("-m", "vision.train", "vision/digits", *settings, "--runs", runs, "--name", "run")


def listed(runs: Path) -> tuple[str, str]:
    """(state, progress) of the only run, as `quartet runs` has them."""
    (one,) = json.loads(quartet("runs", "--runs", str(runs), "--json").stdout)
    return one["state"], one["progress"]


def lines(run: Path) -> int:
    log = run / "metrics.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def test_signals_save_and_end_with_their_status_and_the_same_command_goes_on(tmp_path):
    run = tmp_path / "vision" / "digits" / "run"
    steps = []
    for number in (signal.SIGTERM, signal.SIGINT):
        before = lines(run)
        process = start(tmp_path)
        until_or_over(lambda before=before: lines(run) >= before + 12, process)
        assert listed(tmp_path)[0] == "running"
        sent = time.monotonic()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number, errors
        assert time.monotonic() - sent < 30
        assert "the same command resumes from here" in errors
        assert "Traceback" not in errors
        state, progress = listed(tmp_path)
        assert state == "interrupted" and progress.startswith("step ") and "of 315" in progress
        with np.load(run / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
            steps.append(json.loads(stored["about"].tobytes())["step"])
    process = start(tmp_path)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert 0 < steps[0] < steps[1]
    assert f"resuming at step {steps[1]:,}" in output + errors
    assert json.loads((run / "report" / "report.json").read_text())["metrics"]["test/accuracy"]["value"] > 0.95


class Counting(keras.callbacks.Callback):
    """A person's own, with a state."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append([epoch, sorted(logs)])

    def get_state(self):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]


# name -> (settings, steps of 5 an epoch after which a process is killed); test_still.py has one with frozen layers
CASES = {
    "all hooks": ({
        "model": "norm dropout penalty", "label_smoothing": 0.1, "monitor": {"tensorboard": True, "samples": 2},
        "train": {"epochs": 4, "ema": 0.8, "log_every": 2, "optimizer": {"name": "adamw", "weight_decay": 0.05},
                  "clip": {"global_norm": 1.0}, "learning_rate": {"peak": 0.005, "warmup": 0.2}, "accumulation": 2,
                  "freeze": {"layers": ["first"], "epochs": 2}, "early_stopping": {"patience": 2}}},
        [2, 11, 20]),  # in the first epoch, after unfreezing, after the last step
    "float16": ({"train": {"precision": "float16", "devices": "cpu"}}, [4]),
    "table": ({"task": TableToyTask, "model": "table",
               "train": {"devices": "cpu", "deterministic": True, "tables": {"optimizer": "adam"}}}, [8]),
    "distilled": ({"train": {"teacher": {"run": "."}}}, [7]),
}


@pytest.mark.parametrize("name", CASES)
def test_killed_it_ends_as_one_never_killed(tmp_path, monkeypatch, name):
    if name == "distilled":  # of no run: the same network with other weights
        monkeypatch.setattr(other_run, "named", lambda *_: {"train.teacher.run": Path("none")})
        monkeypatch.setattr(other_run, "checksums", lambda _: {})
        monkeypatch.setattr(other_run, "model_of", lambda setting, folder, task, train: other_network(task))
    made: list[Counting] = []

    def make():
        made.append(Counting())
        return made[-1:]

    changes, steps = CASES[name]
    whole(tmp_path / "whole", make=make, **changes)
    killed(tmp_path / "killed", steps, make=make, **changes)
    assert_same_outcome(tmp_path / "whole", tmp_path / "killed")
    assert made[0].seen == made[-1].seen and len(made[0].seen) >= 3
