"""From a source to the step: decoded once where it fits, held on the device where it is small, else a tf.data pipeline.

Every way gives the same examples for the same (seed, epoch, step), so caching changes speed, never results.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.config.schema import Data
from pipelines.data import order
from pipelines.data.cache import Decode, bad_example, cached, decoded_spec, free_memory, readable
from pipelines.data.lengths import FlatSource, Lengths, fit
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.errors import DataError

DEVICE_SHARE = 0.25  # of a device's free memory that data may take


class Feed:
    """Where the step's examples come from.

    Attributes:
        spec: name -> tf.TensorSpec of one decoded example.
        on_device: examples are gathered from tensors on the device; there is no iterator.
        by_epoch: an iterator ends with its epoch; the next epoch needs another.
        said: what was decided, for terminal and report.
        lengths: [examples] where batches are made of examples of similar length, else None.
    """

    on_device = False
    by_epoch = False
    spec: dict[str, tf.TensorSpec]
    said: str
    plan: order.Plan
    seed: int
    shuffle: bool
    lengths: np.ndarray | None = None

    def numbers(self, step: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The global batch of a step: (numbers [batch] int64, weights [batch] float32, 1 or 0)."""
        return order.batch_numbers(self.plan, self.seed, tf.cast(step, tf.int64), shuffle=self.shuffle, lengths=self.lengths)

    def gather(self, numbers: tf.Tensor, replica: int) -> Tensors:
        """Examples by number from the device's own copy: name -> [batch, ...]."""
        raise RuntimeError("this feed has an iterator")

    def iterator(self, start: int, stop: int) -> Any:
        """Each replica's part of steps start .. stop - 1 as a distributed iterator."""
        return None

    def blame(self, error: Exception, start: int, stop: int) -> DataError | None:
        """The error that names the example among steps start .. stop - 1 at which the iterator failed; None if it was none of them."""
        return None


class DeviceFeed(Feed):
    """Small data: one copy on every device, gathered by number within the step."""

    on_device = True

    def __init__(self, source: ArraySource, *, plan: order.Plan, seed: int, shuffle: bool, devices: tuple[str, ...]):
        self.spec, self.plan, self.seed, self.shuffle = source.spec, plan, seed, shuffle
        self._source, self.lengths = source, source.lengths
        self._copies = []
        for device in devices:
            with tf.device(device):
                self._copies.append(source.tensors())
        self.said = f"{len(source):,} examples ({readable(source.nbytes)}) held on the device"

    def gather(self, numbers: tf.Tensor, replica: int) -> Tensors:
        return self._source.pick(self._copies[replica], numbers)


class PipelineFeed(Feed):
    """Data read, decoded and batched by tf.data while the device works."""

    def __init__(self, source: Source, decode: Decode | None, *, plan: order.Plan, seed: int, shuffle: bool,
                 strategy: tf.distribute.Strategy, workers: int | None, said: str, lengths: Lengths | None = None):
        self.source, self.decode, self.plan, self.seed, self.shuffle = source, decode, plan, seed, shuffle
        self.strategy, self.workers, self.said = strategy, workers or tf.data.AUTOTUNE, said
        self.spec = decoded_spec(source, decode)
        self.rule, self.lengths = lengths, source.lengths if lengths else None

    def iterator(self, start: int, stop: int) -> Any:
        distributed = self.strategy.distribute_datasets_from_function(lambda _: self.dataset(start, stop))
        return iter(distributed)

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """One element for each replica and step in turn: name -> [local, ...]."""
        plan, decode = self.plan, self.decode

        def numbers_of(part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            step, replica = part // plan.replicas, part % plan.replicas
            numbers, _ = self.numbers(step)
            numbers = tf.ensure_shape(numbers[replica * plan.local:(replica + 1) * plan.local], [plan.local])
            keys = order.example_keys(self.seed, step // plan.steps_per_epoch, numbers)
            return numbers, keys

        parts = tf.data.Dataset.range(start * plan.replicas, stop * plan.replicas).map(numbers_of)
        if decode is None:
            batches = parts.map(lambda numbers, _: self.source.gather(numbers), num_parallel_calls=self.workers, deterministic=True)
        else:
            def one(number: tf.Tensor, key: tf.Tensor) -> Tensors:
                raw = {name: value[0] for name, value in self.source.gather(number[None]).items()}
                return decode(raw, key if self.shuffle else None)

            examples = parts.unbatch().map(one, num_parallel_calls=self.workers, deterministic=True)
            if self.rule is None:
                batches = examples.batch(plan.local, drop_remainder=True)
            else:
                rule = self.rule
                batches = examples.padded_batch(plan.local, drop_remainder=True).map(lambda batch: fit(batch, self.spec, rule))
        return batches.prefetch(tf.data.AUTOTUNE)

    def blame(self, error: Exception, start: int, stop: int) -> DataError | None:
        for step in range(start, stop):
            numbers, _ = self.numbers(step)
            keys = order.example_keys(self.seed, tf.constant(step // self.plan.steps_per_epoch), numbers) if self.shuffle else None
            found = bad_example(self.source, self.decode, numbers.numpy().tolist(), keys)
            if found is not None:
                return found
        return None


def make_feed(source: Source, decode: Decode | None, *, plan: order.Plan, seed: int, shuffle: bool, random_decode: bool, data: Data,
              strategy: tf.distribute.Strategy, devices: tuple[str, ...], facts: Mapping[str, Any] | None = None,
              lengths: Lengths | None = None) -> Feed:
    """Chooses how a source is fed to the step.

    Args:
        source: raw examples.
        decode: one raw example to one of fixed shape; None where they are ready.
        random_decode: decode draws from its key, so that its results cannot be kept.
        data: `cache`, `cache_folder`, `workers`.
        facts: what the task learned from train, on which decoding may depend.
        lengths: where examples differ in length, the entry that tells it.
    """
    kept = None if random_decode else cached(source, decode, data, facts=facts, lengths=lengths)
    if kept is None:
        return PipelineFeed(source, decode, plan=plan, seed=seed, shuffle=shuffle, strategy=strategy, workers=data.workers,
                            said=f"{len(source):,} examples, decoded on the way", lengths=lengths)
    on_disk = kept.mapped if isinstance(kept, FlatSource) else isinstance(next(iter(kept.arrays.values())), np.memmap)
    if not on_disk and kept.nbytes <= _device_room(devices):
        return DeviceFeed(kept, plan=plan, seed=seed, shuffle=shuffle, devices=devices)
    return PipelineFeed(kept, None, plan=plan, seed=seed, shuffle=shuffle, strategy=strategy, workers=data.workers,
                        said=f"{len(kept):,} examples, read from the cache {'on disk' if on_disk else 'in memory'}", lengths=lengths)


def _device_room(devices: tuple[str, ...]) -> int:
    """Bytes that data may take on each device."""
    if not devices[0].startswith("GPU"):
        return int(free_memory() * DEVICE_SHARE) // len(devices)
    try:
        # the smallest card decides; what is free is its size less what this process holds
        sizes = [_gpu_memory(int(name.partition(":")[2])) for name in devices]
        return int(min(sizes) * DEVICE_SHARE)
    except (OSError, ValueError):
        return 1 << 30


def _gpu_memory(number: int) -> int:
    import subprocess

    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", f"--id={number}"],
                          capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) << 20 if done.returncode == 0 and done.stdout.split() else 1 << 32
