"""What is at addresses, such as s3://BUCKET/PATH, comes from remote stores that extensions bring (the other face of the door `storage`).

The core asks for a copy of data on this machine, for a folder of this machine in which a run is trained, and for writing results. Imports
no TensorFlow.
"""

import contextlib
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipelines.base.errors import ConfigError
from pipelines.base.files import whole_folder, write_whole

_FORM = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(.*)", re.DOTALL)  # one slash: what pathlib makes of two


@dataclass(frozen=True)
class Address:
    """Some objects of a store.

    Attributes:
        protocol: s3, gs, az or another.
        bucket: the first part of the path: a bucket, a container, a host.
        key: the rest, without slashes at its ends; may be empty.
    """

    protocol: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.protocol}://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, name: str) -> "Address":
        return Address(self.protocol, self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return (self.key or self.bucket).rpartition("/")[2]

    @property
    def parent(self) -> "Address":
        return Address(self.protocol, self.bucket, self.key.rpartition("/")[0])


def address_of(given: str | Path) -> Address | None:
    """The address that a person gave, also where it has gone through a Path; None for a path of this machine.

    Raises:
        ConfigError: an address without a bucket.
    """
    form = _FORM.fullmatch(str(given))
    if form is None or form[1] == "file":
        return None
    bucket, _, key = form[2].partition("/")
    if not bucket:
        raise ConfigError(f"{given}: names no bucket; write {form[1]}://BUCKET/PATH")
    if ".." in key.split("/"):
        raise ConfigError(f"{given}: has .. in it; write the path itself")
    return Address(form[1], bucket, re.sub(r"/+", "/", key).strip("/"))


class Remote(ABC):
    """A store of objects: files at addresses, each written whole or not at all, without folders of their own.

    Raises:
        QuartetError: from any method, where the store refuses or does not answer; names the address.
    """

    def takes(self, address: Address) -> bool:
        """Whether it is asked about an address; the store that was added last is asked first."""
        return True

    @abstractmethod
    def copy(self, address: Address) -> Path:
        """A copy on this machine of an object, or of all below an address, as the store has it now; DataError where nothing is there."""

    @abstractmethod
    def sizes(self, address: Address) -> dict[str, int]:
        """Name below the address -> bytes of all objects there, in order; "" of the object at the address itself."""

    @abstractmethod
    def read(self, address: Address) -> bytes:
        """An object."""

    @abstractmethod
    def put(self, address: Address, content: bytes | Path) -> None:
        """Writes an object: bytes, or a file of this machine."""

    @abstractmethod
    def delete(self, addresses: Iterable[Address]) -> None:
        """Removes objects, in this order; those that are gone already do not matter."""

    def work_folder(self, address: Address, names: Sequence[str], *, fresh: bool, say: Callable[[str], None],
                    writes: bool) -> AbstractContextManager[Path]:
        """The folder of this machine in which a run or a search at an address works: it begins with what the store has, and is sent there
        so that at every moment another process could resume it.

        Args:
            names: of its folder, and of those beside it that belong to it.
            fresh: what is in the store is moved aside to <name>~1, <name>~2, ...
            writes: whether this process does; of several hosts, the chief alone.
        """
        raise ConfigError(f"{address}: runs cannot be kept there; give --runs a folder of this machine")

    def runs(self, address: Address) -> dict[str, int]:
        """Run -> bytes, of all runs below an address, by their names there."""
        names = self.sizes(address)
        runs = [name.rpartition("/")[0] for name in names if name.endswith("/experiment.yaml")]
        return {run: sum(size for name, size in names.items() if name.startswith(f"{run}/")) for run in runs}

    def listing(self, address: Address) -> tuple[Path, set[str]]:
        """A copy of what a listing of the runs below an address reads, and which of them are being trained."""
        return self.copy(address), set()

    def run(self, address: Address) -> Path:
        """A copy of a finished run, to be used."""
        return self.copy(address)

    def put_back(self, folder: Path, address: Address) -> None:
        """Sends what was added to the copy of a run."""
        raise ConfigError(f"{address}: nothing can be written to it")


_installed: Callable[[], Sequence[Remote]] = tuple


def install(remotes: Callable[[], Sequence[Remote]]) -> None:
    """Says where the stores of extensions are asked for."""
    global _installed
    _installed = remotes


def remote_of(address: Address) -> Remote:
    """The store that has an address. Raises ConfigError where no extension takes it."""
    for remote in reversed(_installed()):
        if remote.takes(address):
            return remote
    raise ConfigError(f"{address}: no extension is there that reads such addresses; give a path of this machine")


_copies: dict[Address, Path] = {}  # those that this process has looked at


def local(path: str | Path, *, folder: bool = False) -> Path:
    """A path of this machine as it is; of an address, the copy, which is brought up to date once for each process.

    Args:
        folder: files beside an object belong to it, such as the recordings that a table names: its whole folder is fetched.

    Raises:
        QuartetError: the store cannot be read, nothing is there, or this machine's disk has no room.
    """
    address = address_of(path)
    if address is None:
        return Path(path)
    if folder and "." in address.name and address.key.count("/"):
        return local(str(address.parent)) / address.name
    if address not in _copies:
        _copies[address] = remote_of(address).copy(address)
    return _copies[address]


def named(text: str) -> str:
    """A message, with addresses in place of the paths of their copies."""
    for address, path in _copies.items():
        text = text.replace(str(path), str(address))
    return text


def origin(path: Path) -> Address | None:
    """The address of a copy."""
    return next((address for address, copy in _copies.items() if copy == path), None)


def called(path: Path, address: Address) -> None:
    """From now on, `named` gives this folder of this machine its address."""
    _copies[address] = path


def inputs(given: Iterable[str]) -> list[str]:
    """What a person named to be read, addresses as the copies' paths; with * or ? in the last part, of the folder above."""
    paths = []
    for one in given:
        address = address_of(one) if "://" in one and " " not in one else None
        if address is None:
            paths.append(one)
        elif set(address.key) & set("*?["):
            parts = address.key.split("/")
            first = next(place for place, part in enumerate(parts) if set(part) & set("*?["))
            above = Address(address.protocol, address.bucket, "/".join(parts[:first]))
            paths.append(str(local(str(above)) / "/".join(parts[first:])))
        else:
            paths.append(str(local(one)))
    return paths


def refuse_existing(output: Path | None, replace: bool) -> None:
    """Raises ConfigError where something is there that may not be replaced."""
    address = address_of(output) if output is not None else None
    there = bool(remote_of(address).sizes(address)) if address else output is not None and output.exists()
    if there and not replace:
        raise ConfigError(f"--output: {address or output} is there already; --replace writes over it")


@contextlib.contextmanager
def file_for(output: Path) -> Iterator[Path]:
    """A file to write: the output itself, or one of this machine that is sent to its address once it is whole."""
    address = address_of(output)
    if address is None:
        yield output
        return
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / address.name
        yield file
        remote_of(address).put(address, file)


def write_output(output: Path, content: Callable[[BinaryIO], None]) -> None:
    """`write_whole`, also to an address."""
    with file_for(output) as file:
        write_whole(file, content)


class OutputFolder:
    """A folder that is filled file by file, each whole or absent: of this machine, or at an address.

    Raises:
        ConfigError: it is a file.
    """

    def __init__(self, output: Path):
        self._path, self._address = output, address_of(output)
        if self._address is None and output.exists() and not output.is_dir():
            raise ConfigError(f"--output: {output} is a file; here it is a folder")
        self._remote = remote_of(self._address) if self._address else None

    def __str__(self) -> str:
        return str(self._address or self._path)

    @property
    def absolute(self) -> str:
        """As any process of any machine may name it."""
        return str(self._address or self._path.absolute())

    def names(self) -> list[str]:
        """Of all that is there, in order; of a store also what is further below."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Name -> bytes of all that is there, in order; of a store also what is further below."""
        if self._remote and self._address:
            return self._remote.sizes(self._address)
        if not self._path.is_dir():
            return {}
        with os.scandir(self._path) as files:
            return dict(sorted((file.name, file.stat(follow_symlinks=False).st_size) for file in files))

    def read(self, name: str) -> bytes:
        return self._remote.read(self._at(name)) if self._remote else (self._path / name).read_bytes()

    def write(self, name: str, content: bytes | Callable[[BinaryIO], None]) -> None:
        """The content, or what writes it to an open file."""
        if callable(content):
            write_output(self._path / name, content)
        elif self._remote:
            self._remote.put(self._at(name), content)
        else:
            write_whole(self._path / name, content)

    @contextlib.contextmanager
    def filled(self) -> Iterator[Path]:
        """A folder of this machine to write files into, from which all are in the output at the end: at once where that is a path, else
        one by one, and what names the others (prepared.json) last."""
        if self._remote is None:
            with whole_folder(self._path) as place:
                yield place
            return
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
            for file in sorted(Path(temporary).iterdir(), key=lambda file: (file.suffix == ".json", file.name)):
                self._remote.put(self._at(file.name), file)

    def remove(self, names: Iterable[str]) -> None:
        """In this order; those that are gone already do not matter."""
        if self._remote:
            return self._remote.delete(self._at(name) for name in names)
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def _at(self, name: str) -> Address:
        assert self._address is not None
        return self._address / name
