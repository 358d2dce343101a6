"""Data that were prepared: the same examples, facts and names as from the original, in all domains, and clear errors where they are not."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config import registry
from pipelines.config.load import load
from pipelines.data import shard_writing, shards
from pipelines.data.cache import computation
from pipelines.data.source import ArraySource
from pipelines.data.stream import StreamSource
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import launch
from pipelines.stores.remote import OutputFolder
from pipelines.task.prepared import here, prepare, splits_of
from tests.data import prepared as tfds_data
from tests.speech.synthetic_recordings import class_folders

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


def trained(folder: Path, config: str, *more: str):
    """Metrics and weights of a short run in a folder of its own."""
    loaded = load(config, ["train.epochs=2", "train.deterministic=true", "train.devices=cpu", "train.precision=float32",
                           "evaluate.baseline=false", "monitor.tensorboard=false", *more])
    report = launch(loaded.experiment, RunFolder(folder), config, quiet=True)
    return report["metrics"], keras.models.load_model(folder / "model" / "model.keras", compile=False).get_weights()


def assert_same_run(one, other):
    assert one[0] == other[0]
    for ours, theirs in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow(seconds=6)
def test_a_run_from_decoded_images_is_the_same_run(tmp_path):
    config = str(images(tmp_path))
    settings = ["model.widths=[8]", "train.batch_size=8", "augment.flip=true"]
    original = trained(tmp_path / "original", config, *settings)
    said: list[str] = []
    index = prepare(task_of(config), tmp_path / "ready", decoded=True, say=said.append)
    assert index.decoded and index.settings["augment.random_resized_crop"] is None
    line, = said
    assert re.fullmatch(r"decoded      [\d.]+ kB, about [\d.]+ x the examples as they are stored \([\d.]+ kB\)", line)
    shutil.rmtree(tmp_path / "photos")
    ready = [f"data.prepared={tmp_path / 'ready'}", "data.cache=disk", f"data.cache_folder={tmp_path / 'cache'}"]
    assert_same_run(original, trained(tmp_path / "again", config, *settings, *ready))
    assert not (tmp_path / "cache").exists()  # read from the shards, not copied once more


def test_decoded_images_are_as_judged_and_other_settings_of_decoding_are_refused(tmp_path):
    config = images(tmp_path)
    task = task_of(config)
    splits = task.splits()
    prepare(task, tmp_path / "ready", decoded=True)
    again = splits_of(task_of(config, f"data.prepared={tmp_path / 'ready'}"))
    judge = type(task)(task.experiment, splits.facts)
    for name in ("train", "validation", "test"):
        source, decoded = getattr(splits, name), getattr(again, name)
        assert decoded.spec["image"] == tf.TensorSpec([8, 8, 3], tf.uint8) and decoded.fingerprint() == source.fingerprint()
        number = len(source) - 1
        raw, stored = ({key: value[0] for key, value in one.gather(tf.constant([number], tf.int64)).items()} for one in (source, decoded))
        for key, value in judge.input.decode(raw).items():
            np.testing.assert_array_equal(value.numpy(), stored[key].numpy())
            np.testing.assert_array_equal(judge.input.decode(stored)[key].numpy(), stored[key].numpy())
    # what another run compares its inputs by
    assert computation(again.train, judge.input.decode) == computation(splits.train, judge.input.decode)
    ready = f"data.prepared={tmp_path / 'ready'}"
    splits_of(task_of(config, ready, "augment.flip=true"))
    with pytest.raises(ConfigError, match=r"data.image_size: 8 there, 16 now"):
        splits_of(task_of(config, ready, "data.image_size=16"))
    with pytest.raises(ConfigError, match=r"augment.random_resized_crop: null there, \[0.5, 1.0\] now"):
        splits_of(task_of(config, ready, "augment.random_resized_crop=[0.5,1]"))


def test_what_cannot_be_stored_decoded_is_refused(tmp_path, monkeypatch):
    config = images(tmp_path)
    with pytest.raises(ConfigError, match=r"--decoded: augment.random_resized_crop: \[0.5, 1.0\] decodes each example anew in every epoch"):
        prepare(task_of(config, "augment.random_resized_crop=[0.5,1]"), tmp_path / "ready", decoded=True)
    with pytest.raises(ConfigError, match=r"--decoded: nlp.classification has no files to decode; leave it out"):
        prepare(task_of("nlp/quickstart"), tmp_path / "ready", decoded=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2000))
    with pytest.raises(ConfigError, match=r"take 4.7 kB decoded, and 2.0 kB are free at .*; leave --decoded out \(about [\d.]+ kB\)"):
        prepare(task_of(config), tmp_path / "ready", decoded=True)
    assert not [path for path in tmp_path.iterdir() if "ready" in path.name]


def test_decoded_recordings_are_those_that_were_stored(tmp_path):
    class_folders(tmp_path / "sounds", {"go": 12, "stop": 12}, rate=16_000, suffix=".flac")
    config = tmp_path / "sounds.yaml"
    config.write_text("task: speech.classification\nmodel: {name: ds_cnn, width: 8, depth: 1}\nfrontend: {mels: 16}\n"
                      f"data: {{source: folder, path: {tmp_path / 'sounds'}, rate: 8000, seconds: 0.5, test: 0.2, validation: 0.2}}\n",
                      encoding="utf-8")
    task, said = task_of(str(config)), list[str]()
    original = task.splits()
    index = prepare(task, tmp_path / "ready", decoded=True, say=said.append)
    assert said == ["decoded      as without --decoded: what is stored is decoded in any case"]
    assert index.decoded and index.splits["train"].entries["samples"].dtype == "int16"
    assert_same_splits(original, splits_of(task_of(str(config), f"data.prepared={tmp_path / 'ready'}")))


def test_what_was_prepared_for_another_experiment_is_refused(tmp_path):
    prepare(task_of("vision/digits"), tmp_path / "ready")
    with pytest.raises(ConfigError, match=r"prepared for another experiment:\n  data.split_seed: 0 there, 3 now\nPrepare it anew"):
        splits_of(task_of("vision/digits", f"data.prepared={tmp_path / 'ready'}", "data.split_seed=3"))
    with pytest.raises(ConfigError, match="prepared for another experiment"):
        splits_of(task_of("nlp/quickstart", f"data.prepared={tmp_path / 'ready'}"))
    with pytest.raises(ConfigError, match="is there already"):
        prepare(task_of("vision/digits"), tmp_path / "ready")
    with pytest.raises(ConfigError, match=r"test_prepared.py has no prepared.json"):
        splits_of(task_of("vision/digits", f"data.prepared={__file__}"))
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"has no prepared.json; name a folder that quartet prepare wrote"):
        splits_of(task_of("vision/digits", f"data.prepared={tmp_path / 'other'}"))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A source of free lengths in several shards, and the folder."""
    monkeypatch.setattr(shard_writing, "EXAMPLES", 7)
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

    source, folder = Words(), OutputFolder(tmp_path)
    pieces = shard_writing.pieces(source, "train")
    for piece in pieces:
        shard_writing.write(source, piece, folder)
    return source, tmp_path, shard_writing.write_beside(source, "train", folder, pieces)


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
    path = folder / "train-000000007-000000014.arrow"
    whole = path.read_bytes()
    at = whole.index(b"word 8")
    path.write_bytes(whole[:at] + b"W" + whole[at + 1:])
    read = shards.ShardSource(folder, stored, "train")
    assert read.gather(tf.constant([7], tf.int64))["text"].numpy()[0] == b"word 7word 7"
    with pytest.raises(DataError, match=r"000000014.arrow: example 1 is not what was written; it is damaged: copy it again"):
        read.row(8)
    path.write_bytes(b"\0" * len(whole))
    with pytest.raises(DataError, match=r"train-000000007-000000014.arrow: cannot be read"):
        shards.ShardSource(folder, stored, "train").row(8)
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"train-000000007-000000014.arrow: [\d,]+ bytes, and [\d,]+ were written"):
        shards.ShardSource(folder, stored, "train")
    path.unlink()
    with pytest.raises(DataError, match=r"train-000000007-000000014.arrow: a shard is missing; copy the folder again"):
        shards.ShardSource(folder, stored, "train")


