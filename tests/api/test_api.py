"""quartet from Python: light to import, resumed to the bit, asked with arrays, and a guest in somebody else's process."""

import doctest
import importlib
import random
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import quartet
from pipelines.commands import main
from tests.finished_run import ROOT, environment
from tests.signals import send
from vision.data.sources import digits

pytestmark = pytest.mark.slow

FAST = {"train.epochs": 2, "train.precision": "float32", "train.deterministic": True, "monitor.tensorboard": False,
        "evaluate.bootstrap": 100, "evaluate.baseline": False}
HEAVY = {"tensorflow", "keras", "pandas", "numpy", "pydantic", "yaml", "rich", "typer", "pyarrow", "sklearn", "matplotlib", "IPython"}


@pytest.fixture(scope="module")
def data():
    """400 digits: 300 to train on, 100 to judge by."""
    source = digits()
    images, labels = source.arrays["image"][:400], source.labels[:400]
    return {"train": (images[:300], labels[:300]), "test": (images[300:], labels[300:])}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(data, runs):
    return quartet.train("vision/digits", FAST, data=data, runs=runs, name="whole", quiet=True)


def weights(run: quartet.Run) -> list[np.ndarray]:
    return [np.asarray(one) for one in run.model.weights]


def test_importing_it_is_quick_and_imports_nothing_heavy():
    code = f"import sys, time; began = time.process_time(); import quartet; print(time.process_time() - began, {HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment())
    seconds, modules = done.stdout.split(maxsplit=1)
    assert modules.strip() == "set()"
    assert float(seconds) < 2
    assert set(quartet.__all__) <= set(dir(quartet)) and all(getattr(quartet, name) for name in quartet.__all__)


class Interrupt(keras.callbacks.Callback):
    """Sends what a notebook's stop button sends, after the first epoch."""

    def on_epoch_end(self, epoch, logs=None):
        send(signal.SIGINT)


def test_an_interrupted_run_is_resumed_to_the_bit_by_the_command_line(run, data, runs):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(quartet.Interrupted, match="resumes from here"):
        quartet.train("vision/digits", FAST, data=data, runs=runs, name="cut", quiet=True, callbacks=[Interrupt()])
    assert signal.getsignal(signal.SIGINT) is before
    cut = quartet.load("vision/digits/cut", runs=runs)
    assert cut.state == "interrupted" and "interrupted" in repr(cut) and "interrupted" in cut._repr_html_()
    with pytest.raises(quartet.ConfigError, match="was interrupted"):
        cut.predict(data["test"][0])
    done = CliRunner().invoke(main.app, ["train", str(cut.path / "experiment.yaml"), "--quiet"])
    assert done.exit_code == 0, done.output
    assert cut.state == "finished" and cut.metrics == run.metrics
    assert all(np.array_equal(one, other) for one, other in zip(weights(cut), weights(run), strict=True))


def test_a_run_is_asked_with_arrays_files_and_bytes(run, data, tmp_path):
    images, labels = data["test"]
    found = run.predict(images, probabilities=True, top=2)
    right = np.mean([one["label"] == str(label) for one, label in zip(found, labels)])
    assert right == pytest.approx(run.metrics["test/accuracy"])
    assert all(sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-5) and len(one["top"]) == 2 for one in found)
    file = tmp_path / "a.png"
    Image.fromarray(images[0].squeeze()).save(file)
    (by_array,), by_bytes = run.predict(images[:1]), run.predict(file.read_bytes())
    by_file = run.predict([file, str(tmp_path / "none.png")])
    assert by_file[0]["confidence"] == pytest.approx(by_array["confidence"]) == pytest.approx(by_bytes[0]["confidence"])
    assert by_file[1]["error"] and by_file[1]["input"].endswith("none.png")
    with pytest.raises(quartet.DataError, match="no input"):
        run.predict([])


def test_a_refused_call_names_what_python_passes(run, runs, data):
    with pytest.raises(quartet.ConfigError) as failed:
        quartet.train("vision/digits", {**FAST, "train.epochs": 3}, data=data, runs=runs, name="whole")
    assert "name=NEW" in str(failed.value) and "fresh=True" in str(failed.value) and "--" not in str(failed.value)


def test_a_run_says_what_it_came_to_and_is_judged_again(run, data, runs):
    assert run.experiment.train.epochs == 2 and run.history[-1]["epoch"] == 2
    assert run.report["metrics"]["test/accuracy"]["value"] == run.metrics["test/accuracy"]
    assert "<iframe" in run._repr_html_() and "data:image/png" in run._repr_html_()
    assert [one.summary["state"] for one in quartet.runs(runs, match="whole")] == ["finished"]
    assert len(pd.DataFrame([one.summary for one in quartet.runs(runs)])) >= 1
    again = run.evaluate(data=data["test"], settings={"evaluate.bootstrap": 100})
    assert {name.partition("/")[2]: value for name, value in again.metrics.items()}["accuracy"] == run.metrics["test/accuracy"]
    assert again.path.parent == run.path / "report"


