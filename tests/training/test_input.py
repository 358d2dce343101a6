"""The input layer: every way of feeding gives the same batches; caches are whole or not there; a broken example is named."""

import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.base.files import whole_folder
from pipelines.config.schema import Data
from pipelines.data import cache, order
from pipelines.data.files import FileSource
from pipelines.data.input import Decoder, DeviceFeed, Feed, PipelineFeed, make_feed
from pipelines.data.source import ArraySource
from pipelines.machine import memory
from tests import processes
from tests.waiting import until_or_over

pytestmark = pytest.mark.slow

EXAMPLES, SEED = 37, 5


@pytest.fixture
def files(tmp_path) -> FileSource:
    """Files of 8 bytes and the number of their example."""
    paths = []
    for number in range(EXAMPLES):
        paths.append(tmp_path / "data" / f"{number:02d}.bin")
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_bytes(bytes((number * 7 + place) % 256 for place in range(8)))
    return FileSource(paths, key="bytes", labels=np.arange(EXAMPLES))


def decode(raw, key=None):
    values = tf.cast(tf.io.decode_raw(raw["bytes"], tf.uint8, fixed_length=8), tf.float32)
    # a branch is a function within the graph, numbered as the process made it
    halves = tf.cond(raw["label"] >= 0, lambda: values / 2, lambda: values)
    return {"x": tf.ensure_shape(halves, [8]), "label": tf.cast(raw["label"], tf.int32)}


def jitter(raw, key=None):
    example = decode(raw)
    return example if key is None else {**example, "x": example["x"] + tf.random.stateless_uniform([8], key)}


def feed(source, how: str, folder: Path, *, size=8, replicas=1, decode=decode, examples=EXAMPLES, shuffle=True, random=False) -> Feed:
    machine = SimpleNamespace(strategy=tf.distribute.get_strategy(), devices=("CPU:0",), own=range(replicas))
    return make_feed(source, Decoder(decode, random), plan=order.Plan(examples, size, replicas), seed=SEED, shuffle=shuffle,
                     data=Data(cache=how, cache_folder=str(folder)), machine=machine)


def batches(made: Feed, start: int, stop: int) -> list[dict]:
    """Global batches of steps start .. stop - 1."""
    if made.on_device:
        return [{key: value.numpy() for key, value in made.gather(made.numbers(step)[0], 0).items()} for step in range(start, stop)]
    parts = [{key: value.numpy() for key, value in part.items()} for part in made.dataset(start, stop)]
    assert len(parts) == (stop - start) * made.plan.replicas
    grouped = [parts[at:at + made.plan.replicas] for at in range(0, len(parts), made.plan.replicas)]
    return [{key: np.concatenate([part[key] for part in group]) for key in group[0]} for group in grouped]


def assert_same(one: list[dict], other: list[dict]) -> None:
    assert len(one) == len(other)
    for first, second in zip(one, other):
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])


def test_every_way_gives_the_same_batches_from_any_step(files, tmp_path, monkeypatch):
    kinds = {}
    for how in ("memory", "disk", "none"):
        kinds[how] = feed(files, how, tmp_path)
    monkeypatch.setattr("pipelines.data.input._device_room", lambda devices: 0)
    kinds["memory, not on the device"] = feed(files, "memory", tmp_path)
    assert isinstance(kinds["memory"], DeviceFeed)
    assert all(isinstance(made, PipelineFeed) for how, made in kinds.items() if how != "memory")
    whole = batches(kinds["none"], 0, 12)  # two epochs and a half
    expected = order.batch_numbers(order.Plan(EXAMPLES, 8), SEED, tf.constant(7, tf.int64))[0]
    np.testing.assert_array_equal(whole[7]["label"], expected)
    np.testing.assert_array_equal(whole[7]["x"][:, 0] * 2, expected.numpy() * 7 % 256)
    for made in kinds.values():
        assert made.spec["x"].shape == [8]
        assert_same(batches(made, 0, 12), whole)
        assert_same(batches(made, 7, 9), whole[7:9])


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_replicas_share_the_same_global_batch(files, tmp_path, replicas):
    shared, one = feed(files, "none", tmp_path, size=12, replicas=replicas), feed(files, "none", tmp_path, size=12)
    assert_same(batches(shared, 2, 9), batches(one, 2, 9))


