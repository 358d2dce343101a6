"""Examples written once into shards, and read by number from there: memory-mapped, whatever their size.

A shard is a file of Apache Arrow (one record batch) with a column for each entry of an example, its name, and a checksum. Nothing of it
is read before it is asked for, so that a start costs the same for a thousand examples and for a hundred million.
"""

import contextlib
import functools
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pydantic import Field

from pipelines.base.errors import DataError
from pipelines.base.stored import Count, FolderName, Name, Record, Text
from pipelines.data.source import Source, Tensors

OPEN = 256  # shards that are kept open at a time
NAME, SUM = "#name", "#sum"  # columns beside the entries
BESIDE = ("labels", "groups", "pieces", "lengths")  # of a source, kept in files of their own


class Entry(Record):
    """An entry of an example: null stands for a dimension that is free."""

    dtype: Text
    shape: list[Count | None]


class Shard(Record):
    """A file of examples."""

    file: FolderName
    examples: Annotated[int, Field(ge=1)]
    bytes: Count


class Stored(Record):
    """A split in shards."""

    fingerprint: Text
    stamp: Text = ""
    entries: dict[Name, Entry]
    raw: dict[Name, Entry] | None = None  # those of the examples before they were decoded; None: they were not
    shards: list[Shard]
    beside: dict[Name, FolderName] = {}
    more: FolderName | None = None


def width(entry: Entry) -> int | None:
    """Bytes of an entry of fixed shape; None where examples differ."""
    if entry.dtype == "string" or None in entry.shape:
        return None
    return int(np.prod(entry.shape, dtype=np.int64)) * tf.as_dtype(entry.dtype).size  # type: ignore[arg-type]


def _specs(entries: dict[str, Entry]) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(entry.shape, tf.as_dtype(entry.dtype)) for name, entry in entries.items()}


def checksum(values: Iterable[bytes]) -> int:
    total = 0
    for value in values:
        total = zlib.crc32(value, total)
    return total