class Stopped(Exception):
    """In place of a kill."""


def stopping(after: int):
    """Writes so many pieces, and stops."""

    def write(work, pieces):
        yield from here(work, pieces[:after])
        raise Stopped

    return write


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_was_interrupted_goes_on_at_its_shard_and_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "EXAMPLES", 400)
    task, ready = task_of("vision/digits"), tmp_path / "ready"
    prepare(task, tmp_path / "whole")
    with pytest.raises(Stopped):
        prepare(task, ready, write=stopping(2))
    with pytest.raises(ConfigError, match=r"ready is not finished; give the same quartet prepare command again"):
        splits_of(task_of("vision/digits", f"data.prepared={ready}"))
    with pytest.raises(ConfigError, match=r"begun for another experiment, and is not finished:\n  data.split_seed: 0 there, 3 now\nRemove"):
        prepare(task_of("vision/digits", "data.split_seed=3"), ready)
    first, second = sorted(ready.glob("train-*.arrow"))
    second.unlink()
    before, said, seen = first.stat().st_mtime_ns, [], []
    prepare(task, ready, lambda done, of: seen.append((done, of)), say=said.append)
    assert said == [f"resuming     1 of {len(list(ready.glob('*.arrow')))} parts are there"] and seen[-1] == (1797, 1797)
    assert first.stat().st_mtime_ns == before and contents(ready) == contents(tmp_path / "whole")
    with pytest.raises(ConfigError, match=r"ready: is there already; remove it, or name another folder"):
        prepare(task, ready)


