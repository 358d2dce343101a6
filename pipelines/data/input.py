"""From a source to the step: decoded once where it fits, held on the device where it is small, else a tf.data pipeline.

Every way gives the same examples for the same (seed, epoch, step), so caching changes speed, never results.
"""

import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.schema import Data
from pipelines.data import order
from pipelines.data.cache import Decode, bad_example, cached, decoded_spec, readable, unreadable
from pipelines.data.lengths import FlatSource, Lengths, fit, stacked
from pipelines.data.mapping import mapped
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.data.stream import StreamSource
from pipelines.machine import kernels, memory
from pipelines.machine.devices import Machine

DEVICE_SHARE = 0.25  # of a GPU's free memory that data may take


@dataclass(frozen=True)
class Decoder:
    """How raw examples become those of a batch.

    Attributes:
        decode: one raw example to one of fixed shape; None where they are ready. Not called for a source that is decoded.
        random: it draws from its key when training, so that what it gives then cannot be kept.
        facts: what the task learned from train, on which it may depend.
        lengths: where examples differ in length, the rule of their padding.
    """

    decode: Decode | None
    random: bool = False
    facts: Mapping[str, Any] | None = None
    lengths: Lengths | None = None

    @classmethod
    def of(cls, task: Any, *, few: bool = False) -> "Decoder":
        """That of a `task.contract.Task`; `few` as in `Lengths`."""
        decoding, lengths = task.input.decoding, task.input.lengths
        return cls(task.input.decoder, decoding.random, task.facts, lengths and replace(lengths, few=few))


