"""Examples of different lengths: judged and trained once each, whatever batch they stand in, and little padded."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.schema import Data
from pipelines.config.train_settings import Train
from pipelines.data import order
from pipelines.data.input import Decoder, make_feed
from pipelines.data.lengths import Lengths, joined, stacked
from pipelines.data.source import ArraySource
from pipelines.machine.devices import prepare

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(0, 60, 203).astype("int32")
BY_LENGTH = order.ByLength(LENGTHS)
RULE = Lengths("length", unit=4, others={"boxes": "count"})


def epoch(plan: order.Plan, number: int, **options) -> list[tuple[np.ndarray, np.ndarray]]:
    steps = range(number * plan.steps_per_epoch, (number + 1) * plan.steps_per_epoch)
    graph = tf.function(lambda step: order.batch_numbers(plan, 3, step, lengths=BY_LENGTH, **options))
    return [tuple(value.numpy() for value in graph(tf.constant(step, tf.int64))) for step in steps]


@pytest.mark.parametrize("batch", [1, 7, 16, 64, 203, 500])
def test_every_example_counts_once_an_epoch(batch):
    plan = order.Plan(len(LENGTHS), batch)
    seen = [number for numbers, weights in epoch(plan, 1) for number in numbers[weights > 0]]
    assert sorted(seen) == list(range(len(LENGTHS)))
    assert all(weights.any() for _, weights in epoch(plan, 1))


def test_batches_hold_similar_lengths_in_an_order_of_their_own_each_epoch():
    lengths = RNG.integers(1, 400, 5000)
    plan = order.Plan(5000, 16)

    def padding(by_length: order.ByLength | None) -> float:
        numbers = [order.batch_numbers(plan, 0, tf.constant(step, tf.int64), lengths=by_length)[0].numpy()
                   for step in range(plan.steps_per_epoch)]
        held = sum(lengths[one].max() * 16 for one in numbers)
        return 1 - sum(lengths[one].sum() for one in numbers) / held

    assert padding(order.ByLength(lengths)) < 0.1 < 0.3 < padding(None)
    first, second = epoch(order.Plan(len(LENGTHS), 16), 0), epoch(order.Plan(len(LENGTHS), 16), 1)
    assert not np.array_equal(first[0][0], second[0][0])
    means = [LENGTHS[numbers].mean() for numbers, _ in first]
    assert np.any(np.diff(means) > 0) and np.any(np.diff(means) < 0)


def test_judging_takes_the_longest_first():
    plan = order.Plan(len(LENGTHS), 64)
    numbers = np.concatenate([one for one, _ in epoch(plan, 0, shuffle=False)])[:len(LENGTHS)]
    assert np.array_equal(numbers, BY_LENGTH.longest_first)
    assert np.all(np.diff(LENGTHS[numbers]) <= 0)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_graph_is_of_one_size_whatever_the_number_of_examples(shuffle):
    def size(count: int) -> int:
        plan, by_length = order.Plan(count, 16), order.ByLength(np.arange(count, dtype=np.int32) % 50)
        traced = tf.function(lambda step: order.batch_numbers(plan, 0, step, lengths=by_length, shuffle=shuffle))
        return traced.get_concrete_function(tf.TensorSpec([], tf.int64)).graph.as_graph_def().ByteSize()

    assert abs(size(100_000) - size(10_000)) < 1000


def test_lengths_in_a_file_make_the_same_batches(tmp_path):
    np.save(tmp_path / "lengths.npy", LENGTHS)
    plan, mapped = order.Plan(len(LENGTHS), 16), order.ByLength(np.load(tmp_path / "lengths.npy", mmap_mode="r"))
    numbers = tf.data.Dataset.range(13, 26).map(lambda step: order.batch_numbers(plan, 3, step, lengths=mapped)[0])
    for one, (other, _) in zip(numbers, epoch(plan, 1), strict=True):
        assert np.array_equal(one, other)
    for one, (other, _) in zip(range(13), epoch(plan, 0, shuffle=False)):
        assert np.array_equal(order.batch_numbers(plan, 3, tf.constant(one, tf.int64), shuffle=False, lengths=mapped)[0], other)


def source() -> ArraySource:
    return ArraySource({"number": np.arange(len(LENGTHS)), "length": LENGTHS})


def decode(raw, key=None):
    values = tf.cast(raw["number"], tf.float32) + tf.cast(tf.range(raw["length"]), tf.float32) / 100.0
    values = tf.stack([values, values], axis=-1)
    boxes = tf.fill([raw["number"] % 7, 3], raw["number"])
    return {"values": values, "length": raw["length"], "number": raw["number"], "boxes": boxes, "count": raw["number"] % 7}


class Stored(ArraySource):
    """Decoded examples as shards hold them: read from files, padded to the longest that is read at once."""

    arrays = None

    def __init__(self):
        super().__init__({"number": np.arange(len(LENGTHS)), "length": LENGTHS})
        self._stored, self.arrays, self.lengths, self.decoded = self.arrays, None, LENGTHS, self.spec
        self.spec = {**self.spec, "values": tf.TensorSpec([None, 2]), "boxes": tf.TensorSpec([None, 3], tf.int64),
                     "count": tf.TensorSpec([], tf.int64)}

    def __len__(self):
        return len(LENGTHS)

    def tensors(self):
        return {name: tf.constant(value) for name, value in self._stored.items()}

    def gather(self, numbers):
        raw = super().gather(numbers)
        rows = tf.ragged.range(raw["length"]).to_tensor()
        values = tf.cast(raw["number"], tf.float32)[:, None] + tf.cast(rows, tf.float32) / 100.0
        values = tf.where(tf.sequence_mask(raw["length"]), values, 0.0)
        count = raw["number"] % 7
        boxes = tf.RaggedTensor.from_row_lengths(tf.repeat(raw["number"], count), count).to_tensor()
        return {**raw, "values": tf.stack([values, values], -1), "boxes": tf.repeat(boxes[..., None], 3, -1), "count": count}


@pytest.mark.parametrize("cache", ["memory", "disk", "none", "stored"])
def test_every_way_gives_the_same_padded_batches(cache, tmp_path: Path):
    machine = prepare(Train(devices="cpu", precision="float32"))
    data = Data(cache="none" if cache == "stored" else cache, cache_folder=str(tmp_path))
    plan = order.Plan(len(LENGTHS), 16)
    plain = Stored() if cache == "stored" else source()
    if cache == "none":
        plain.lengths = LENGTHS
    feed, again = (make_feed(plain, Decoder(decode, lengths=RULE), plan=plan, seed=3, shuffle=True, data=data, machine=machine)
                   for _ in range(2))  # a disk cache is found again
    assert feed.on_device == (cache == "memory")
    iterators = [one.iterator(0, plan.steps_per_epoch) for one in (feed, again)]
    for step, (numbers, _) in enumerate(epoch(plan, 0)):
        for one, iterator in zip((feed, again), iterators):
            batch = one.gather(one.numbers(step)[0], 0) if one.on_device else next(iterator)
            assert np.array_equal(batch["number"], numbers), step
            longest = max(4, -(-int(LENGTHS[numbers].max()) // 4) * 4)
            assert batch["values"].shape == (16, longest, 2)
            for row, number in zip(batch["values"].numpy(), numbers):
                length = LENGTHS[number]
                assert np.allclose(row[:length, 0], number + np.arange(length) / 100.0) and not row[length:].any()
            assert batch["boxes"].shape == (16, max(1, (numbers % 7).max()), 3)  # whatever the lengths of the values are
            for boxes, number in zip(batch["boxes"].numpy(), numbers):
                assert (boxes[:number % 7] == number).all() and not boxes[number % 7:].any()


def test_rows_by_hand_are_padded_as_the_step_pads_them():
    rows = [decode({"number": tf.constant(number), "length": tf.constant(LENGTHS[number])}) for number in (0, 1, 2)]
    spec = {"values": tf.TensorSpec([None, 2]), "length": tf.TensorSpec([], tf.int32), "number": tf.TensorSpec([], tf.int32),
            "boxes": tf.TensorSpec([None, 3], tf.int32), "count": tf.TensorSpec([], tf.int32)}
    batch = stacked(rows, spec, RULE)
    assert batch["values"].shape == (3, max(4, -(-int(LENGTHS[:3].max()) // 4) * 4), 2) and batch["boxes"].shape == (3, 2, 3)


def test_few_lengths_hold_all_and_change_nothing_but_padding():
    """XLA compiles a step for each length that comes."""
    few, rule = Lengths("length", unit=4, few=True), Lengths("length", unit=4)
    graph = tf.function(few.rounded)
    lengths = range(560)  # 35 s in sixteenths, the unit a quarter
    sizes = [int(graph(tf.constant(length))) for length in lengths]
    assert sizes == [few.padded(length) for length in lengths]
    assert all(size % 4 == 0 and rule.padded(length) <= size <= max(1.3 * rule.padded(length), 4) for length, size in zip(lengths, sizes))
    assert len({size for length, size in zip(lengths, sizes) if length > 20}) <= 16 and len(set(sizes)) <= 20

    plan, numbers = order.Plan(len(LENGTHS), 16), tf.range(16, dtype=tf.int64)
    machine = prepare(Train(devices="cpu", precision="float32"))
    one, other = (make_feed(source(), Decoder(decode, lengths=each), plan=plan, seed=3, shuffle=True, data=Data(cache="memory"),
                            machine=machine).gather(numbers, 0) for each in (rule, few))
    cut, padded = one["values"].numpy(), other["values"].numpy()
    assert padded.shape[1] == few.padded(int(LENGTHS[:16].max())) > cut.shape[1]
    assert np.array_equal(padded[:, :cut.shape[1]], cut) and not padded[:, cut.shape[1]:].any()


def test_results_of_different_lengths_are_joined_with_zeros():
    whole = joined([np.ones((2, 3)), np.ones((1, 5))])
    assert whole.shape == (3, 5) and whole.sum() == 11


def test_few_lengths_end_at_the_longest_that_an_example_may_have():
    for most, longest, padded in ((512, 500, 512), (512, 490, 496), (509, 509, 512), (512, 600, 600), (None, 500, 640)):
        rule = Lengths("length", unit=8, few=True, most=most)
        assert rule.padded(longest) == int(tf.function(rule.rounded)(tf.constant(longest))) == padded