@pytest.mark.parametrize("how", ["memory", "none"])
def test_arrays_are_decoded_too(how, tmp_path):
    raw = np.arange(EXAMPLES * 4, dtype=np.uint8).reshape(EXAMPLES, 4)
    source = ArraySource({"raw": raw})
    made = feed(source, how, tmp_path, decode=lambda example, key: {"x": tf.cast(example["raw"][:2], tf.float32) / 255})
    numbers = made.numbers(3)[0].numpy()
    np.testing.assert_allclose(batches(made, 3, 4)[0]["x"], raw[numbers, :2] / np.float32(255))


def test_ready_arrays_and_a_subset_need_no_decoding(tmp_path):
    source = ArraySource({"x": np.arange(50.0)}).subset([3, 40, 7])
    made = feed(source, "none", tmp_path, decode=None, size=3, examples=3, shuffle=False)
    np.testing.assert_array_equal(batches(made, 0, 1)[0]["x"], [3, 40, 7])


def test_random_decoding_is_keyed_by_example_and_epoch(files, tmp_path):
    one, other = (feed(files, "memory", tmp_path, decode=jitter, random=True, size=size) for size in (8, 12))
    assert isinstance(one, PipelineFeed)  # drawn anew each epoch, so nothing is kept

    def by_example(made: Feed, epoch: int) -> np.ndarray:
        steps = made.plan.steps_per_epoch
        rows = batches(made, epoch * steps, (epoch + 1) * steps)
        found = {int(label): x for batch in rows for label, x in zip(batch["label"], batch["x"])}
        return np.stack([found[number] for number in range(EXAMPLES)])

    np.testing.assert_array_equal(by_example(one, 1), by_example(other, 1))
    assert (by_example(one, 0) != by_example(one, 1)).any(axis=1).all()
    assert_same(batches(one, 6, 8), batches(one, 0, 8)[6:])


def test_judging_draws_nothing_and_keeps_the_stored_order(files, tmp_path):
    made = feed(files, "none", tmp_path, decode=jitter, shuffle=False)
    first = batches(made, 0, 5)
    np.testing.assert_array_equal(np.concatenate([batch["label"] for batch in first])[:EXAMPLES], np.arange(EXAMPLES))
    assert_same(first, batches(made, 0, 5))
    assert first[0]["x"][1, 0] == 3.5


def test_auto_takes_memory_then_disk_then_nothing(files, tmp_path, monkeypatch):
    assert feed(files, "auto", tmp_path).on_device
    monkeypatch.setattr(memory, "free", lambda: 100)
    made = feed(files, "auto", tmp_path)
    assert "on disk" in made.summary
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage)
    assert "decoded on the way" in feed(files, "auto", tmp_path).summary


def caches(folder: Path) -> list[Path]:
    return sorted((folder / "quartet").iterdir())


def test_the_disk_cache_is_used_again(files, tmp_path, monkeypatch):
    first = batches(feed(files, "disk", tmp_path), 0, 5)
    monkeypatch.setattr(cache, "_decoded", lambda *_: pytest.fail("decoded again"))
    assert_same(batches(feed(files, "disk", tmp_path), 0, 5), first)
    assert len(caches(tmp_path)) == 1


def test_another_decoding_other_facts_or_other_data_make_another_cache(files, tmp_path):
    def halved(factor):
        return lambda raw, key=None: {"x": tf.cast(tf.io.decode_raw(raw["bytes"], tf.uint8, fixed_length=8), tf.float32) * factor}

    for factor in (0.5, 0.25, 0.5):
        made = feed(files, "disk", tmp_path, decode=halved(factor))
        assert batches(made, 0, 1)[0]["x"][0, 1] == (int(made.numbers(0)[0][0]) * 7 + 1) % 256 * factor
    assert len(caches(tmp_path)) == 2
    table = tf.constant(np.full(8, 3.0, np.float32))  # a tensor that the graph only refers to
    for value in (table, table + 1):
        made = feed(files, "disk", tmp_path, decode=lambda raw, key=None, value=value: {**decode(raw), "x": value})
        assert batches(made, 0, 1)[0]["x"][0, 0] == value[0]
    assert len(caches(tmp_path)) == 4
    for facts in ({"vocabulary": ["a"]}, {"vocabulary": ["b"]}):
        cache.cached(files, decode, Data(cache="disk", cache_folder=str(tmp_path)), facts=facts)
    assert len(caches(tmp_path)) == 6
    Path(files.paths[3]).write_bytes(b"8 others")
    again = FileSource(files.paths, key="bytes", labels=files.labels)
    assert batches(feed(again, "disk", tmp_path, shuffle=False), 0, 1)[0]["x"][3, 0] == ord("8") / 2
    assert len(caches(tmp_path)) == 7


