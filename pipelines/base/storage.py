"""How the bytes of files are kept: on the disk as they are, or in the form of a storage that an extension brings (the door `storage`).

`files.write_whole`, `files.whole_folder` and `stored.open_regular` ask here, so that nobody who reads or writes a run knows of a storage.
Imports no TensorFlow.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from pipelines.base.errors import ConfigError

Write = Callable[[BinaryIO], object]


class Closed(ConfigError):
    """A storage cannot read or write something here, such as for a key that is missing; `state` is a word for a list of runs."""

    state = "closed"


class Storage:
    """A form in which the files of some folders are kept. Such a folder holds a file, the marker, that says so.

    Files are read by what they begin with, wherever they lie; they are written in this form below a marked folder. Every method may raise
    Closed.

    Attributes:
        marker: the name of the marker.
        option: of `quartet train`, which asks for this form; such as "--encrypt".
    """

    marker = ""
    option = ""

    def check_begin(self, folder: Path, *, begun: bool) -> None:
        """Raises ConfigError where a run or search cannot be trained in a folder, as what is there and what is asked for do not agree.

        Args:
            begun: it would be resumed; what is there was written by another process.
        """

    def begin(self, folder: Path) -> None:
        """A run or search is about to be trained in a folder, which is locked: marks it, where that is asked for."""

    def takes(self, inside: Path) -> bool:
        """Whether a file at that place in a marked folder has this form; others stay as they are, such as those that tools read."""
        return str(inside) != self.marker

    def check(self, folder: Path) -> None:
        """Raises Closed where a marked folder cannot be written here."""

    def holds(self, start: bytes) -> bool:
        """Whether a file that begins with these bytes, 64 at most, has this form."""
        raise NotImplementedError

    def write(self, write: Write, target: BinaryIO) -> None:
        """Writes what a function writes to an open file, in this form."""
        raise NotImplementedError

    def read(self, file: BinaryIO, path: Path) -> BinaryIO:
        """The content of an open file of this form, as a file that can be read anywhere; closes the one given."""
        raise NotImplementedError

    def refuse_plain(self, path: Path) -> None:
        """A file that should have this form has not. Raises Closed where that is a sign that somebody has put it there."""

    def workplace(self) -> AbstractContextManager[Path]:
        """A new private folder for what libraries read and write by path, as it is without this form; removed at the end."""
        return _temporary()

    def scratch(self) -> BinaryIO:
        """A new file without a name, for what is written in this form at its end."""
        return tempfile.TemporaryFile()

    def leave(self) -> None:
        """This process ends without what is registered for its end."""

    def owns(self, path: Path | str) -> bool:
        """Whether what is written at that path has this form."""
        path = Path(os.path.abspath(path))
        folder = self.folder_of(path)
        if folder is None or not self.takes(path.relative_to(folder)):
            return False
        self.check(folder)
        return True

    def folder_of(self, path: Path) -> Path | None:
        """The nearest marked folder above a path."""
        return next((above for above in path.parents if (above / self.marker).is_file()), None)


_installed: Callable[[], Sequence[Storage]] = tuple


def install(storages: Callable[[], Sequence[Storage]]) -> None:
    """Says where the storages of extensions are asked for."""
    global _installed
    _installed = storages


def owner(path: Path | str) -> Storage | None:
    """The storage in whose form a file or folder is written; None: as it is. Raises Closed."""
    return next((storage for storage in _installed() if storage.owns(path)), None)


def holder(path: Path | str) -> Storage | None:
    """The storage in whose form a regular file is; None for one that is as it is, and for what cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            return _holder(file) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None


def opened(file: BinaryIO, path: Path | str) -> BinaryIO:
    """An open file as it is, or where it has the form of a storage, its content. Raises Closed, and OSError as reading does."""
    storage = _holder(file)
    if storage is not None:
        return storage.read(file, Path(path))
    _refuse_plain(path)
    return file


@contextlib.contextmanager
def readable(path: Path) -> Iterator[Path]:
    """A file or folder for a library that reads by path: as it is, or where something in it has the form of a storage, a copy without.

    Raises:
        Closed: the storage cannot read it.
    """
    files = [Path(place) / name for place, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    storage = next((found for file in files if (found := holder(file)) is not None), None)
    if storage is None:
        for file in files:
            _refuse_plain(file)
        yield path
        return
    with storage.workplace() as place:
        copy = place / path.absolute().name
        for file in files:
            target = copy / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "rb") as given, opened(given, file) as content, open(target, "xb") as written:
                shutil.copyfileobj(content, written, 1 << 20)
        yield copy


@contextlib.contextmanager
def workplace(beside: Path) -> Iterator[Path]:
    """A new private folder for what is made of what lies in a folder, such as a run's model; removed at the end. Raises Closed."""
    storage = owner(beside / "model")
    with storage.workplace() if storage else _temporary() as place:
        yield place


def write_folder(storage: Storage, plain: Path, target: Path) -> None:
    """Every file of a folder, written in the form of a storage into another folder, which is empty."""
    for place, folders, files in os.walk(plain):
        inside = Path(place).relative_to(plain)
        for name in folders:
            (target / inside / name).mkdir()
        for name in files:
            with open(Path(place) / name, "rb") as file, open(target / inside / name, "xb") as written:
                if storage.takes(inside / name):
                    storage.write(lambda to, file=file: shutil.copyfileobj(file, to), written)  # type: ignore[misc]
                else:
                    shutil.copyfileobj(file, written)


def check_begin(folder: Path, *, begun: bool) -> None:
    """As `Storage.check_begin`, of every storage."""
    for storage in _installed():
        storage.check_begin(folder, begun=begun)


def begin(folder: Path, *, begun: bool) -> None:
    """`Storage.check_begin` and `Storage.begin`, of every storage."""
    check_begin(folder, begun=begun)
    for storage in _installed():
        storage.begin(folder)


def is_private(folder: Path) -> bool:
    """Whether a run or search has the form of a storage, so that nothing of it may be shown elsewhere."""
    return any((folder / storage.marker).is_file() for storage in _installed())


def options(folder: Path) -> str:
    """What a command adds so that what it trains is kept as a folder is: " --encrypt", or nothing."""
    return "".join(f" {storage.option}" for storage in _installed() if (folder / storage.marker).is_file())


def markers() -> list[str]:
    """The names of all storages' markers."""
    return [storage.marker for storage in _installed() if storage.marker]


def leave() -> None:
    """As `Storage.leave`, of every storage."""
    for storage in _installed():
        storage.leave()


def _holder(file: BinaryIO) -> Storage | None:
    start = file.read(64)
    file.seek(0)
    return next((storage for storage in _installed() if storage.holds(start)), None)


def _refuse_plain(path: Path | str) -> None:
    for storage in _installed():
        storage.refuse_plain(Path(path))


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)
