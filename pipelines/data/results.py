"""What was computed of each example, such as an encoder's features: kept on disk by what it was computed from, or in memory.

On disk it is there for the next run of the same data too, and for every trial of a search; what no run has used for a month is removed.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.files import whole_folder, why
from pipelines.config.schema import Data
from pipelines.data.cache import cache_folder, disk_has_room, existing, write_header
from pipelines.machine import memory

Arrays = dict[str, np.ndarray]
Places = Any  # example numbers [batch] int64, or a pair of these and an index of the second dimension
UNUSED_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class Shapes:
    """Of arrays with a row for each example: name -> (shape of a row, dtype). Where that shape begins with None, an example has as many
    rows as `lengths` says, and they stand one example after the other."""

    examples: int
    rows: dict[str, tuple[tuple[int | None, ...], Any]]
    lengths: np.ndarray | None = None

    def free(self, name: str) -> bool:
        """Whether examples have rows of their own number."""
        return self.rows[name][0][:1] == (None,)

    def of(self, name: str) -> tuple[int, ...]:
        """The shape of a whole array."""
        shape: tuple[Any, ...] = self.rows[name][0]
        return (int(self._starts[-1]), *shape[1:]) if self.free(name) else (self.examples, *shape)

    def size(self, name: str) -> int:
        """Bytes of a whole array."""
        return int(np.prod(self.of(name), dtype=np.int64)) * np.dtype(self.rows[name][1]).itemsize

    @property
    def nbytes(self) -> int:
        return sum(map(self.size, self.rows))

    def placed(self, name: str, places: Places, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) of each example of a batch; with a second dimension among the places, of each row of that."""
        if self.free(name):
            for number, rows in zip(places, values):
                first, last = self._starts[number:number + 2].tolist()
                yield first, rows[:last - first]
            return
        shape: tuple[Any, ...] = self.rows[name][0]
        numbers = np.asarray(places[0]) * shape[0] + places[1] if isinstance(places, tuple) else np.asarray(places)
        yield from ((int(number), row[None]) for number, row in zip(numbers, values))

    @cached_property
    def _starts(self) -> np.ndarray:
        """Of each example's rows, and the end of the last."""
        return np.concatenate([[0], np.cumsum([] if self.lengths is None else self.lengths, dtype=np.int64)]).astype(np.int64)


def kept(shapes: Shapes, data: Data, key: str, compute: Callable[[], Iterator[tuple[Places, Arrays]]]) -> Arrays | None:
    """The arrays, computed now or found on disk; memory-mapped where they do not fit memory. None where there is no room.

    Args:
        data: `cache` and `cache_folder`; auto takes the disk, and memory where that has no room.
        key: all that the values depend on.
        compute: gives the values of each batch, with their places.

    Raises:
        DataError: the disk cache cannot be written.
    """
    folder = cache_folder(data) / "features"
    where: str = data.cache
    if where == "auto":
        writable = os.access(existing(folder), os.W_OK) and disk_has_room(folder, shapes.nbytes)
        where = "disk" if writable else "memory" if shapes.nbytes <= memory.room() else "none"
    if where == "none":
        return None
    if where == "memory":
        arrays = {name: np.zeros(shapes.of(name), dtype) for name, (_, dtype) in shapes.rows.items()}
        for places, values in compute():
            for name, value in values.items():
                if not shapes.free(name):
                    arrays[name][places] = value
                    continue
                for first, rows in shapes.placed(name, places, value):
                    arrays[name][first:first + len(rows)] = rows
        return arrays
    target = folder / hashlib.sha256(key.encode()).hexdigest()[:24]
    if target.exists():
        with contextlib.suppress(OSError):  # another user's
            os.utime(target)
    else:
        _write(target, shapes, compute)
    mapped = shapes.nbytes > memory.room()
    return {name: np.load(target / _file(name), mmap_mode="r" if mapped else None, allow_pickle=False) for name in shapes.rows}


def _write(target: Path, shapes: Shapes, compute: Callable[[], Iterator[tuple[Places, Arrays]]]) -> None:
    try:
        _remove_unused(target.parent)
        with whole_folder(target) as staging, ExitStack() as files:
            opened = {name: files.enter_context(open(staging / _file(name), "wb")) for name in shapes.rows}
            for name, (_, dtype) in shapes.rows.items():
                write_header(opened[name], shapes.of(name), dtype)
            begin = {name: file.tell() for name, file in opened.items()}
            for name, file in opened.items():  # rows come in any order
                file.truncate(begin[name] + shapes.size(name))
            for places, values in compute():
                for name, value in values.items():
                    for first, rows in shapes.placed(name, places, np.ascontiguousarray(value)):
                        if rows.size:
                            opened[name].seek(begin[name] + first * rows[0].nbytes)
                            opened[name].write(rows.tobytes())
    except OSError as error:
        if not target.exists():  # else another process was faster
            raise DataError(f"the disk cache {target.parent} cannot be written: {why(error)}; free some space, name another "
                            "data.cache_folder, or set data.cache: memory") from error


def _file(name: str) -> str:
    return name.replace("/", "-") + ".npy"


def _remove_unused(folder: Path) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            if entry.is_dir() and not entry.is_symlink() and time.time() - entry.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(entry)
