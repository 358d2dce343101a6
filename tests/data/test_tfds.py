"""Prepared TFDS data by number and as a stream."""

import time

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.records import RecordSource, tfds_source
from pipelines.data.stream import StreamSource
from pipelines.data.tfds import TfdsSource, list_prepared
from tests import processes
from tests.data.prepared import need, prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("tfds"), shards=4)


@pytest.fixture(scope="module")
def record_dir(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("records"), shards=2, file_format="array_record")


def numbers(images):
    return [int(tf.io.decode_png(image)[0, 0, 0]) for image in images.numpy()]


@pytest.mark.parametrize("way", [TfdsSource, RecordSource])
def test_fields_labels_groups_and_names(way, data_dir, record_dir):
    source = way("made", "train", data_dir=data_dir if way is TfdsSource else record_dir, label="label", group="who")
    assert len(source) == 60 and source.name(3) == "made/train[3]"
    assert {key: (spec.shape.as_list(), spec.dtype) for key, spec in source.spec.items()} == {
        "image": ([], tf.string), "label": ([], tf.int64), "who": ([], tf.string), "more/weight": ([], tf.float32),
        "more/tags": ([None], tf.int64)}
    batch = source.gather(tf.constant([5, 59, 5], tf.int64))
    found = numbers(batch["image"])
    assert found[0] == found[2] != found[1]
    assert batch["label"].numpy().tolist() == [number % 2 for number in found] == source.labels[[5, 59, 5]].tolist()
    assert batch["more/weight"].numpy().tolist() == [number / 2 for number in found]
    assert batch["more/tags"].to_list() == [list(range(number % 4)) for number in found]
    assert source.groups[[5, 59]].tolist() == [f"p{number % 7}" for number in found[:2]]
    assert source.class_names("label") == ["b", "a"] and source.class_names("who") is None and source.shape("image") == (8, 8, 3)
    assert sorted(numbers(source.gather(tf.range(60, dtype=tf.int64))["image"])) == list(range(60))


def test_columns_come_in_one_pass_over_the_records(record_dir, monkeypatch):
    monkeypatch.setattr("pipelines.data.records.CHUNK", 16)
    source, read, really = RecordSource("made", "train", data_dir=record_dir), [], RecordSource._read
    monkeypatch.setattr(RecordSource, "_read", lambda self, numbers: read.append(numbers.tolist()) or really(self, numbers))
    found = source.columns(["who", "label"], counted="more/tags")
    assert read == [list(range(0, 16)), list(range(16, 32)), list(range(32, 48)), list(range(48, 60))]
    whole = source.gather(tf.range(60, dtype=tf.int64))
    for name in ("who", "label"):
        assert found[name].numpy().tolist() == whole[name].numpy().tolist()
    assert found["more/tags"].numpy().tolist() == [len(tags) for tags in whole["more/tags"].to_list()]
    read.clear()
    RecordSource("made", "train", data_dir=record_dir, label="label", group="who")
    assert sum(map(len, read)) == 60 + 1  # and one that shows the shapes


@pytest.mark.parametrize("way", [TfdsSource, RecordSource])
def test_examples_one_by_one_through_tf_data(way, data_dir, record_dir):
    fields = {"tags": "more/tags", "image": "image"}
    source = way("made", "train[50%:]", data_dir=data_dir if way is TfdsSource else record_dir, fields=fields)
    one = tf.data.Dataset.range(len(source)).map(lambda number: {key: value[0] for key, value in source.gather(number[None]).items()})
    examples = list(one)
    assert len(examples) == 30 and all(len(each["tags"]) == numbers(each["image"][None])[0] % 4 for each in examples)


def test_the_way_follows_the_files(data_dir, record_dir, tmp_path):
    assert isinstance(tfds_source("made", "train", data_dir=data_dir), TfdsSource)
    assert isinstance(tfds_source("made", "train", data_dir=record_dir), RecordSource)


def test_fingerprints_tell_data_apart(data_dir):
    prints = {TfdsSource("made", split, data_dir=data_dir, fields=fields).fingerprint()
              for split in ("train", "test", "train[:50%]") for fields in ({"x": "image"}, {"x": "image", "y": "label"})}
    assert len(prints) == 6
    assert TfdsSource("made", "test", data_dir=data_dir).fingerprint() == TfdsSource("made", "test", data_dir=data_dir).fingerprint()


@pytest.mark.parametrize(("name", "split", "options", "message"), [
    ("maid", "train", {}, "data.name: maid is not prepared in .*; there are made; did you mean made\\? Prepare it with `tfds build maid`"),
    ("made:2.0.0", "train", {}, "data.name: made:2.0.0 is not prepared in"),
    ("made", "trian", {}, "made/1.0.0 has no split 'trian'; there are test and train; did you mean train\\?"),
    ("made", "train[:x%]", {}, "'train\\[:x%\\]' is not a split in TFDS notation"),
    ("made", "train", {"fields": {"image": "picture"}}, "has no feature 'picture'; there are image, label, more/tags, more/weight and who"),
    ("made", "train", {"group": "wo"}, "has no feature 'wo'; there are .*; did you mean who\\?"),
    ("made", "train", {"memory_limit": 100}, "split train takes 0.00 GB, more than the 0.00 GB .* prepare the data set as array_record"),
])
def test_what_is_not_there(data_dir, name, split, options, message):
    with pytest.raises(DataError, match=message):
        TfdsSource(name, split, data_dir=data_dir, **options)