class ShardSource(Source):
    """A split that pipelines.data.shard_writing has written, read by number.

    Args:
        folder: where its files lie.
        stored: what was written.
        title: names it in messages.

    Raises:
        DataError: a shard is missing, or has not the size that was written.
    """

    mapped = True

    def __init__(self, folder: Path, stored: Stored, title: str):
        self.folder, self.stored, self.title = folder, stored, title
        for shard in stored.shards:
            path = folder / shard.file
            if not path.is_file():
                raise DataError(f"{path}: a shard is missing; copy the folder again, or write it anew (quartet prepare)")
            if path.stat().st_size != shard.bytes:
                raise DataError(f"{path}: {path.stat().st_size:,} bytes, and {shard.bytes:,} were written; {_REMEDY}")
        self._ends = np.cumsum([shard.examples for shard in stored.shards])
        self.spec = _specs(stored.entries)
        self.decoded = None if stored.raw is None else _specs(stored.raw)
        for name in BESIDE:
            setattr(self, name, self._beside(name))
        self._shard = functools.lru_cache(OPEN)(self._open)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @tf.autograph.experimental.do_not_convert
    def gather(self, numbers: tf.Tensor) -> Tensors:
        names = list(self.spec)
        values = tf.numpy_function(lambda some: self._read(some, names), [numbers], [self.spec[name].dtype for name in names])
        return {name: tf.ensure_shape(value, [numbers.shape[0], *self.spec[name].shape]) for name, value in zip(names, values)}

    def name(self, number: int) -> str:
        shard, place = self._place(number)
        return self._shard(shard)[NAME][place].decode("utf-8", "backslashreplace")

    def fingerprint(self) -> str:
        return self.stored.fingerprint

    def stamp(self) -> str:
        return self.stored.stamp

    def row(self, number: int) -> dict[str, bytes]:
        """One example's entries as bytes, checked. Raises DataError where they are not what was written."""
        shard, place = self._place(number)
        columns = self._shard(shard)
        with contextlib.suppress(ValueError):
            values = {name: columns[name][place] for name in self.spec}
            if checksum(values.values()) == columns[SUM][place]:
                return values
        raise DataError(f"{self.folder / self.stored.shards[shard].file}: example {place} is not what was written; {_REMEDY}")

    def values(self, number: int, name: str) -> np.ndarray:
        """An entry of one example that is no string."""
        return self._shaped(self.row(number)[name], name)

    def column(self, name: str) -> np.ndarray:
        """An entry of fixed shape of all examples, [examples, ...], read in one pass over that column alone; not checked."""
        parts = []
        for number, shard in enumerate(self.stored.shards):
            values = self._shard(number)[name].values[:shard.examples * (width(self.stored.entries[name]) or 0)]
            parts.append(self._shaped(bytes(values), name, shard.examples))
        return np.concatenate(parts)

    def more(self) -> dict[str, "Texts"]:
        """The further texts of all examples, as they were given; they stay in the file."""
        if self.stored.more is None:
            return {}
        path = self.folder / self.stored.more
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            if reader.num_record_batches != 1:
                raise ValueError(f"it has {reader.num_record_batches} parts")
            batch = reader.get_batch(0)
            batch.validate()
            columns = {name: Texts(path, _Values(batch.column(name), None), batch.num_rows) for name in batch.schema.names}
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}; {_REMEDY}") from error
        if batch.num_rows != len(self):
            raise DataError(f"{path}: holds {batch.num_rows:,} rows of {len(self):,} examples; {_REMEDY}")
        return columns

    def _place(self, number: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._ends, number, side="right"))
        return shard, int(number) - int(self._ends[shard] - self.stored.shards[shard].examples)

    def _read(self, numbers: np.ndarray, names: list[str]) -> list[np.ndarray]:
        rows = [self.row(int(number)) for number in numbers]
        return [self._batch([row[name] for row in rows], name) for name in names]

    def _batch(self, values: list[bytes], name: str) -> np.ndarray:
        entry = self.stored.entries[name]
        if entry.dtype == "string":
            return np.array([bytes(value) for value in values], object)
        shaped = [self._shaped(value, name) for value in values]
        if None not in entry.shape:
            return np.stack(shaped)
        most = np.max([one.shape for one in shaped], axis=0)
        batch = np.zeros((len(shaped), *most), shaped[0].dtype)
        for row, one in zip(batch, shaped):
            row[tuple(slice(size) for size in one.shape)] = one
        return batch

    def _shaped(self, value: bytes, name: str, *count: int) -> np.ndarray:
        entry = self.stored.entries[name]
        shape = [*count, *(-1 if size is None else size for size in entry.shape)]
        return np.frombuffer(value, tf.as_dtype(entry.dtype).as_numpy_dtype).reshape(shape)

    def _beside(self, name: str) -> np.ndarray | None:
        file = self.stored.beside.get(name)
        if file is None:
            return None
        try:
            values = np.load(self.folder / file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder / file}: cannot be read: {error}; {_REMEDY}") from error
        if len(values) != len(self):
            raise DataError(f"{self.folder / file}: holds {len(values):,} values of {len(self):,} examples; {_REMEDY}")
        return values

    def _open(self, number: int) -> dict[str, "_Values"]:
        """The columns of a shard by name, mapped."""
        shard = self.stored.shards[number]
        path = self.folder / shard.file
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            batch = reader.get_batch(0)
            batch.validate()  # not in full, which reads it whole: values are checked as they are read
            columns = {name: _Values(batch.column(name), None if name in (NAME, SUM) else width(self.stored.entries[name]))
                       for name in (*self.spec, NAME, SUM)}
            if batch.num_rows != shard.examples or reader.num_record_batches != 1:
                raise ValueError(f"{batch.num_rows:,} examples, not {shard.examples:,}")
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}; {_REMEDY}") from error
        return columns


_REMEDY = "it is damaged: copy it again, or write the folder anew (quartet prepare)"


class Texts(Sequence[str]):
    """Texts of all examples, read from their file one by one. Raises DataError where they are not what was written."""

    def __init__(self, path: Path, values: "_Values", count: int):
        self._path, self._values, self._count = path, values, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        try:
            return self._values[place % self._count].decode()
        except ValueError as error:
            raise DataError(f"{self._path}: text {place % self._count:,}: {error}; {_REMEDY}") from error


class _Values:
    """The values of a column by place: bytes, or a number of the column of checksums."""

    def __init__(self, column: pa.Array, width: int | None):
        self.column, self.width = column, width  # the column keeps the mapping alive
        buffers = column.buffers()
        wanted = pa.binary(width) if width is not None else column.type
        varying = (pa.large_binary(), pa.large_string())
        if column.type != wanted or column.offset or column.null_count or column.type not in (wanted, *varying, pa.uint32()):
            raise ValueError(f"a column is {column.type}")
        self.offsets = np.frombuffer(buffers[1], np.int64) if column.type in varying else None
        self.values = memoryview(buffers[-1]) if buffers[-1] is not None else memoryview(b"")
        self.numbers = np.frombuffer(buffers[1], np.uint32) if column.type == pa.uint32() else None

    def __getitem__(self, place: int) -> Any:
        if self.numbers is not None:
            return int(self.numbers[place])
        if self.offsets is not None:
            start, stop = int(self.offsets[place]), int(self.offsets[place + 1])
            if not 0 <= start <= stop <= len(self.values):
                raise ValueError(f"value {place:,} is not within its column")
            return bytes(self.values[start:stop])
        assert self.width is not None
        return bytes(self.values[place * self.width:(place + 1) * self.width])
