"""Toy runs for tests of the loop: train in a folder, be killed at a step, read what was written."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np

from pipelines.base.files import Background
from pipelines.monitoring.metrics_log import read_rows
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from tests.signals import send
from tests.training.toy import ToyTask, experiment

TIMES = ("time_s", "examples_per_second", "input_wait_fraction", "memory_bytes", "device_memory_bytes")


class Killed(BaseException):
    """Ends the process' work at once, as SIGKILL would: nothing is saved on the way out."""


class At(keras.callbacks.Callback):
    """Does something after some steps of the run; its being there holds K at 1."""

    def __init__(self, actions: dict[int, Any] | None = None):
        super().__init__()
        self._actions, self._epoch = actions or {}, 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        action = self._actions.get(self._epoch * self.params["steps"] + batch + 1)
        if action:
            action()


def kill() -> None:
    raise Killed


def interrupt() -> None:
    send(signal.SIGINT)


@contextmanager
def written_at_once() -> Iterator[None]:
    """Whatever is begun in the background is done before its caller goes on."""
    really = Background.start

    def start(self, work, after):
        done = threading.Event()

        def noted():
            try:
                work()
            finally:
                done.set()

        really(self, noted, after)
        assert done.wait(120)

    with mock.patch.object(Background, "start", start), mock.patch.object(Background, "busy", False):
        yield


def run(folder: Path, *, task=ToyTask, callbacks=(), fresh=False, quiet=True, **changes: Any) -> dict[str, Any]:
    """Trains the toy in `folder`, without TensorBoard unless asked; a checkpoint after every call, written before training goes on."""
    changes = {"monitor": {"tensorboard": False}, **changes}
    changes["train"] = {"checkpoint_seconds": 1e-9, "keep_state": True, **changes.get("train", {})}
    call = Call("toy/toy", task, fresh=fresh, quiet=quiet, callbacks=tuple(callbacks))
    with written_at_once():
        return train(experiment(**changes), RunFolder(folder), call)


def killed(folder: Path, steps: list[int], *, make=lambda: [], **changes: Any) -> dict[str, Any]:
    """The run, killed after each of `steps` and then let go to its end; `make` gives fresh callbacks to each process."""
    for step in steps:
        try:
            run(folder, callbacks=[*make(), At({step: kill})], **changes)
        except Killed:
            continue
        raise AssertionError(f"the run was over before step {step}")
    return run(folder, callbacks=[*make(), At()], **changes)


def whole(folder: Path, *, make=lambda: [], **changes: Any) -> dict[str, Any]:
    """The same run, never killed."""
    return run(folder, callbacks=[*make(), At()], **changes)


def checkpoint(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, about) of resume.npz, without what differs from run to run."""
    with np.load(folder / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
        values = dict(stored)
    about = json.loads(values.pop("about").tobytes())
    values.pop("carry/waited")
    return values, {name: about[name] for name in about if name not in ("seconds", "meter")}


def model_weights(folder: Path) -> list[np.ndarray]:
    return keras.models.load_model(folder / "model" / "model.keras", compile=False).get_weights()


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in read_rows(folder / "metrics.jsonl")]


def assert_same_outcome(one: Path, other: Path) -> None:
    """Checkpoint, hooks' state, model, log points and metrics of two runs are identical."""
    (arrays, about), (arrays2, about2) = checkpoint(one), checkpoint(other)
    assert arrays.keys() == arrays2.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], arrays2[name], err_msg=name)
    assert about == about2
    assert rows(one) == rows(other)
    for first, second in zip(model_weights(one), model_weights(other)):
        np.testing.assert_array_equal(first, second)
    first, second = (json.loads((folder / "report" / "report.json").read_text()) for folder in (one, other))
    assert first["metrics"] == second["metrics"]
    assert first["timing"]["best_epoch"] == second["timing"]["best_epoch"]
