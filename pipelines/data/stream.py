"""Prepared TFDS data read shard by shard, for data sets too large to be held by number.

Promises: every example comes exactly once an epoch; the order is a function of (seed, epoch), the files, `window` and
`readers` alone, whatever the machine's speed or threads; and an iterator saved in mid-epoch (tf.train.Checkpoint) continues
in a new process with exactly the examples that would have followed. Such a checkpoint holds the shuffle window: about
`window` encoded examples. Not promised: a shuffle wider than the window and the order of the shards, or reading by number.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.mapping import mapped
from pipelines.data.source import Source, Tensors
from pipelines.data.split import draws
from pipelines.data.tfds import Prepared, features, parse, plain

BLOCK = 16  # records read from one shard before the next one's turn


class StreamSource(Prepared, Source):
    """One split of a prepared data set as a stream.

    Args:
        name, split, fields, data_dir: see TfdsSource; images stay encoded.
        window: records among which the next is drawn.
        readers: shards read at a time.

    Attributes:
        spec: name -> tf.TensorSpec of one example.

    Raises:
        DataError: as TfdsSource, or files that are not TFRecord.
    """

    def __init__(self, name: str, split: str, *, fields: Mapping[str, str] | None = None, data_dir: str | Path | None = None,
                 window: int = 10_000, readers: int = 4):
        super().__init__(name, split, fields, data_dir)
        self.window, self.readers = window, readers
        kind = self.builder.info.file_format.value
        if kind != "tfrecord":
            raise DataError(f"{self.builder.info.full_name} is stored as {kind}; only tfrecord files can be streamed")
        known = features(self.builder)
        unread = [feature for feature in self.fields.values() if not plain(known[feature])]
        if unread:
            raise DataError(f"{self.builder.info.full_name}: feature {unread[0]} ({known[unread[0]]}) cannot be streamed: it needs TFDS' "
                            "own decoding")
        parsed = mapped(self._stored([0], 1), self._parse).element_spec
        self.spec = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in parsed.items()}

    def dataset(self, seed: int | None, epoch: int = 0, start: int = 0) -> tf.data.Dataset:
        """One epoch of raw examples from the `start`-th on; `seed` None gives the stored order, as evaluation uses it."""
        if seed is None:
            records = self._stored(range(len(self.shards)), 1).skip(start)
            return mapped(records, self._parse, tf.data.AUTOTUNE)
        order = np.argsort(draws(len(self.shards), seed, f"shards {epoch}"), kind="stable")
        window_seed = int(draws(1, seed, f"window {epoch}")[0] >> 1)
        records = self._stored(order, self.readers).shuffle(self.window, seed=window_seed, reshuffle_each_iteration=False)
        return mapped(records.skip(start), self._parse, tf.data.AUTOTUNE)

    def peek(self, count: int) -> Iterator[Tensors]:
        """Up to `count` raw examples of the first, of the middle and of the last shard."""
        for number in sorted({0, len(self.shards) // 2, len(self.shards) - 1}):
            yield from mapped(self._stored([number], 1).take(count), self._parse)

    def gather(self, numbers: tf.Tensor) -> Tensors:
        """A few examples by their number in stored order, for a report; each costs the reading of its shard up to there. Eager only."""
        ends = np.cumsum([part.take for part in self.shards])
        rows = []
        for number in numbers.numpy().tolist():
            shard = int(np.searchsorted(ends, number, side="right"))
            part, place = self.shards[shard], number - int(ends[shard] - self.shards[shard].take)
            record = next(iter(tf.data.TFRecordDataset(str(part.filename)).skip(part.skip + place).take(1)))
            rows.append(self._parse(record))
        return {name: tf.stack([row[name] for row in rows]) for name in rows[0]}

    def name(self, number: int) -> str:
        return f"{self.title()}[{number}]"

    def _stored(self, order: Any, readers: int) -> tf.data.Dataset:
        shards = [self.shards[number] for number in order]
        names = [str(part.filename) for part in shards]
        skips, takes = (np.array([getattr(part, key) for part in shards], np.int64) for key in ("skip", "take"))
        readers = min(readers, len(shards))
        return tf.data.Dataset.from_tensor_slices((names, skips, takes)).interleave(
            lambda file, skip, take: tf.data.TFRecordDataset(file, buffer_size=8 << 20).skip(skip).take(take),
            cycle_length=readers, block_length=BLOCK, num_parallel_calls=readers, deterministic=True)

    def _parse(self, record: tf.Tensor) -> Tensors:
        known = features(self.builder)
        parsed = parse(record[None], {key: (feature, known[feature]) for key, feature in self.fields.items()})
        return {key: value[0] for key, value in parsed.items()}
