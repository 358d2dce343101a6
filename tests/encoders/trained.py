"""Trains with tiny encoders, as a process of its own: python -m tests.encoders.trained '[{"folder": ..., "text": ..., "kill": 4}, ...]'.

Each is a run in a folder, with a checkpoint of every step. With `kill` the process ends there by SIGKILL.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from tests.training.runs import At, written_at_once

LEAN = """
monitor: {tensorboard: false}
evaluate: {baseline: false, bootstrap: 100, worst: 0}
"""
SETTINGS = ("train.keep_state=true", "train.checkpoint_seconds=1e-9", "train.precision=float32")


def run(folder: str, text: str, kill: int | None = None) -> None:
    experiment = from_text(text + LEAN, SETTINGS, check_paths=False).experiment
    at = At({kill: lambda: os.kill(os.getpid(), signal.SIGKILL)} if kill else {})
    with written_at_once():
        train(experiment, RunFolder(Path(folder)), Call("tiny", task_class(experiment.task), quiet=True, callbacks=(at,)))


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        run(**each)
