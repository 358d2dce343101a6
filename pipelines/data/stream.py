"""Prepared TFDS data read shard by shard, for data sets too large to be held by number.

Promises: every example comes exactly once an epoch; the order is a function of (seed, epoch), the files, `window` and
`readers` alone, whatever the machine's speed or threads. Shards, in an order drawn for each epoch, are read in groups, each of which is
shuffled by itself; so an epoch begins anywhere within it at the group of that place, and no file before it is opened. An iterator saved in
mid-epoch (tf.train.Checkpoint) continues in a new process, too; such a checkpoint holds the shuffle window: about `window` encoded
examples. Not promised: a shuffle wider than the window and the order of the shards, or reading by number.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.mapping import mapped
from pipelines.data.source import Source, Tensors
from pipelines.data.split import draws
from pipelines.data.tfds import Prepared, features, parse, plain

ORDER = 2  # the version of the order below: a run resumes with the one that it was begun with
BLOCK = 16  # records read from one shard before the next one's turn
WINDOWS, GROUPS = 4, 64  # a group of shards holds so many shuffle windows at least, and an epoch has so many groups at most


def _at(counts: np.ndarray, place: int) -> tuple[int, int]:
    """(the part, the place within it) of a place in parts of so many records, one after another."""
    ends = np.cumsum(counts)
    part = min(int(np.searchsorted(ends, place, side="right")), len(ends) - 1)
    return part, place - int(ends[part] - counts[part])


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
        takes = np.array([part.take for part in self.shards], np.int64)
        if seed is None:
            first, place = _at(takes, start)
            return mapped(self._stored(range(first, len(takes)), 1).skip(place), self._parse, tf.data.AUTOTUNE)
        order = np.argsort(draws(len(takes), seed, f"shards {epoch}"), kind="stable")
        groups = self._groups(takes[order])
        seeds = draws(len(groups), seed, f"window {epoch}")

        def shuffled(number: int) -> tf.data.Dataset:
            records = self._stored(order[groups[number]], self.readers)
            return records.shuffle(self.window, seed=int(seeds[number] >> 1), reshuffle_each_iteration=False)

        first, place = _at(np.array([takes[order[group]].sum() for group in groups]), start)
        records = shuffled(first).skip(place)
        for number in range(first + 1, len(groups)):
            records = records.concatenate(shuffled(number))
        return mapped(records, self._parse, tf.data.AUTOTUNE)

    def _groups(self, takes: np.ndarray) -> list[slice]:
        """Shards that are shuffled together, by what each of an epoch holds: so many that the window is small against them."""
        least = max(WINDOWS * self.window, -(-int(takes.sum()) // GROUPS))
        ends, begun = [0], 0
        for number, here in enumerate(np.cumsum(takes).tolist(), 1):
            if here - begun >= least and number - ends[-1] >= self.readers:
                ends.append(number)
                begun = here
        if ends[-1] < len(takes):  # what is left is of the last group
            ends = [*(ends[:-1] if len(ends) > 1 else ends), len(takes)]
        return [slice(first, last) for first, last in pairwise(ends)]

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
