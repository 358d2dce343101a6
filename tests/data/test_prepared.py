"""Data that were prepared: the same examples, facts and names as from the original, in all domains, and clear errors where they are not."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config import registry
from pipelines.config.load import load
from pipelines.data import shards
from pipelines.data.source import ArraySource
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import launch
from pipelines.task.prepared import prepare, splits_of

EXPERIMENTS = ("vision/digits", "nlp/quickstart", "speech/quickstart", "recsys/quickstart")


def task_of(config, *overrides):
    experiment = load(config, list(overrides)).experiment
    return registry.task_class(experiment.task)(experiment)


def images(folder: Path) -> Path:
    """Two classes of PNG files of several sizes; a name that is not ASCII."""
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "photos" / ("cat", "dög")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(rng.integers(0, 255, (8 + number % 3, 9, 3)).astype("uint8")).numpy())
    config = folder / "photos.yaml"
    config.write_text(f"task: vision.classification\ndata: {{source: folder, path: {folder / 'photos'}, image_size: 8}}\n"
                      "model: {name: cnn}\n", encoding="utf-8")
    return config


def assert_same_splits(one, other):
    assert json.dumps(one.facts, sort_keys=True, default=str) == json.dumps(other.facts, sort_keys=True, default=str)
    assert list(one.notes) == list(other.notes) and one.skipped == other.skipped
    for name in ("train", "validation", "test"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is None:
            continue
        assert len(first) == len(second) and first.fingerprint() == second.fingerprint() and first.spec == second.spec
        numbers = np.random.default_rng(1).permutation(len(first))[:40]
        theirs, ours = (source.gather(tf.constant(numbers, tf.int64)) for source in (first, second))
        for key in theirs:
            np.testing.assert_array_equal(theirs[key].numpy(), ours[key].numpy(), err_msg=f"{name} {key}")
        for number in numbers[:5]:
            assert first.name(int(number)) == second.name(int(number))
        for key in ("labels", "groups", "pieces", "lengths"):
            values = getattr(first, key)
            assert (values is None) == (getattr(second, key) is None)
            if values is not None:
                np.testing.assert_array_equal(np.asarray(values).astype(str), np.asarray(getattr(second, key)).astype(str))


@pytest.mark.parametrize("config", EXPERIMENTS)
def test_the_same_examples_and_facts(tmp_path, config):
    task = task_of(config)
    prepare(task, tmp_path / "ready")
    again = task_of(config, f"data.prepared={tmp_path / 'ready'}")
    assert_same_splits(task.splits(), splits_of(again))


def test_a_folder_of_images_is_not_looked_for_again(tmp_path):
    config = images(tmp_path)
    task = task_of(config)
    original = task.splits()
    prepare(task, tmp_path / "ready")
    again = task_of(config, f"data.prepared={tmp_path / 'ready'}", "model.widths=[8]")
    assert_same_splits(original, splits_of(again))
    shutil.rmtree(tmp_path / "photos")
    found = splits_of(task_of(config, f"data.prepared={tmp_path / 'ready'}"))
    assert found.train.gather(tf.constant([0], tf.int64))["image"].numpy()[0].startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"photos.*does not exist"):
        task_of(config)


@pytest.mark.slow(seconds=12)
def test_a_run_from_them_is_the_same_run(tmp_path):
    outcomes = []
    prepare(task_of("vision/digits"), tmp_path / "ready")
    for number, more in enumerate(([], [f"data.prepared={tmp_path / 'ready'}"])):
        loaded = load("vision/digits", ["train.epochs=2", "train.deterministic=true", "train.devices=cpu", "train.precision=float32",
                                        "evaluate.baseline=false", "monitor.tensorboard=false", *more])
        report = launch(loaded.experiment, RunFolder(tmp_path / f"run{number}"), "vision/digits", quiet=True)
        model = keras.models.load_model(tmp_path / f"run{number}" / "model" / "model.keras", compile=False)
        outcomes.append((report["metrics"], model.get_weights()))
    (metrics, weights), (others, same) = outcomes
    assert metrics == others
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_prepared_for_another_experiment_is_refused(tmp_path):
    prepare(task_of("vision/digits"), tmp_path / "ready")
    with pytest.raises(ConfigError, match=r"prepared for another experiment:\n  data.split_seed: 0 there, 3 now\nPrepare it anew"):
        splits_of(task_of("vision/digits", f"data.prepared={tmp_path / 'ready'}", "data.split_seed=3"))
    with pytest.raises(ConfigError, match="prepared for another experiment"):
        splits_of(task_of("nlp/quickstart", f"data.prepared={tmp_path / 'ready'}"))
    with pytest.raises(ConfigError, match="is there already"):
        prepare(task_of("vision/digits"), tmp_path / "ready")
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"has no prepared.json; name a folder that quartet prepare wrote"):
        splits_of(task_of("vision/digits", f"data.prepared={tmp_path / 'other'}"))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A source of free lengths in several shards, and the folder."""
    monkeypatch.setattr(shards, "EXAMPLES", 7)
    rng = np.random.default_rng(0)
    words = [f"word {number}".encode() * (number % 5) for number in range(30)]

    class Words(ArraySource):
        arrays = None

        def __init__(self):
            self.spec = {"text": tf.TensorSpec([], tf.string), "samples": tf.TensorSpec([None, 2], tf.int16),
                         "label": tf.TensorSpec([], tf.int64)}
            self.labels, self.groups = np.arange(30), np.array([f"g{number % 3}" for number in range(30)])
            self.waves = [rng.integers(-9, 9, (number % 4, 2)).astype("int16") for number in range(30)]

        def __len__(self):
            return 30

        def name(self, number):
            return f"made[{number}]"

        def fingerprint(self):
            return "f"

        def gather(self, numbers):
            def read(some):
                waves = [self.waves[number] for number in some]
                padded = np.zeros((len(some), max(map(len, waves)), 2), np.int16)
                for row, wave in zip(padded, waves):
                    row[:len(wave)] = wave
                return np.array([words[number] for number in some], object), padded, self.labels[some]

            text, samples, label = tf.numpy_function(read, [numbers], [tf.string, tf.int16, tf.int64])
            count = numbers.shape[0]
            return {"text": tf.ensure_shape(text, [count]), "samples": tf.ensure_shape(samples, [count, None, 2]),
                    "label": tf.ensure_shape(label, [count])}

    source = Words()
    stored = shards.Stored.model_validate_json(json.dumps(shards.write(source, tmp_path, "train")))
    return source, tmp_path, stored