class Feed:
    """Where the step's examples come from.

    Attributes:
        source, decode: raw examples, and the function that decodes one; None where they are ready.
        spec: name -> tf.TensorSpec of one decoded example.
        on_device: examples are gathered from tensors on the device; there is no iterator.
        by_epoch: an iterator ends with its epoch; the next epoch needs another.
        summary: how examples are fed, for terminal and report.
        lengths: of all examples where batches are made of those of similar length, else None.
        rule: of padding, where examples differ in length, or None.
        kept: all examples as evaluation decodes them, or None.
        own: numbers of this host's replicas, for which alone an iterator has examples.
    """

    on_device = False
    by_epoch = False
    summary: str
    lengths: order.ByLength | None = None
    kept: ArraySource | None = None

    def __init__(self, source: Source, decode: Decode | None, *, plan: order.Plan, seed: int, shuffle: bool, rule: Lengths | None = None,
                 own: range | None = None, spec: dict[str, tf.TensorSpec] | None = None):
        self.own = range(plan.replicas) if own is None else own
        decode = None if source.decoded else decode
        self.source, self.decode, self.plan, self.seed, self.shuffle, self.rule = source, decode, plan, seed, shuffle, rule
        self.spec = spec or decoded_spec(source, decode)

    def numbers(self, step: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The global batch of a step: (numbers [batch] int64, weights [batch] float32, 1 or 0)."""
        return order.batch_numbers(self.plan, self.seed, tf.cast(step, tf.int64), shuffle=self.shuffle, lengths=self.lengths)

    def batch(self, step: tf.Tensor, replica: int, fetched: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        """A replica's part of the batch of a step, in graph: (numbers [local] int64, weights [local] float32, examples).

        Args:
            fetched: what the iterator gave this replica; None where there is none.
        """
        rows = slice(replica * self.plan.local, (replica + 1) * self.plan.local)
        numbers, weights = self.numbers(step)
        return numbers[rows], weights[rows], fetched

    def keys(self, step: int, numbers: tf.Tensor) -> tf.Tensor:
        """The key of each example in the epoch of `step`, int32 [n, 2]."""
        return order.example_keys(self.seed, tf.constant(step // self.plan.steps_per_epoch), numbers)

    def iterator(self, start: int, stop: int) -> Any:
        """Each replica's part of steps start .. stop - 1 as a distributed iterator."""
        return None

    def fetched(self, iterator: Any, *, deterministic: bool = False) -> tuple[Any, tf.Tensor]:
        """(each replica's part of the next batch, None where the device holds the examples; seconds waited, float64); in graph."""
        if self.on_device:
            return None, tf.zeros([], tf.float64)

        def now() -> tf.Tensor:  # TensorFlow's own clock cannot be read with determinism on
            return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), []) if deterministic else tf.timestamp()

        # nothing else orders a clock and an iterator within a graph
        asked = now()
        with tf.control_dependencies([asked]):
            examples = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(examples, expand_composites=True)):
            return examples, now() - asked

    def blame(self, error: Exception, start: int, stop: int) -> DataError | None:
        """The error that names the example among steps start .. stop - 1 at which the iterator failed; None if none of them."""
        return None

    def name(self, number: int, step: int) -> str:
        """The name of an example of the batch of `step`."""
        return self.source.name(number)

    def raw(self, step: int) -> Iterator[tuple[int, Tensors]]:
        """The examples of a step's batch that count, one by one: (number, raw example); eager."""
        numbers, weights = self.numbers(step)
        for number in numbers.numpy()[weights.numpy() > 0].tolist():
            yield number, {name: value[0] for name, value in self.source.gather(tf.constant([number], tf.int64)).items()}

    def sample(self, step: int, count: int) -> tuple[tf.Tensor, Tensors]:
        """At most `count` examples of a step's batch as training decodes them: (numbers [n], name -> [n, ...]); eager."""
        some = list(islice(self.raw(step), count))
        numbers = tf.constant([number for number, _ in some], tf.int64)
        keys = self.keys(step, numbers)
        return numbers, stacked([self._decoded(raw, key) for (_, raw), key in zip(some, keys)], self.spec, self.rule)

    def judged(self, batch: int) -> Iterator[Tensors]:
        """All examples once, in shuffled order, as evaluation decodes them, name -> [batch, ...]; eager."""
        kept = self.kept
        for step in range(self.plan.steps_per_epoch):
            if kept is not None:  # decoded already
                numbers, weights = self.numbers(step)
                for part in np.array_split(numbers.numpy()[weights.numpy() > 0], -(-self.plan.batch // batch)):
                    if len(part):
                        yield kept.gather(tf.constant(part))
                continue
            rows = [self._decoded(raw, None) for _, raw in self.raw(step)]
            for start in range(0, len(rows), batch):
                yield stacked(rows[start:start + batch], self.spec, self.rule)

    def _decoded(self, raw: Tensors, key: tf.Tensor | None) -> Tensors:
        return self.decode(raw, key) if self.decode else raw

    def _batched(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        """Decoded examples as each replica's part of a step; those of free length padded to one length."""
        if self.rule is None:
            return examples.batch(self.plan.local, drop_remainder=True)
        return mapped(examples.padded_batch(self.plan.local, drop_remainder=True), self.padded)

    def padded(self, batch: Tensors) -> Tensors:
        """Decoded examples as far padded as the longest of them needs, by the rule; in graph."""
        return batch if self.rule is None else fit(batch, self.spec, self.rule)


class DeviceFeed(Feed):
    """Small data: one copy on every device, gathered by number within the step."""

    on_device = True

    def __init__(self, kept: ArraySource, *, devices: tuple[str, ...], **options: Any):
        super().__init__(**options)
        self.kept = self._kept = kept
        self.spec, self.lengths = kept.spec, _by_length(kept)
        self._copies = []
        for device in devices:
            with tf.device(device):
                tensors = kept.tensors()
                if device.startswith("GPU"):
                    tensors = {name: kernels.held(value) for name, value in tensors.items()}
                self._copies.append(tensors)
        if not devices[0].startswith("GPU"):
            memory.hold(self, kept.nbytes * len(devices))
        self.summary = f"{len(kept):,} examples ({readable(kept.nbytes)}) held on the device"

    def batch(self, step: tf.Tensor, replica: int, fetched: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        numbers, weights, _ = super().batch(step, replica, fetched)
        return numbers, weights, self.gather(numbers, replica)

    def gather(self, numbers: tf.Tensor, replica: int) -> Tensors:
        return self._kept.pick(self._copies[replica - self.own.start], numbers)


class PipelineFeed(Feed):
    """Data read, decoded and batched by tf.data while the device works."""

    def __init__(self, kept: ArraySource | None, *, strategy: tf.distribute.Strategy, workers: int | None, summary: str, **options: Any):
        super().__init__(**options)
        self.kept = kept
        self.read, self.make = (self.source, self.decode) if kept is None else (kept, None)
        self.spec = self.spec if kept is None else kept.spec
        self.strategy, self.workers, self.summary = strategy, workers or tf.data.AUTOTUNE, summary
        self.lengths = _by_length(self.read) if self.rule else None

    def iterator(self, start: int, stop: int) -> Any:
        return distributed(self.dataset(start, stop), self.strategy)

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """One element for each of this host's replicas and step in turn: name -> [local, ...]."""
        plan, decode, source, own = self.plan, self.make, self.read, self.own

        def numbers_of(part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            step, replica = part // len(own), own.start + part % len(own)
            numbers, _ = self.numbers(step)
            numbers = tf.ensure_shape(numbers[replica * plan.local:(replica + 1) * plan.local], [plan.local])
            keys = order.example_keys(self.seed, step // plan.steps_per_epoch, numbers)
            return numbers, keys

        parts = mapped(tf.data.Dataset.range(start * len(own), stop * len(own)), numbers_of)
        if decode is None:
            batches = mapped(parts, lambda numbers, _: self.padded(source.gather(numbers)), self.workers)
        else:
            def one(number: tf.Tensor, key: tf.Tensor) -> Tensors:
                raw = {name: value[0] for name, value in source.gather(number[None]).items()}
                return decode(raw, key if self.shuffle else None)

            examples = mapped(parts.unbatch(), one, self.workers)
            batches = self._batched(examples)
        return batches.prefetch(tf.data.AUTOTUNE)

    def blame(self, error: Exception, start: int, stop: int) -> DataError | None:
        return first_bad(self, start, stop)


def _by_length(source: Source) -> order.ByLength | None:
    return None if source.lengths is None else order.ByLength(source.lengths)


def first_bad(feed: Feed, start: int, stop: int) -> DataError | None:
    """The error that names the first example of steps start .. stop - 1 that cannot be read or decoded; None where each can."""
    for step in range(start, stop):
        numbers = feed.numbers(step)[0]
        keys = feed.keys(step, numbers) if feed.shuffle else None
        error = bad_example(feed.source, feed.decode, numbers.numpy().tolist(), keys)
        if error is not None:
            return error
    return None


class StreamFeed(Feed):
    """Data read shard by shard. An iterator that begins within an epoch opens no file of an earlier group of shards, and skips earlier
    examples of its own group without decoding them.

    The order of an epoch is a function of (seed, epoch) alone, so a stream has no state to save; an example's number is its
    place in that order.
    """

    by_epoch = True
    source: StreamSource
    NUMBERS, WEIGHTS = "stream/numbers", "stream/weights"  # entries beside the examples

    def __init__(self, *, strategy: tf.distribute.Strategy, workers: int | None, **options: Any):
        super().__init__(**options)
        self.strategy, self.workers = strategy, workers or tf.data.AUTOTUNE
        self.summary = f"{len(self.source):,} examples, streamed from their shards"

    def numbers(self, step: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return order.batch_numbers(self.plan, self.seed, tf.cast(step, tf.int64), shuffle=False)

    def batch(self, step: tf.Tensor, replica: int, fetched: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        examples = dict(fetched)
        return examples.pop(self.NUMBERS), examples.pop(self.WEIGHTS), examples

    def records(self, step: int) -> tf.data.Dataset:
        """(number, raw example) from the batch of `step` to the end of its epoch."""
        epoch, place = divmod(step, self.plan.steps_per_epoch)
        begin = place * self.plan.batch
        examples = self.source.dataset(self.seed if self.shuffle else None, epoch, begin)
        return tf.data.Dataset.zip(tf.data.Dataset.range(begin, len(self.source)), examples)

    def name(self, number: int, step: int) -> str:
        return f"{self.source.title()}, example {number:,} of epoch {step // self.plan.steps_per_epoch} (data.streaming)"

    def raw(self, step: int) -> Iterator[tuple[int, Tensors]]:
        for number, raw in self.records(step).take(self.plan.batch):
            yield int(number), raw

    def iterator(self, start: int, stop: int) -> Any:
        return distributed(self.dataset(start, stop), self.strategy)

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """One element for each of this host's replicas and step in turn, all of one epoch: name -> [local, ...]."""
        plan, own = self.plan, self.own
        epoch = start // plan.steps_per_epoch
        missing = plan.steps_per_epoch * plan.batch - plan.examples  # the last batch is filled up with the epoch's first, at weight 0
        fill = self.records(epoch * plan.steps_per_epoch).take(plan.examples).repeat().take(missing)
        counted = mapped(self.records(start), lambda number, raw: (number, raw, 1.0))
        records = counted.concatenate(mapped(fill, lambda number, raw: (number, raw, 0.0)))

        def one(number: tf.Tensor, raw: Tensors, weight: tf.Tensor) -> Tensors:
            key = order.example_keys(self.seed, tf.constant(epoch), number[None])[0] if self.shuffle else None
            return {**self._decoded(raw, key), self.NUMBERS: number, self.WEIGHTS: weight}

        records = records.take((stop - start) * plan.batch)
        if len(own) < plan.replicas:  # the other hosts' examples are left out before they are decoded
            first, last = own.start * plan.local, own.stop * plan.local
            records = records.enumerate().filter(lambda place, _: (place % plan.batch >= first) & (place % plan.batch < last))
            records = mapped(records, lambda _, record: record)
        examples = mapped(records, one, self.workers)
        return self._batched(examples).prefetch(tf.data.AUTOTUNE)

    def blame(self, error: Exception, start: int, stop: int) -> DataError | None:
        for step in range(start, stop):
            for number, raw in self.raw(step):
                try:
                    self._decoded(raw, self.keys(step, tf.constant([number], tf.int64))[0] if self.shuffle else None)
                except tf.errors.OpError as problem:
                    return unreadable(self.name(number, step), problem)
        return None


def distributed(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> Any:
    """An iterator of this host's replicas' parts, which the caller does not read beyond its end."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):  # else the hosts would agree each time on whether there is more
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return iter(strategy.distribute_datasets_from_function(lambda _: dataset))


def make_feed(source: Source, decoding: Decoder, *, plan: order.Plan, seed: int, shuffle: bool, data: Data, machine: Machine) -> Feed:
    """Chooses how a source is fed to the step.

    Args:
        shuffle: examples come in a training's order, and are decoded with a key.
        data: `cache`, `cache_folder`, `workers`.
    """
    random = decoding.random and shuffle
    if source.decoded and random:
        raise ValueError("decoding draws from its key, and the source is decoded already")
    decode, lengths = None if source.decoded else decoding.decode, decoding.lengths
    common: dict[str, Any] = {"source": source, "decode": decode, "plan": plan, "seed": seed, "shuffle": shuffle, "rule": lengths,
                              "own": machine.own, "spec": decoded_spec(source, decode)}
    if isinstance(source, StreamSource):
        return StreamFeed(strategy=machine.strategy, workers=data.workers, **common)
    kept = None if random else cached(source, decode, data, facts=decoding.facts, lengths=lengths, spec=common["spec"])
    if kept is None:
        how = "decoded on the way" if decode else "read from where they are stored"
        return PipelineFeed(None, strategy=machine.strategy, workers=data.workers, summary=f"{len(source):,} examples, {how}", **common)
    on_disk = kept.mapped if isinstance(kept, FlatSource) else isinstance(next(iter(kept.arrays.values())), np.memmap)
    if not on_disk and kept.nbytes <= _device_room(machine.devices):
        return DeviceFeed(kept, devices=machine.devices, **common)
    summary = f"{len(kept):,} examples, read from the cache {'on disk' if on_disk else 'in memory'}"
    return PipelineFeed(kept, strategy=machine.strategy, workers=data.workers, summary=summary, **common)


def _device_room(devices: tuple[str, ...]) -> int:
    """Bytes that data may take on each device."""
    if not devices[0].startswith("GPU"):
        return memory.room() // len(devices)
    try:
        # the smallest card decides; what is free is its size less what this process holds
        sizes = [memory.gpu_memory(int(name.partition(":")[2]))[0] for name in devices]
        return int(min(sizes) * DEVICE_SHARE)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 1 << 30