def test_a_run_in_another_thread_leaves_the_process_as_it_was(runs, data):
    keras.config.set_dtype_policy("mixed_bfloat16")
    random.seed(1)
    np.random.seed(1)
    expected = random.Random(1).random(), np.random.RandomState(1).rand()
    found: list[quartet.Run] = []
    settings = {**FAST, "train.epochs": 1, "train.seed": 5}
    thread = threading.Thread(target=lambda: found.append(
        quartet.train("vision/digits", settings, data=data, runs=runs, name="guest", quiet=True)))
    thread.start()
    thread.join()
    assert found and found[0].state == "finished"
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert (random.random(), np.random.rand()) == expected
    from tensorflow.python.framework import config

    assert not config.is_op_determinism_enabled()


def test_devices_that_the_process_can_no_longer_take_are_refused(run, runs):
    assert run.state == "finished"  # so that TensorFlow has begun with one processor
    with pytest.raises(quartet.ConfigError, match="restart the kernel"):
        quartet.train("vision/digits", {**FAST, "train.devices": 2}, runs=runs, name="two", quiet=True)


def test_threads_are_answered_in_turn(run, data):
    from quartet.process import tensorflow

    answers: list[list[dict]] = []
    threads = [threading.Thread(target=lambda: answers.append(run.predict(data["test"][0][:2]))) for _ in range(2)]
    with tensorflow(training=True):  # a training, for which both wait
        for thread in threads:
            thread.start()
        threads[0].join(0.2)
    for thread in threads:
        thread.join()
    assert len(answers) == 2 and answers[0] == answers[1]


def test_a_second_training_is_refused_at_once(runs):
    from quartet.process import tensorflow

    failures: list[BaseException] = []

    def other() -> None:
        try:
            quartet.train("vision/digits", FAST, runs=runs, name="other", quiet=True)
        except quartet.QuartetError as error:
            failures.append(error)

    with tensorflow(training=True):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread" in str(failures[0])


@pytest.mark.parametrize(("call", "message"), [
    (lambda: quartet.train("vision/digit"), "did you mean vision/digits"),
    (lambda: quartet.train("vision/digits", {"train.epoch": 3}), "did you mean train.epochs"),
    (lambda: quartet.train("vision/digits", "train.epochs=3"), "is no mapping"),
    (lambda: quartet.train({"task": "vision.classification"}), "data"),
    (lambda: quartet.train(), "name an experiment"),
    (lambda: quartet.new({"user": [1, 2], "item": [3, 4]}), "domain"),
    (lambda: quartet.load("nowhere"), "there is no such run"),
    (lambda: quartet.runs("nowhere"), "there is no such folder"),
    (lambda: quartet.tune("vision/digits"), "tune.space"),
])
def test_wrong_calls_raise_what_the_command_line_says(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(quartet.ConfigError) as failed:
        call()
    assert message in str(failed.value)


@pytest.mark.parametrize("module", ["quartet.training", "quartet.drafts", "quartet.run", "pipelines.data.memory"])
def test_the_examples_in_docstrings_run(module, runs, monkeypatch):
    monkeypatch.chdir(runs)
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


@pytest.mark.parametrize(("experiment", "given"), [
    ("nlp/table", (["good film", "bad film", "so good", "so bad", "fine"] * 8, ["pos", "neg", "pos", "neg", "pos"] * 8)),
    ("recsys/table", {"user": [0, 1, 2, 3, 4, 5] * 8, "item": list(range(16)) * 3, "time": list(range(48))}),
    ("speech/quickstart", (quartet.Recordings([np.sin(np.arange(4000) * pitch / 9).astype(np.float32) for pitch in range(1, 25)], 8000),
                           ["low", "high"] * 12)),
])
def test_every_domain_reads_data_in_memory(experiment, given, runs):
    found = quartet.check(experiment, data=given, runs=runs)
    assert found.splits and "in-memory" in found.place
    assert sum(split["examples"] for split in found.splits.values()) >= 20


def test_what_new_asks_for_is_named_as_a_call_has_it(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,name\n" + "".join(f"words {number},other{number}\n" for number in range(60)))
    for given, expected in (({}, 'name it with columns["label"]'), ({"columns": {"label": "none there"}}, 'columns["label"]: '),
                            ({"task": "ranking"}, "task: nlp has no task")):
        with pytest.raises((quartet.ConfigError, quartet.DataError)) as failed:
            quartet.new(table, "nlp", **given)
        assert expected in str(failed.value) and "--" not in str(failed.value)


def test_a_draft_for_texts_in_memory_knows_their_columns_whatever_they_hold(runs):
    texts = ["what a good film", "a bad film", "so good", "really bad", "good fun", "bad, bad, bad"] * 20  # of docs/python.md
    data = quartet.new((texts, ["positive", "negative"] * 60), runs=runs, encoder="none").experiment.data
    assert (data.text_key, data.label_key) == ("text", "label")


def test_a_draft_is_saved_and_trains(data, runs, tmp_path):
    draft = quartet.new(data["train"], runs=runs)
    assert draft.experiment.data.source == "npz" and "# " in draft.yaml
    assert draft.save(tmp_path / "mine.yaml").read_text() == str(draft)
    with pytest.raises(quartet.ConfigError, match="exists already"):
        draft.save(tmp_path / "mine.yaml")
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(callback.model, "stop_training", True))
    found = quartet.train(draft, {"train.precision": "float32", "monitor.tensorboard": False, "evaluate.baseline": False}, runs=runs,
                          name="draft", callbacks=[callback], quiet=True)
    assert found.report["timing"]["epochs"] == 1 and found.path == runs / "vision" / "in-memory" / "draft"
