"""Checkpoints written while training goes on: what is in them, how many at a time, and who waits for them."""

import json
import threading

import numpy as np
import pytest

from pipelines.base.errors import Interrupted
from pipelines.base.files import write_whole
from pipelines.runs import run as runs
from pipelines.runs.folder import RunFolder
from pipelines.training import state
from pipelines.training.embedding_tables import all_variables
from tests.training.runs import At, checkpoint, interrupt
from tests.training.toy import TableToyTask, ToyTask, experiment

pytestmark = pytest.mark.slow(seconds=12)


class Disk:
    """A disk on which the first checkpoint takes until `release`."""

    def __init__(self, monkeypatch):
        self.released, self.begun, self.at_once, self.most, self.steps = threading.Event(), threading.Event(), 0, 0, []
        monkeypatch.setattr(state, "write_whole", self.write)

    def write(self, path, content):
        if path.name == "resume.npz":
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.begun.set()
            assert self.released.wait(60)
        write_whole(path, content)
        if path.name == "resume.npz":
            self.steps.append(checkpoint(path.parent.parent)[1]["step"])
            self.at_once -= 1


def train(folder, task, actions):
    call = runs.Call("toy/toy", task, quiet=True, callbacks=(At(actions),))
    settings = {"checkpoint_seconds": 1e-9, "keep_state": True, "tables": {"optimizer": "adagrad"}}
    return runs.train(experiment(train=settings, monitor={"tensorboard": False}), RunFolder(folder), call)


@pytest.mark.parametrize("task", [ToyTask, TableToyTask])
def test_training_goes_on_and_the_checkpoint_is_of_its_step(tmp_path, monkeypatch, task):
    disk, seen = Disk(monkeypatch), {}

    class Watched(task):
        def model(self):
            seen["model"] = super().model()
            return seen["model"]

    def note():
        seen["weights"] = [np.array(variable.value) for variable in all_variables(seen["model"])]

    def release():
        assert disk.begun.wait(60) and disk.at_once == 1 and not (tmp_path / "checkpoints" / "resume.npz").exists()
        seen["changed"] = [np.array(variable.value) for variable in all_variables(seen["model"])]
        disk.released.set()
        while not disk.steps:  # the first: whole now, and of the step at which it was begun
            pass
        seen["stored"], seen["about"] = checkpoint(tmp_path)

    train(tmp_path, Watched, {1: note, 8: release})
    assert seen["about"]["step"] == 1 and disk.most == 1 and disk.steps[-1] == 15
    stored = [value for name, value in sorted(seen["stored"].items()) if name.startswith("weights/")]
    for one, other in zip(stored, seen["weights"], strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((one != other).any() for one, other in zip(stored, seen["changed"]))
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["timing"]["steps"] == 15


def test_an_interrupted_run_waits_until_its_checkpoint_is_written(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)

    def stop():
        assert disk.begun.wait(60)
        threading.Timer(0.3, disk.released.set).start()
        interrupt()

    with pytest.raises(Interrupted):
        train(tmp_path, ToyTask, {6: stop})
    assert disk.steps == [1, 6] and disk.most == 1 and checkpoint(tmp_path)[1]["step"] == 6


def test_what_ends_the_writing_ends_the_run_at_the_next_stop(tmp_path, monkeypatch):
    def fail(path, content):
        raise MemoryError("no room for a copy")

    monkeypatch.setattr(state, "write_whole", fail)
    with pytest.raises(MemoryError, match="no room for a copy"):
        train(tmp_path, ToyTask, {})