def test_an_error_names_its_file_and_what_was_repaired_begins_anew(tmp_path):
    config = images(tmp_path)
    task = task_of(config)
    splits = task.splits()
    broken = Path(splits.train.name(3))
    image = broken.read_bytes()
    broken.unlink()
    task.splits = lambda: splits
    with pytest.raises(DataError, match=rf"{broken.name}: cannot be read"):
        prepare(task, tmp_path / "ready")
    assert not (tmp_path / "ready" / "prepared.json").exists()
    broken.write_bytes(image + b"more")
    said: list[str] = []
    prepare(task_of(config), tmp_path / "ready", say=said.append)
    assert said == ["begins anew  the data have changed since a part of them was written"]
    assert not (tmp_path / "ready" / "unfinished.json").exists()


def test_a_piece_larger_than_was_guessed_becomes_several_shards(written, monkeypatch):
    source, folder, _ = written
    piece, = (one for one in shard_writing.pieces(source, "train") if one.first == 7)
    monkeypatch.setattr(shard_writing, "BYTES", 60)
    (folder / piece.file).unlink()
    shard_writing.write(source, piece, OutputFolder(folder))
    names = [path.name for path in folder.glob("*.arrow")]
    several = shard_writing.there(piece, names)
    assert len(several) > 1 and (several[0].first, several[-1].last) == (7, 14)
    assert shard_writing.there(piece, [name for name in names if name != several[1].file]) == []
    pieces = shard_writing.pieces(source, "train")
    read = shards.ShardSource(folder, shard_writing.write_beside(source, "train", OutputFolder(folder), pieces), "train")
    assert [read.name(number) for number in range(30)] == [f"made[{number}]" for number in range(30)]
    assert read.values(13, "label") == 13


def test_a_stream_is_read_by_number_once_it_is_prepared(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "EXAMPLES", 17)  # less than two of its files of 12
    folder, config = tfds_data.prepare(tmp_path / "data", shards=5), tmp_path / "streamed.yaml"
    config.write_text(f"task: vision.classification\ndata: {{source: tfds, name: made, data_dir: {folder}, streaming: true, image_size: 8, "
                      "validation: 0.2, test: test}\nmodel: {name: cnn}\n")
    task = task_of(str(config))
    streamed = task.splits().train
    assert isinstance(streamed, StreamSource) and len(streamed) == 48
    with pytest.raises(Stopped):
        prepare(task, tmp_path / "ready", write=stopping(2))
    index = prepare(task, tmp_path / "ready")
    assert [shard.examples for shard in index.splits["train"].shards] == [12, 12, 12, 12]
    found = splits_of(task_of(str(config), f"data.prepared={tmp_path / 'ready'}", "loss.class_weights=balanced"))
    assert isinstance(found.train, shards.ShardSource) and len(found.train) == 48
    stored = [{name: value.numpy() for name, value in example.items()} for example in streamed.dataset(None)]
    read = found.train.gather(tf.range(48, dtype=tf.int64))
    assert read["image"].numpy().tolist() == [example["image"] for example in stored]
    assert found.facts["class_counts"] == np.bincount([example["label"] for example in stored]).tolist()
    assert not any("streamed" in note for note in found.notes) and any("streamed" in note for note in task.splits().notes)
    assert found.train.name(47) == streamed.name(47)
