"""What a command writes, to a path of this machine or to an address: whole, or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.base.errors import ConfigError
from pipelines.base.files import whole_folder, write_whole
from pipelines.stores.remote import Address, address_of, remote_of


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
