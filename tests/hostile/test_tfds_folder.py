"""Prepared TFDS folders of strangers: nothing in them is imported, followed or believed."""

import json
import os
import shutil
import sys

import pytest

from pipelines.base.errors import DataError
from pipelines.data.tfds import TfdsSource, prepared
from tests import processes
from tests.data.prepared import prepare
from tests.hostile.files import endless, fifo, foreign_features, payload

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("good"), count=4, shards=1, name="toy")


@pytest.fixture
def folder(good, tmp_path, monkeypatch):
    """A copy of a good data set's version folder, in `dataset/` of the current folder, which is first on the path."""
    shutil.copytree(good, tmp_path / "dataset")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "dataset" / "toy" / "1.0.0"


def train_in(folder, *settings, anew=False):
    """`python -m vision.train` in a folder; `anew` as in tests/processes.py."""
    return processes.run("-m", "vision.train", "data.source=tfds", *settings, "train.epochs=1", cwd=folder, anew=anew)


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(words):
    with pytest.raises(DataError, match=words) as caught:
        TfdsSource("toy", "train", data_dir="dataset")
    return str(caught.value)


@pytest.mark.parametrize("way", foreign_features(""))
def test_a_class_of_another_module_is_refused_and_not_imported(folder, way):
    ran = payload(folder.parents[1])
    (folder / "features.json").write_text(json.dumps(foreign_features("dataset.payload.Image")[way]))
    assert "'dataset.payload.Image'" in refused(r"features.json: \w+ is ")
    assert not ran.exists() and "dataset.payload" not in sys.modules


def test_features_within_dataset_info_are_looked_at_too(folder):
    ran = payload(folder.parents[1])
    change(folder / "dataset_info.json", features=foreign_features("dataset.payload.Image")["nested"])
    refused(r"dataset_info.json: pythonClassName is 'dataset.payload.Image'")
    assert not ran.exists()


@pytest.mark.parametrize("name", ["tensorflow_datasets_evil.Image", "tensorflow_datasets.core.features..x", "antigravity.Image",
                                  "tensorflow_datasets.core.features/../x.y", "tensorflow_datasets.scripts.cli.main.Image"])
def test_names_that_only_resemble_tfds_are_refused(folder, name):
    (folder / "features.json").write_text(json.dumps(foreign_features(name)["nested"]))
    refused("TFDS would import")


def test_training_refuses_it_before_anything_runs(folder):
    ran = payload(folder.parents[1])
    (folder / "features.json").write_text(json.dumps(foreign_features("dataset.payload.Image")["nested"]))
    done = train_in(folder.parents[2], "data.name=toy", "data.data_dir=dataset")
    assert done.returncode == 1 and "dataset.payload.Image" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not ran.exists()


def test_a_folder_that_is_named_like_a_library_is_not_that_library(good, tmp_path):
    """Unpacked as `tensorflow_datasets/` where training starts, a data set would be imported in the library's place."""
    shutil.copytree(good, tmp_path / "tensorflow_datasets")
    (tmp_path / "tensorflow_datasets" / "__init__.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    done = train_in(tmp_path, "data.name=no_such", "data.data_dir=tensorflow_datasets", anew=True)
    assert "no_such is not prepared" in done.stderr, done.stderr
    assert not (tmp_path / "ran").exists()


def test_files_that_lead_elsewhere_or_are_none(folder, tmp_path):
    secret = tmp_path / "elsewhere.txt"
    secret.write_text("x")
    labels = folder / "label.labels.txt"
    text = labels.read_text()
    labels.unlink()
    labels.symlink_to(secret)
    refused("label.labels.txt leads out of the data set's folder")
    labels.unlink()
    endless(labels)
    refused("label.labels.txt")
    labels.unlink()
    fifo(labels)
    refused("label.labels.txt is a named pipe")
    labels.unlink()
    labels.write_text(text)
    shard = folder / "toy-train.tfrecord-00000-of-00001"
    beside = folder.parent / "kept"
    os.replace(shard, beside)
    shard.symlink_to(beside)  # within the data set, a link is a file
    assert len(TfdsSource("toy", "train", data_dir="dataset")) == 4


def test_shards_elsewhere_and_templates_that_are_none(folder, tmp_path):
    info = folder / "dataset_info.json"
    whole = json.loads(info.read_text())
    shutil.copy(folder / "toy-train.tfrecord-00000-of-00001", tmp_path / "out-00000-of-00001")
    train = next(split for split in whole["splits"] if split["name"] == "train")
    for template, words in (("../../../out-{SHARD_X_OF_Y}", "leads out"), (f"{tmp_path}/out-{{SHARD_X_OF_Y}}", "leads out"),
                            ("{SPLIT:>99999999999}", "no pattern"), ("{SPLIT.__class__}", "no pattern")):
        train["filepathTemplate"] = template
        change(info, splits=whole["splits"])
        refused(words)


def test_numbers_that_the_files_cannot_hold(folder):
    info, features = folder / "dataset_info.json", folder / "features.json"
    whole, shape = json.loads(info.read_text()), json.loads(features.read_text())
    train = next(split for split in whole["splits"] if split["name"] == "train")
    train["shardLengths"] = ["1000000000000"]
    change(info, splits=whole["splits"])
    refused("cannot hold the 1,000,000,000,000 examples")
    train["shardLengths"] = ["4"]
    change(info, splits=whole["splits"])
    shape["featuresDict"]["features"]["label"]["classLabel"]["numClasses"] = "1000000000000"
    change(features, **shape)
    refused("more than 10,000,000 classes")
    shape["featuresDict"]["features"]["label"]["classLabel"]["numClasses"] = "2"
    weight = shape["featuresDict"]["features"]["more"]["featuresDict"]["features"]["weight"]
    weight["tensor"]["shape"] = {"dimensions": ["1000000000000"]}
    change(features, **shape)
    refused("states 1,000,000,000,000 values for each more/weight")


def test_names_of_absurd_size(folder):
    os.truncate(folder / "label.labels.txt", (256 << 20) + 1)
    refused("more than 268,435,456 bytes, more than the names of classes ever need")


def test_json_of_absurd_size_or_depth(folder):
    features = folder / "features.json"
    text = features.read_text()
    deep = "nested deeper than 100"
    for content, words in (("[" * 100_000, deep), ("[" * 500 + "]" * 500, deep), ("{", "not readable JSON"),
                           (" " * (17 << 20) + text, "more than 16,777,216 bytes")):
        features.write_text(content)
        refused(words)
    features.write_text('{"type": "tensorflow_datasets.core.features.class_label_feature.ClassLabel", '
                        '"content": {"names_file": "/etc/passwd"}}')
    refused("names another file, '/etc/passwd'")
    features.write_text(text)
    assert prepared("toy", "dataset").name == "toy"
