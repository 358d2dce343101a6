"""Examples written into shards, piece by piece: in any order, by any process, with the same bytes.

How the examples are divided is a function of the data alone, and a shard's name says which it holds (`train-000000000-000001437.arrow`:
from the first on, up to the second). So whoever finds some of them there knows what is missing. Memory holds one shard at a time.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.data.cache import Decode, bad_example, decoded_spec
from pipelines.data.mapping import mapped
from pipelines.data.reasons import reason
from pipelines.data.shards import BESIDE, NAME, SUM, Entry, Shard, Stored, checksum, width
from pipelines.data.source import Source, Tensors, origin
from pipelines.data.stream import StreamSource
from pipelines.stores.remote import OutputFolder

BYTES, EXAMPLES = 256 << 20, 1 << 20  # most of a shard
AIM = 192 << 20  # bytes of a shard as they are guessed before
SAMPLE = 256  # examples from which the size of all is guessed
_SHARD = re.compile(r"(?P<split>.+)-(?P<first>\d{9,})-(?P<last>\d{9,})\.arrow")


@dataclass(frozen=True)
class Piece:
    """Examples that follow each other, from `first` up to `last`: one shard, or several where they are larger than was guessed."""

    split: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.split}[{self.first}:{self.last}]"

    @property
    def file(self) -> str:
        return f"{self.split}-{self.first:09d}-{self.last:09d}.arrow"


def pieces(source: Source, split: str, decode: Decode | None = None) -> list[Piece]:
    """How a source is divided; of a stream, where its own files end, as far as that suits.

    Raises:
        ConfigError: examples that cannot be stored.
        DataError: an example cannot be read; names it.
    """
    specs = decoded_spec(source, decode)
    free = next((name for name, spec in specs.items() if None in spec.shape.as_list()[1:]), None)
    if free:
        raise ConfigError(f"{split}: entry {free} {specs[free].shape} has more than its first dimension free; it cannot be prepared")
    count, widths = len(source), [width(entry) for entry in _entries(specs).values()]
    each = sum(one or 0 for one in widths) if None not in widths else size_of(source) // max(count, 1)
    most = max(1, min(EXAMPLES, AIM // max(each, 1)))
    ends = np.cumsum([part.take for part in source.shards]) if isinstance(source, StreamSource) else np.array([], np.int64)
    found, first = [], 0
    while first < count:
        last = min(first + most, count)
        own = int(np.searchsorted(ends, last, side="right")) - 1
        if last < count and own >= 0 and ends[own] > first:
            last = int(ends[own])
        found.append(Piece(split, first, last))
        first = last
    return found


def there(piece: Piece, names: Iterable[str]) -> list[Piece]:
    """The shards of a piece that are among these files, in order; [] where they do not make up all of it."""
    begins = {one.first: one for one in map(parsed, names) if one is not None and one.split == piece.split}
    found, at = [], piece.first
    while at < piece.last:
        one = begins.get(at)
        if one is None or not at < one.last <= piece.last:
            return []
        found.append(one)
        at = one.last
    return found


def parsed(name: str) -> Piece | None:
    """The examples that a file of this name holds; None where it is no shard."""
    match = _SHARD.fullmatch(name)
    return Piece(match["split"], int(match["first"]), int(match["last"])) if match else None


def write(source: Source, piece: Piece, folder: OutputFolder, decode: Decode | None = None) -> None:
    """Writes the shards of a piece, each whole or not at all.

    Args:
        decode: what becomes of each example before it is written; its results have one shape. None: they stay as they are.

    Raises:
        DataError: an example cannot be read; names it.
        WriteError, StoreError: the disk or the store does not take it.
    """
    entries = _entries(decoded_spec(source, decode))
    rows: list[dict[str, bytes]] = []
    first, size = piece.first, 0

    def flush() -> None:
        nonlocal rows, first, size
        batch = _batch(rows, [source.name(number) for number in range(first, first + len(rows))], entries)
        folder.write(Piece(piece.split, first, first + len(rows)).file, partial(_table, batch))
        rows, first, size = [], first + len(rows), 0

    for row in _rows(source, piece.first, piece.last, entries, decode):
        rows.append(row)
        size += sum(map(len, row.values()))
        if size >= BYTES or len(rows) >= EXAMPLES:
            flush()
    if rows:
        flush()


def write_beside(source: Source, split: str, folder: OutputFolder, divided: Sequence[Piece], decode: Decode | None = None,
                 more: Mapping[str, Sequence[str]] | None = None) -> Stored:
    """Writes what is beside the examples, once all pieces are there; what `ShardSource` needs to know.

    Args:
        more: further texts of each example, by name, for `ShardSource.more`.
    """
    beside = {}
    for name in BESIDE:
        values = getattr(source, name)
        if values is not None:
            beside[name] = f"{split}.{name}.npy"
            folder.write(beside[name], partial(_save, _plain(name, values)))
    if more:
        folder.write(f"{split}.more.arrow", partial(_table, pa.record_batch(
            {name: pa.array(values, pa.large_string()) for name, values in more.items()})))
    sizes = folder.sizes()
    shards = [Shard(file=one.file, examples=one.last - one.first, bytes=sizes[one.file])
              for piece in divided for one in there(piece, sizes)]
    return Stored(fingerprint=source.fingerprint(), stamp=source.stamp(), entries=_entries(decoded_spec(source, decode)),
                  raw=_entries(source.spec) if decode else None, shards=shards, beside=beside, more=f"{split}.more.arrow" if more else None)


def size_of(source: Source) -> int:
    """About how many bytes the examples take as they are stored."""
    if not len(source):
        return 0
    entries = _entries(source.spec)
    if isinstance(source, StreamSource):
        rows: Iterable[dict[str, bytes]] = (_as_bytes({name: value.numpy() for name, value in row.items()}, entries)
                                            for row in itertools.islice(source.peek(SAMPLE // 3), SAMPLE))
    else:
        some = source.subset(np.unique(np.linspace(0, len(source) - 1, min(SAMPLE, len(source))).astype(np.int64)))
        rows = _rows(some, 0, len(some), entries)
    return int(np.mean([sum(map(len, row.values())) for row in rows]) * len(source))


def _entries(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Entry]:
    return {name: Entry(dtype=spec.dtype.name, shape=spec.shape.as_list()) for name, spec in specs.items()}


def _batch(rows: list[dict[str, bytes]], names: list[str], entries: dict[str, Entry]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    for name, entry in entries.items():
        fixed = width(entry)
        columns[name] = pa.array([row[name] for row in rows], pa.large_binary() if fixed is None else pa.binary(fixed))
    columns[NAME] = pa.array([name.encode("utf-8", "backslashreplace") for name in names], pa.large_binary())
    columns[SUM] = pa.array([checksum(row.values()) for row in rows], pa.uint32())
    return pa.record_batch(columns)


def _table(batch: pa.RecordBatch, file: BinaryIO) -> None:
    with pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _save(values: np.ndarray, file: BinaryIO) -> None:
    np.save(file, values, allow_pickle=False)


def _rows(source: Source, first: int, last: int, entries: dict[str, Entry], decode: Decode | None = None) -> Iterator[dict[str, bytes]]:
    """Examples from `first` up to `last` as bytes by name; what of an entry is free is padded by nothing."""
    base, numbers = origin(source.subset(np.arange(first, last)))
    if base.arrays is not None and decode is None:
        for number in numbers:
            yield {name: np.ascontiguousarray(base.arrays[name][number]).tobytes() for name in entries}
        return

    def one(number: tf.Tensor) -> Tensors:
        raw = {name: value[0] for name, value in source.gather(number[None]).items()}
        return decode(raw, None) if decode else raw

    if isinstance(source, StreamSource):
        dataset = source.dataset(None, start=first).take(last - first)  # as they are stored, which is their number
        if decode:
            dataset = mapped(dataset, lambda raw: decode(raw, None), tf.data.AUTOTUNE)
    else:
        dataset = mapped(tf.data.Dataset.range(first, last), one, tf.data.AUTOTUNE)
    done = first
    try:
        for row in dataset.prefetch(64).as_numpy_iterator():
            yield _as_bytes(row, entries)
            done += 1
    except tf.errors.OpError as error:
        raise bad_example(source, decode, range(done, min(last, done + 64))) or DataError(
            f"{source.name(done)}: cannot be read: {reason(error)}") from error


def _as_bytes(row: Mapping[str, Any], entries: Iterable[str]) -> dict[str, bytes]:
    return {name: row[name] if isinstance(row[name], bytes) else np.ascontiguousarray(row[name]).tobytes() for name in entries}


def _plain(name: str, values: Any) -> np.ndarray:
    """What is beside the examples as an array without objects."""
    if name == "groups":
        return np.asarray(values).astype(str)
    return np.asarray(values, np.int32) if name == "lengths" else np.asarray(values)