def test_nothing_prepared(tmp_path):
    with pytest.raises(DataError, match=r"nothing is prepared there. Prepare it with `tfds build cifar10`"):
        TfdsSource("cifar10", "train", data_dir=tmp_path)
    assert list_prepared(tmp_path) == []


def test_missing_and_broken_files_are_named(tmp_path):
    folder = prepare(tmp_path, count=12, shards=2) / "made" / "1.0.0"
    shard = folder / "made-train.tfrecord-00001-of-00002"
    content = shard.read_bytes()
    shard.write_bytes(content[:-30])
    with pytest.raises(DataError, match=r"made/1.0.0: a file of split train in .* cannot be read: .*; prepare the data set again"):
        TfdsSource("made", "train", data_dir=tmp_path)
    shard.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.raises(DataError, match="cannot be read: corrupted record"):
        TfdsSource("made", "train", data_dir=tmp_path)
    shard.unlink()
    with pytest.raises(DataError, match=r"made-train.tfrecord-00001-of-00002 is missing"):
        TfdsSource("made", "train", data_dir=tmp_path)


def test_other_file_formats_are_refused(tmp_path):
    prepare(tmp_path, count=12, shards=1, file_format="parquet")
    with pytest.raises(DataError, match=r"made/1.0.0 is stored as parquet; prepare it as tfrecord or array_record"):
        tfds_source("made", "train", data_dir=tmp_path)


# --- streams ---


def stream(data_dir, **options):
    return StreamSource("made", "train", data_dir=data_dir, fields={"image": "image"}, **{"window": 16, "readers": 3, **options})


def order_of(dataset):
    return [numbers(each["image"][None])[0] for each in dataset]


def test_a_stream_gives_every_example_once_in_an_order_of_seed_and_epoch(data_dir):
    source = stream(data_dir)
    orders = {(seed, epoch): tuple(order_of(source.dataset(seed, epoch))) for seed in (0, 1) for epoch in (0, 1)}
    assert len(set(orders.values())) == 4 and all(sorted(order) == list(range(60)) for order in orders.values())
    assert orders[0, 1] == tuple(order_of(stream(data_dir).dataset(0, 1)))
    assert len(source) == 60 and source.spec["image"].dtype == tf.string and source.spec["image"].shape == []


def test_a_stream_in_stored_order_is_the_order_by_number(data_dir):
    source = TfdsSource("made", "train", data_dir=data_dir, fields={"image": "image"})
    assert order_of(stream(data_dir).dataset(None)) == numbers(source.gather(tf.range(60, dtype=tf.int64))["image"])


def test_slices_of_shards(data_dir):
    parts = [StreamSource("made", split, data_dir=data_dir, fields={"image": "image"}) for split in ("train[:37]", "train[37:]")]
    assert [len(part) for part in parts] == [37, 23]
    assert sorted(order_of(parts[0].dataset(0)) + order_of(parts[1].dataset(0))) == list(range(60))


RESTORE = """
import sys
import tensorflow as tf
from pipelines.data.stream import StreamSource

source = StreamSource("made", "train", data_dir=sys.argv[1], fields={"image": "image"}, window=16, readers=3)
iterator = iter(source.dataset(5, 2))
tf.train.Checkpoint(iterator=iterator).read(sys.argv[2]).assert_consumed()
print(*[int(tf.io.decode_png(each["image"])[0, 0, 0]) for each in iterator])
"""


def test_an_iterator_saved_in_mid_epoch_goes_on_in_another_process(data_dir, tmp_path):
    dataset = stream(data_dir).dataset(5, 2)
    whole = order_of(dataset)
    iterator = iter(dataset)
    first = [numbers(next(iterator)["image"][None])[0] for _ in range(23)]
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    done = processes.run("-c", RESTORE, data_dir, saved, check=True)
    assert first + [int(word) for word in done.stdout.split()] == whole


def test_streams_refuse_what_they_cannot_read(record_dir, data_dir):
    with pytest.raises(DataError, match="is stored as array_record; only tfrecord files can be streamed"):
        StreamSource("made", "train", data_dir=record_dir)
    with pytest.raises(DataError, match=r"has no feature 'imgae'; .*did you mean image"):
        StreamSource("made", "train", data_dir=data_dir, fields={"image": "imgae"})


# --- the real data sets ---


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "count", "shape"), [("fashion_mnist", 60_000, (28, 28, 1)), ("cifar10", 50_000, (32, 32, 3))])
def test_real_data_by_number(name, count, shape):
    need(name)
    start = time.process_time()
    source = TfdsSource(name, "train", label="label")
    assert time.process_time() - start < 5, "a batched pass over the records takes a fraction of a second"
    assert len(source) == count and np.all(np.bincount(source.labels) == count // 10) and source.shape("image") == shape
    import tensorflow_datasets as tfds

    stored = tfds.load(name, split="train[:20]", download=False, shuffle_files=False, decoders={"image": tfds.decode.SkipDecoding()})
    expected = list(stored.as_numpy_iterator())
    got = source.gather(tf.range(20, dtype=tf.int64))
    assert got["image"].numpy().tolist() == [each["image"] for each in expected]
    assert got["label"].numpy().tolist() == [each["label"] for each in expected]
