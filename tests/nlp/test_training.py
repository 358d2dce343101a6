"""The promises of the foundation with texts, whose lengths differ and whose rows are a table: replicas, and killed and started again."""

import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from tests.finished_run import ROOT, environment

SETTINGS = ("nlp/quickstart", "train.epochs=3", "train.batch_size=24", "train.precision=float32", "train.keep=last",
            "evaluate.bootstrap=100",
            "model={name: cnn, width: 8, filters: 8, dropout: 0.0}", "tokens={name: words, least: 1}", "monitor.tensorboard=false",
            "train.optimizer={name: sgd}", "train.tables={optimizer: sgd}", "train.learning_rate={peak: 0.2}", "train.micro_batch_size=12",
            "train.checkpoint_seconds=0.05", "--quiet")


def command(folder, name, *more):
    return [sys.executable, "-m", "nlp.train", *SETTINGS, *more, "--runs", str(folder), "--name", name]


def weights(folder, name):
    import io

    import h5py

    with zipfile.ZipFile(folder / "nlp" / "quickstart" / name / "model" / "model.keras") as stored:
        found = {}
        with h5py.File(io.BytesIO(stored.read("model.weights.h5"))) as file:
            file.visititems(lambda path, item: found.update({path: np.asarray(item)}) if isinstance(item, h5py.Dataset) else None)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run on one device, never interrupted, deterministic."""
    folder = tmp_path_factory.mktemp("runs")
    subprocess.run(command(folder, "plain", "train.devices=1", "train.deterministic=true"), cwd=ROOT, env=environment(), check=True,
                   capture_output=True, timeout=300)
    return folder


def test_two_replicas_train_as_one(plain):
    subprocess.run(command(plain, "two", "train.devices=2"), cwd=ROOT, env=environment(), check=True, capture_output=True, timeout=300)
    one, two = weights(plain, "plain"), weights(plain, "two")
    assert one.keys() == two.keys() and len(one) > 5
    moved = max(np.abs(value).max() for value in one.values())
    assert moved > 0.1
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)


def test_killed_and_started_again_it_ends_the_same(plain):
    call = command(plain, "killed", "train.devices=1", "train.deterministic=true")
    process = subprocess.Popen(call, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = plain / "nlp" / "quickstart" / "killed" / "checkpoints" / "resume.npz"
    ended = time.monotonic() + 120
    while not state.exists() and process.poll() is None and time.monotonic() < ended:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state.exists() and not (state.parents[1] / "report" / "report.json").exists(), "killed before its end, after a checkpoint"
    subprocess.run(call, cwd=ROOT, env=environment(), check=True, capture_output=True, timeout=300)
    one, again = weights(plain, "plain"), weights(plain, "killed")
    for name, value in one.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)
