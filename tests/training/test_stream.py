"""Training from a stream: every example once an epoch, the same on any number of devices, and from any step on."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError, TrainingError
from pipelines.config.load import from_text
from pipelines.config.schema import Data
from pipelines.config.train_settings import Train
from pipelines.data import order
from pipelines.data.input import Decoder, StreamFeed, make_feed
from pipelines.data.stream import StreamSource
from pipelines.machine.devices import prepare as prepare_devices
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from tests.data.prepared import prepare
from tests.training.runs import At, Killed, checkpoint, kill, written_at_once

pytestmark = pytest.mark.slow

EXAMPLES = 60


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("tfds"), shards=4)


def decode(raw, key=None):
    drawn = tf.zeros([], tf.int32) if key is None else key[0]
    return {"number": tf.cast(tf.io.decode_png(raw["image"])[0, 0, 0], tf.int64), "drawn": drawn}


def feed(data_dir, *, shuffle=True, plan=None, decode=decode, own=None, window=16, readers=3) -> StreamFeed:
    source = StreamSource("made", "train", data_dir=data_dir, fields={"image": "image"}, window=window, readers=readers)
    machine, plan = prepare_devices(Train(devices="cpu", precision="float32")), plan or order.Plan(EXAMPLES, 16)
    machine = SimpleNamespace(strategy=machine.strategy, devices=machine.devices, own=own or range(plan.replicas))
    made = make_feed(source, Decoder(decode, random=True), plan=plan, seed=5, shuffle=shuffle, data=Data(), machine=machine)
    assert isinstance(made, StreamFeed) and made.by_epoch
    return made


def batches(made: StreamFeed, start: int, stop: int) -> list[dict[str, np.ndarray]]:
    return [{name: value.numpy() for name, value in batch.items()} for batch in made.dataset(start, stop)]


def test_every_example_counts_once_and_the_last_batch_is_filled_with_real_ones(data_dir):
    made = feed(data_dir)
    epochs = [batches(made, 0, 4), batches(made, 4, 8)]
    for epoch in epochs:
        assert [len(batch["number"]) for batch in epoch] == [16] * 4
        numbers, weights = (np.concatenate([batch[name] for batch in epoch]) for name in ("number", StreamFeed.WEIGHTS))
        assert sorted(numbers[weights > 0]) == list(range(EXAMPLES)) and weights.sum() == EXAMPLES
        assert np.array_equal(numbers[weights == 0], numbers[:4])
        places = np.concatenate([batch[StreamFeed.NUMBERS] for batch in epoch])
        assert np.array_equal(places, [*range(EXAMPLES), *range(4)])
    assert not np.array_equal(epochs[0][0]["number"], epochs[1][0]["number"])


@pytest.mark.parametrize("start", [1, 3, 6])
def test_a_stream_goes_on_at_any_step(data_dir, start):
    made = feed(data_dir)
    end = (start // 4 + 1) * 4
    whole = batches(made, end - 4, end)
    for got, wanted in zip(batches(made, start, end), whole[start % 4:], strict=True):
        for name in wanted:  # the keys too, on which random decoding depends
            assert np.array_equal(got[name], wanted[name]), name


def test_a_resume_opens_no_shard_before_its_own(tmp_path):
    folder = prepare(tmp_path / "data", shards=10)
    made = feed(folder, plan=order.Plan(EXAMPLES, 10), window=2, readers=2)
    epoch = batches(made, 6, 12)
    assert sorted(np.concatenate([batch["number"] for batch in epoch])) == list(range(EXAMPLES))
    for start in range(6, 12):
        for got, wanted in zip(batches(made, start, 12), epoch[start - 6:], strict=True):
            assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
    last = set(epoch[-1]["number"])  # the shards of the last batch stay, the others are gone
    kept = {int(shard_places(folder)[number]) // 6 for number in last}
    for number, part in enumerate(made.source.shards):
        if number not in kept:
            Path(part.filename).unlink()
    assert len(kept) == 2 and np.array_equal(batches(made, 11, 12)[0]["number"], epoch[-1]["number"])
    with pytest.raises(tf.errors.NotFoundError):
        batches(made, 6, 7)


def shard_places(folder) -> np.ndarray:
    """The place in stored order of each example by its number."""
    numbers = np.concatenate([batch["number"] for batch in batches(feed(folder, shuffle=False, plan=order.Plan(EXAMPLES, 10)), 0, 6)])
    return np.argsort(numbers)


def test_a_host_reads_the_parts_of_its_own_replicas(data_dir):
    plan = order.Plan(EXAMPLES, 16, replicas=4)
    whole = batches(feed(data_dir, plan=plan), 2, 4)
    for own in (range(2), range(2, 4)):
        wanted = [batch for place, batch in enumerate(whole) if place % 4 in own]
        for got, expected in zip(batches(feed(data_dir, plan=plan, own=own), 2, 4), wanted, strict=True):
            for name in expected:
                assert np.array_equal(got[name], expected[name]), name


def test_replicas_take_consecutive_parts_of_the_same_batch(data_dir):
    one = batches(feed(data_dir), 0, 4)
    two = batches(feed(data_dir, plan=order.Plan(EXAMPLES, 16, replicas=2)), 0, 4)
    for name in ("number", "drawn", StreamFeed.WEIGHTS):
        assert np.array_equal(np.concatenate([batch[name] for batch in one]), np.concatenate([batch[name] for batch in two]))


def test_judging_reads_in_stored_order_and_examples_are_found_again(data_dir):
    made = feed(data_dir, shuffle=False)
    numbers = np.concatenate([batch["number"] for batch in batches(made, 0, 4)])[:EXAMPLES]
    assert np.array_equal(numbers, np.concatenate([batch["number"] for batch in batches(made, 0, 4)])[:EXAMPLES])
    some = made.source.gather(tf.constant([41, 0, 59], tf.int64))
    assert [int(decode({"image": image})["number"]) for image in some["image"]] == [numbers[41], numbers[0], numbers[59]]
    assert made.source.name(41) == "made/train[41]"
    sampled, examples = feed(data_dir).sample(2, 5)
    assert np.array_equal(sampled, range(32, 37))
    assert np.array_equal(examples["number"], batches(feed(data_dir), 2, 3)[0]["number"][:5])


def test_a_broken_example_is_named(data_dir):
    def breaks(raw, key=None):
        found = decode(raw, key)
        with tf.control_dependencies([tf.debugging.assert_none_equal(found["number"], tf.constant(17, tf.int64), message="seventeen")]):
            return {name: tf.identity(value) for name, value in found.items()}

    made = feed(data_dir, decode=breaks)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        batches(made, 0, 4)
    error = made.blame(caught.value, 0, 4)
    assert isinstance(error, DataError) and "made/train, example" in str(error) and "seventeen" in str(error)


RUN = """
task: vision.classification
data: {{source: tfds, name: made, data_dir: {data_dir}, streaming: true, image_size: 8, validation: 0.2, test: test}}
model: {{name: cnn, widths: [4]}}
augment: {{flip: true}}
train: {{epochs: 3, batch_size: 16, devices: cpu, precision: float32, deterministic: true, checkpoint_seconds: 1.0e-9, keep_state: true}}
monitor: {{tensorboard: false}}
evaluate: {{baseline: false}}
"""


def test_a_streamed_run_that_was_killed_ends_bit_identical(tmp_path, data_dir):
    experiment = from_text(RUN.format(data_dir=data_dir)).experiment

    def trained(name: str, actions: dict) -> dict:
        call = Call("streamed", task_class(experiment.task), quiet=True, callbacks=(At(actions),))
        with written_at_once():
            return train(experiment, RunFolder(tmp_path / name), call)

    whole = trained("whole", {})
    assert any("streamed" in note for note in whole["notes"])
    with pytest.raises(Killed):
        trained("killed", {5: kill})
    resume = tmp_path / "killed" / "checkpoints" / "resume.npz"
    own = resume.read_bytes()
    with np.load(resume) as stored:
        older = {**stored, "about": np.frombuffer(stored["about"].tobytes().replace(b'"order": 2', b'"order": 1'), np.uint8)}
    np.savez(resume, **older)
    with pytest.raises(TrainingError, match="in another order"):
        trained("killed", {})
    resume.write_bytes(own)
    resumed = trained("killed", {1: kill, 4: kill})  # no step before the kill is made again
    (one, _), (other, _) = checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "killed")
    assert resumed["metrics"] == whole["metrics"] and one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
