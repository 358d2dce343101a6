"""A tracked run: what is sent, and that a tracker which fails, hangs or ends costs a run a warning and nothing else."""

import json
import os
import time

import pytest

from extensions.tracking import follow, record
from extensions.tracking.beside import Tracking, require_extra
from extensions.tracking.mlflow_run import plain
from extensions.tracking.trackers import Order
from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict
from tests.processes import ROOT
from tests.waiting import until


class Notebook:
    """A tracker that writes down what it is sent, and can be down."""

    def __init__(self):
        self.known, self.batches, self.ends, self.down = [], [], [], False
        self.id, self.place = "abc", "a notebook"

    def open(self, order, settings, known):
        self.known.append((known, settings["train.epochs"]))
        return self

    def log(self, rows):
        if self.down:
            raise RuntimeError("no route\nto host")
        self.batches.append([(row["step"], record.of_epoch(row)) for row in rows])

    def finish(self, *given):
        self.ends.append(given)


@pytest.fixture
def notebook(monkeypatch):
    found = Notebook()
    monkeypatch.setattr(follow, "open_tracker", found.open)
    return found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "experiment.yaml").write_text("task: vision.classification\ntrain: {epochs: 7}\ntune: {trials: 3}\n")
    return tmp_path


def write(folder, *rows):
    with open(folder / "metrics.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def line(step, **more):
    return {"step": step, "epoch": step / 10, "time_s": 1.0, "train/loss": 0.5, **more}


def follower(folder, said):
    return follow.Follower(Order("mlflow", str(folder), "vision/digits", "default"), lambda *words: said.append(words))


def test_lines_go_once_and_together(folder, notebook):
    said = []
    write(folder, line(5), line(10), {"step": 10, "epoch": 1, "epoch/loss": 0.4})
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 15, "epo')  # being written
    sending = follower(folder, said)
    assert sending.send() and sending.send()
    assert notebook.batches == [[(5, False), (10, False), (10, True)]] and notebook.known == [(None, 7)]
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('ch": 1.5}\n')
    assert sending.finish("finished", {"test/accuracy": 0.9}, {})
    assert notebook.batches[1:] == [[(15, False)]] and notebook.ends == [("finished", {"test/accuracy": 0.9}, {}, 15)]
    assert said == [("note", "a notebook")]


def test_a_resumed_run_continues_the_tracked_one(folder, notebook):
    write(folder, line(5), line(10))
    assert follower(folder, []).send()
    write(folder, {"step": 10, "epoch": 1, "epoch/loss": 0.4}, line(15))  # the file begins anew at the step of the checkpoint
    assert follower(folder, []).send()
    assert notebook.known == [(None, 7), ("abc", 7)] and notebook.batches == [[(5, False), (10, False)], [(10, True), (15, False)]]
    (folder / record.FILE).write_text("{")
    said = []
    assert follower(folder, said).send()
    assert notebook.known[2] == (None, 7) and "begins anew" in said[0][1]


def test_a_tracker_that_was_down_gets_all(folder, notebook):
    said = []
    write(folder, line(5))
    sending = follower(folder, said)
    notebook.down = True
    assert not sending.send() and not sending.send() and not sending.finish("finished", {}, {})
    notebook.down = False
    write(folder, line(10))
    assert sending.send()
    assert notebook.batches == [[(5, False), (10, False)]]
    assert [kind for kind, _ in said] == ["note", "warning"] and said[1][1] == "no route to host"


def stub(tmp_path, monkeypatch, code):
    """A package `mlflow` that the process beside the training finds first."""
    (tmp_path / "stub" / "mlflow").mkdir(parents=True)
    (tmp_path / "stub" / "mlflow" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'stub'}{os.pathsep}{ROOT}")


def test_a_tracker_that_hangs_is_left_after_a_bounded_time(folder, tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, f"import pathlib, time\npathlib.Path({str(tmp_path / 'hangs')!r}).touch()\ntime.sleep(1000)\n")
    notes, warnings = [], []
    write(folder, line(5))
    tracking = Tracking(Order("mlflow", str(folder), "vision/digits", "default", seconds=1.0), notes.append, warnings.append)
    until((tmp_path / "hangs").exists)
    before = time.thread_time()
    for _ in range(1000):  # as often as a training of a quarter of an hour
        tracking.look()
    assert time.thread_time() - before < 1.0  # a thousandth of it, on a slow machine
    assert not warnings
    began = time.monotonic()
    tracking.end("finished", {"test/accuracy": 0.5})
    assert time.monotonic() - began < 60
    assert notes == [] and len(warnings) == 1 and "within 1 s" in warnings[0] and "metrics.jsonl" in warnings[0]
    tracking.end("finished")
    assert len(warnings) == 1


def test_a_process_that_dies_is_one_warning(folder, tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, "import os\nos._exit(3)\n")
    warnings = []
    tracking = Tracking(Order("mlflow", str(folder), "vision/digits", "default"), warnings.append, warnings.append)
    until(lambda: tracking.look() or warnings)
    tracking.look()
    tracking.end("failed")
    assert len(warnings) == 1 and "its process has ended" in warnings[0]


def test_a_process_whose_training_was_killed_ends_by_itself(folder, notebook):
    """Its stdin ends; what is left is sent, and the run counts as interrupted."""
    write(folder, line(5))
    commands = iter([None, {"end": "interrupted"}])
    said = []
    assert follow.follow(Order("mlflow", str(folder), "vision/digits", "default", seconds=3600), lambda wait: next(commands),
                         lambda *words: said.append(words)) == 0
    assert notebook.ends[0][0] == "interrupted" and said[-1] == ("done", "")


def test_names_and_settings(monkeypatch):
    assert plain("test/recall@10") == "test/recall_at_10" and plain("test/f1 (größte)") == "test/f1 _gr__te_"
    quick = {"task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "cnn"}}
    with pytest.raises(ConfigError, match=r"monitor\.track_server.*password"):
        from_dict({**quick, "monitor": {"track": "mlflow", "track_server": "https://me:secret@mlflow.example.org"}})
    monkeypatch.setattr("extensions.tracking.beside.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"keras-quartet\[wandb\]"):
        require_extra("wandb")