SLOW_WRITER = """
import sys, time
import numpy as np
import tensorflow as tf
from pipelines.config.schema import Data
from pipelines.data import cache
from pipelines.data.source import ArraySource
cache.CHUNK = 10
def slow(raw, key=None):
    return {"x": tf.numpy_function(lambda x: (time.sleep(0.002), x * 2)[1], [raw["x"]], tf.float32)}
def decode(raw, key=None):
    value = slow(raw)["x"]
    value.set_shape([])
    return {"x": value}
source = ArraySource({"x": np.arange(float(sys.argv[2]), dtype=np.float32)})
made = cache.cached(source, decode, Data(cache="disk", cache_folder=sys.argv[1], workers=1))
print(float(made.arrays["x"].sum()))
"""


def test_a_kill_while_writing_leaves_nothing_half(tmp_path):
    call = ["-c", SLOW_WRITER, str(tmp_path)]
    process = processes.start(*call, "100000")
    until_or_over(lambda: list((tmp_path / "quartet").glob(".*/x.npy")), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path.name[0] for path in caches(tmp_path)] == ["."]  # only what is not finished, which nobody takes for a cache
    done = processes.run(*call, "30", check=True)
    assert float(done.stdout) == 2 * sum(range(30))
    assert [path.name[0] != "." for path in caches(tmp_path)] == [True]  # and the next writer clears it away


def test_a_cache_that_another_container_writes_is_left_alone(files, tmp_path):
    """It may have the same host name and the same number of its process; its lock is what tells."""
    with whole_folder(tmp_path / "quartet" / "another") as theirs:
        (theirs / "x.npy").write_bytes(b"x")
        feed(files, "disk", tmp_path, shuffle=False)
        assert (theirs / "x.npy").read_bytes() == b"x"
    assert (tmp_path / "quartet" / "another" / "x.npy").is_file()


def test_a_full_disk_is_said(files, tmp_path, monkeypatch):
    def full(file, *arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_header", full)
    with pytest.raises(DataError, match=r"disk cache .* cannot be written: No space left on device; free some space"):
        feed(files, "disk", tmp_path)
    assert caches(tmp_path) == []


@pytest.fixture
def broken(files) -> FileSource:
    """The files, of which number 23 is gone."""
    Path(files.paths[23]).unlink()
    return files


@pytest.mark.parametrize("how", ["memory", "disk"])
def test_a_broken_example_is_named_while_the_cache_is_filled(broken, how, tmp_path):
    with pytest.raises(DataError, match=r"23\.bin: cannot be read: .*No such file(.|\n)*on_bad_example: skip"):
        feed(broken, how, tmp_path)
    if how == "disk":
        assert caches(tmp_path) == []


@pytest.mark.parametrize("random_decode", [False, True])
def test_a_broken_example_is_named_by_its_step(broken, random_decode, tmp_path):
    made = feed(broken, "none", tmp_path, decode=jitter if random_decode else decode, random=random_decode)
    step = next(step for step in range(5) if 23 in made.numbers(step)[0])
    with pytest.raises(tf.errors.OpError) as caught:
        batches(made, 0, 5)
    found = made.blame(caught.value, step, step + 1)
    assert "23.bin: cannot be read: " in str(found)
    assert made.blame(caught.value, 0, step) is None


def test_the_order_of_reading_does_not_depend_on_speed(tmp_path):
    """Decoding takes longer for some: the batches are in order nevertheless."""
    source = ArraySource({"x": np.arange(64)})

    def slow(raw, key=None):
        wait = tf.numpy_function(lambda x: time.sleep(0.01 if x % 3 == 0 else 0.0) or x, [raw["x"]], tf.int64)
        wait.set_shape([])
        return {"x": wait}

    made = feed(source, "none", tmp_path, decode=slow, examples=64)
    for batch, step in zip(batches(made, 0, 8), range(8)):
        np.testing.assert_array_equal(batch["x"], made.numbers(step)[0])