def test_shards_are_read_by_number_in_graph(written):
    source, folder, stored = written
    read = shards.ShardSource(folder, stored, "train")
    assert len(stored.shards) == 5 and len(read) == 30
    numbers = tf.constant([29, 0, 7, 7, 13], tf.int64)
    theirs, ours = source.gather(numbers), tf.function(read.gather)(numbers)
    for key in theirs:
        np.testing.assert_array_equal(theirs[key].numpy(), ours[key].numpy())
    assert [read.name(number) for number in (0, 29)] == ["made[0]", "made[29]"]
    assert read.groups is not None and list(read.groups[:4]) == ["g0", "g1", "g2", "g0"]


def test_missing_and_damaged_shards_are_named(written):
    _, folder, stored = written
    path = folder / "train-00001.arrow"
    whole = path.read_bytes()
    at = whole.index(b"word 8")
    path.write_bytes(whole[:at] + b"W" + whole[at + 1:])
    read = shards.ShardSource(folder, stored, "train")
    assert read.gather(tf.constant([7], tf.int64))["text"].numpy()[0] == b"word 7word 7"
    with pytest.raises(DataError, match=r"train-00001.arrow: example 1 is not what was written; it is damaged: copy it again"):
        read.row(8)
    path.write_bytes(b"\0" * len(whole))
    with pytest.raises(DataError, match=r"train-00001.arrow: cannot be read"):
        shards.ShardSource(folder, stored, "train").row(8)
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"train-00001.arrow: [\d,]+ bytes, and [\d,]+ were written"):
        shards.ShardSource(folder, stored, "train")
    path.unlink()
    with pytest.raises(DataError, match=r"train-00001.arrow: a shard is missing; copy the folder again"):
        shards.ShardSource(folder, stored, "train")


def test_an_error_leaves_no_folder(tmp_path):
    config = images(tmp_path)
    task = task_of(config)
    splits = task.splits()
    Path(splits.train.name(3)).unlink()
    task.splits = lambda: splits
    with pytest.raises(DataError, match=r"\.png: cannot be read"):
        prepare(task, tmp_path / "ready")
    assert not [path for path in tmp_path.iterdir() if "ready" in path.name]
