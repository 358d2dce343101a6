"""Arrays in an .npz file, read without trusting it: headers are checked against the bytes, and no Python objects are created.

Only what `numpy.savez` writes is accepted: plain arrays, not compressed, so that a small file cannot become a large one in memory.
Imports no TensorFlow.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.base.errors import TrainingError
from pipelines.base.stored import Schema, open_regular, parsed

_HEADER = 10_000  # characters of an array's header


class Damaged(TrainingError):
    """A file that is not a checkpoint, with the remedy."""

    def __init__(self, path: Path | str, why: str):
        super().__init__(f"{path}: not a readable checkpoint ({why}); start anew with --fresh")


class Header(NamedTuple):
    """The type and shape that an array's header states."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Arrays:
    """The arrays of an open file. Raises Damaged where an array is not what its header says."""

    def __init__(self, path: Path, archive: zipfile.ZipFile):
        self.path, self._archive = path, archive
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.names = frozenset(self._members)

    def header(self, name: str) -> Header:
        """Type and shape, without the values; checked against the file's size."""
        with self._opened(name) as (_, header, _order):
            return header

    def read(self, name: str) -> np.ndarray:
        """A read-only array."""
        with self._opened(name) as (file, header, order):
            return np.frombuffer(file.read(), header.dtype).reshape(header.shape, order=order)

    def json(self, name: str, schema: type[Schema]) -> Schema:
        """JSON from an array of bytes. Raises ConfigError where it does not fit the schema."""
        if name not in self.names or self.header(name).dtype != np.uint8:
            raise Damaged(self.path, f"it has no {name}")
        return parsed(self.read(name).tobytes(), schema, f"{self.path}: {name}")

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[Any, Header, Any]]:
        info = self._members[name]
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise Damaged(self.path, f"{name} is compressed")
        with self._archive.open(info) as file:
            header, order = _header(file)
            if header.dtype.hasobject or math.prod(header.shape) * header.dtype.itemsize != info.file_size - file.tell():
                raise Damaged(self.path, f"{name} is not what its header says")
            yield file, header, order


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Arrays]:
    """Opens a file of arrays.

    Raises:
        Damaged: it is missing, or not such a file.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield Arrays(path, archive)
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        lines = str(error).strip().splitlines()
        why = getattr(error, "strerror", None) or (lines[0][:200] if lines else type(error).__name__)
        raise Damaged(path, why) from error


def _header(file: Any) -> tuple[Header, str]:
    """(type and shape, "F" or "C" for the order of the values)."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of an array")
    try:
        shape, fortran, dtype = read(file, max_header_size=_HEADER)
    except Exception as error:  # numpy's header parser raises many kinds
        raise ValueError("the header of an array cannot be read") from error
    if any(size < 0 for size in shape):
        raise ValueError("an array has a negative size")
    return Header(dtype, shape), "F" if fortran else "C"
