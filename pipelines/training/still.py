"""What stands still from checkpoint to checkpoint, such as a frozen encoder: in a file of its own, written once.

A checkpoint names that file, and the checksum of each array that it takes from there. Whether an array stands still is not foretold but
seen: its bytes are those of an earlier step. So a checkpoint holds what it would hold by itself, to the bit; and since the file is whole
on the disk before a checkpoint names it, a kill at any moment leaves one that can be resumed.
"""

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np

from pipelines.base import npz
from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import write_whole
from pipelines.base.stored import FolderName, Name, Record, Schema, Text
from pipelines.machine.group import Group

ENTRY = "still"  # of a checkpoint, as JSON
LEAST = 1 << 20  # bytes for which a file is worth its while
SMALL = 1 << 10  # bytes of an array that is written each time without a look


class Part(Record):
    """What a checkpoint takes from another file: the checksum of each array by name."""

    file: FolderName
    sums: dict[Name, Text]


class Still:
    """The file of a folder of checkpoints; shared by all that write checkpoints there, in any thread."""

    def __init__(self, folder: Path):
        self.folder, self._lock = folder, threading.Lock()
        self._file, self._sums = "", dict[str, str]()
        self._since: dict[str, tuple[str, int]] = {}  # the checksum of an array, and the step of the first checkpoint that had it
        self._used: set[str] = set()

    def without(self, arrays: dict[str, np.ndarray], names: Sequence[str], step: int) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint less those that stand still, with the entry that says where these are.

        Args:
            names: of those that may stand still.
            step: of which they are.

        Raises:
            OSError: the disk does not take the file.
        """
        with self._lock:
            sums = {name: _sum(arrays[name]) for name in names}
            for name, one in sums.items():
                if self._since.get(name, ("", 0))[0] != one:
                    self._since[name] = one, step
            still = {name: one for name, one in sums.items() if self._since[name][1] < step}
            if sum(arrays[name].nbytes for name, one in still.items() if self._sums.get(name) != one) >= LEAST:
                self._write({name: arrays[name] for name in still}, still)
            taken = {name: one for name, one in still.items() if self._sums.get(name) == one}
            if not taken:
                return arrays
            entry = Part(file=self._file, sums=taken).model_dump_json().encode()
        return {**{name: value for name, value in arrays.items() if name not in taken}, ENTRY: np.frombuffer(entry, np.uint8)}

    def resumed(self, part: Part | None) -> None:
        """A checkpoint was loaded that takes `part` from its file: that is used again."""
        for best in self.folder.glob("best-*.npz"):
            with contextlib.suppress(npz.Damaged):
                self._used |= {named(best) or ""}
        if part is not None:
            self._file, self._sums = part.file, dict(part.sums)
            self._since = {name: (one, -1) for name, one in part.sums.items()}
            self._used.add(part.file)

    def prune(self) -> None:
        """Removes what a killed process left and no checkpoint names."""
        for file in self.folder.glob("still-*.npz"):
            if file.name not in self._used:
                file.unlink(missing_ok=True)

    def _write(self, arrays: dict[str, np.ndarray], sums: dict[str, str]) -> None:
        name = f"still-{hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()[:16]}.npz"
        self._used.add(name)
        write_whole(self.folder / name, lambda file: np.savez(file, allow_pickle=False, **arrays))  # type: ignore[arg-type]
        self._file, self._sums = name, sums


def candidates(groups: Mapping[str, Sequence[keras.Variable]], arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The arrays of a checkpoint that no gradient changes now, and that are worth a look."""
    names = [f"{group}/{number:04d}" for group, variables in groups.items() for number, variable in enumerate(variables)
             if not variable.trainable]
    return [name for name in names if arrays[name].nbytes >= SMALL]


class Whole:
    """The arrays of an open checkpoint, with those that it takes from another file. Raises npz.Damaged as npz.Arrays."""

    def __init__(self, own: npz.Arrays, other: npz.Arrays | None, part: Part | None):
        self.path, self.part, self._own, self._other = own.path, part, own, other
        self.names = (own.names | frozenset(part.sums if part else ())) - {ENTRY}
        if part and other and (missing := set(part.sums) - other.names):
            raise npz.Damaged(other.path, f"it has no {min(missing)}")

    def header(self, name: str) -> npz.Header:
        return self._of(name).header(name)

    def read(self, name: str) -> np.ndarray:
        """A read-only array, which has the checksum that the checkpoint states."""
        arrays, value = self._of(name), self._of(name).read(name)
        if arrays is self._other and self.part and _sum(value) != self.part.sums[name]:
            raise npz.Damaged(arrays.path, f"{name} is not what {self.path.name} names")
        return value

    def json(self, name: str, schema: type[Schema]) -> Schema:
        return self._own.json(name, schema)

    def _of(self, name: str) -> npz.Arrays:
        return self._own if name in self._own.names or self._other is None else self._other


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Whole]:
    """Opens a checkpoint, and the file beside it that it names. Raises npz.Damaged where one is missing, or no such file."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(npz.opened(path))
        part = _part(own)
        other = stack.enter_context(npz.opened(path.parent / part.file)) if part else None
        yield Whole(own, other, part)


def named(path: Path) -> str | None:
    """The file that a checkpoint names; None where it holds all. Raises npz.Damaged."""
    with npz.opened(path) as own:
        part = _part(own)
    return part.file if part else None


@contextlib.contextmanager
def of_chief(hosts: Group, path: Path) -> Iterator[Path]:
    """The chief's checkpoint, with the file that it names beside it: itself at the chief, a copy for as long as the context elsewhere."""
    if hosts.size == 1:
        yield path
    elif hosts.chief:
        try:
            files = [path, *(path.parent / name for name in [named(path) if path.exists() else None] if name)]
            hosts.of_chief([file.name for file in files])
            for file in files:
                hosts.of_chief(file.read_bytes())
        except OSError as error:
            raise TrainingError(f"{path}: cannot be read for the other hosts: {error.strerror or error}") from error
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="quartet-") as folder:
            for name in hosts.of_chief(None):
                (Path(folder) / name).write_bytes(hosts.of_chief(None))
            yield Path(folder) / path.name


def _part(own: npz.Arrays) -> Part | None:
    try:
        return own.json(ENTRY, Part) if ENTRY in own.names else None
    except ConfigError as error:
        raise npz.Damaged(own.path, str(error).removeprefix(f"{own.path}: ")) from None


def _sum(value: np.ndarray) -> str:
    digest = hashlib.sha256(f"{value.dtype.str} {value.shape}\0".encode())
    digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
