"""Texts, whose lengths differ and whose rows are a table, on several replicas."""

import zipfile

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow

SETTINGS = ("nlp/quickstart", "train.epochs=3", "train.batch_size=24", "train.precision=float32", "train.keep=last",
            "evaluate.bootstrap=100", "evaluate.baseline=false",
            "model={name: cnn, width: 8, filters: 8, dropout: 0.0}", "tokens={name: words, least: 1}", "monitor.tensorboard=false",
            "train.optimizer={name: sgd}", "train.tables={optimizer: sgd}", "train.learning_rate={peak: 0.2}", "train.micro_batch_size=12",
            "--quiet")


def command(folder, name, *more):
    return ["-m", "nlp.train", *SETTINGS, *more, "--runs", str(folder), "--name", name]


def weights(folder, name):
    import io

    import h5py

    with zipfile.ZipFile(folder / "nlp" / "quickstart" / name / "model" / "model.keras") as stored:
        found = {}
        with h5py.File(io.BytesIO(stored.read("model.weights.h5"))) as file:
            file.visititems(lambda path, item: found.update({path: np.asarray(item)}) if isinstance(item, h5py.Dataset) else None)
    return found


def test_two_replicas_train_as_one(tmp_path):
    for name, devices in (("one", 1), ("two", 2)):
        processes.run(*command(tmp_path, name, f"train.devices={devices}"), check=True)
    one, two = weights(tmp_path, "one"), weights(tmp_path, "two")
    assert one.keys() == two.keys() and len(one) > 5
    moved = max(np.abs(value).max() for value in one.values())
    assert moved > 0.1
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)
