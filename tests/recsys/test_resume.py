"""A recommendation run that is interrupted and goes on ends with the very numbers of one that was not; tables of ids included."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.waiting import until_or_over

pytestmark = pytest.mark.slow
START = "import recsys.models.store as store; store.SPARSE_FROM = 10; from pipelines.commands.main import train_main; train_main('recsys')"
SETTINGS = (
    "train.epochs=6",
    "train.deterministic=true",
    "train.precision=float32",
    "monitor.tensorboard=false",
    "evaluate.bootstrap=100",
    "evaluate.baseline=false",
    "loss={name: sampled, negatives: 30}",
    "train.devices=cpu",
    "train.keep_state=true",
)


def start(runs: Path, anew: bool = False) -> processes.Process:
    return processes.start("-c", START, "recsys/quickstart", *SETTINGS, "--runs", runs, "--name", "run", anew=anew)


def test_interrupted_it_ends_as_if_nothing_had_happened(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first, second = start(whole, anew=True), start(parts)
    log = parts / "recsys" / "quickstart" / "run" / "metrics.jsonl"
    until_or_over(lambda: log.exists() and len(log.read_bytes().splitlines()) >= 15, second)
    second.send_signal(signal.SIGTERM)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 128 + signal.SIGTERM, errors
    again = start(parts)
    for process in (first, again):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    found = []
    for runs in (whole, parts):
        run = runs / "recsys" / "quickstart" / "run"
        with np.load(run / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
            state = {name: stored[name] for name in stored.files if name.partition("/")[0] in ("weights", "optimizer")}
        report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))
        found.append((state, report["metrics"]))
    assert found[0][0] and set(found[0][0]) == set(found[1][0])
    for name, value in found[0][0].items():
        assert np.array_equal(value, found[1][0][name]), name
    assert found[0][1] == found[1][1]
