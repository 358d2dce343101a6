"""Folders that may be a stranger's: nothing in them is read or written through a link that leads out of them.

A run can come from anybody. Before its files are read or written, `refuse_links` scans the folder: whatever is neither a
regular file nor a folder is refused by name. While a process holds a folder (`held`), what it writes there goes through
descriptors of the folders on the way, each opened without following a link; so a link that appears meanwhile is not followed
either. The folder itself and what leads to it may be links: those are the user's own.

What libraries write by path (TensorBoard's events, a profile) goes into scanned folders; there, a folder that is turned into a link
after the scan would be followed.

Files are regular ones (`check_regular`): reading a named pipe would wait, and a device may never end. Imports no TensorFlow.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pipelines.base.errors import ConfigError, DataError, QuartetError

_FOLDER = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_CLOEXEC  # never waits for a FIFO
DEEPEST = 100  # folders within one another
_held: list[Path] = []  # folders that this process holds


class Linked(ConfigError):
    """Something in a run's folder leads out of it."""


def refuse_links(root: Path | str) -> None:
    """Scans a folder; a missing one is empty.

    Raises:
        Linked: a symbolic link, FIFO, socket or device, a folder that cannot be read, or folders nested deeper than any reader here
            follows; names it and the remedy.
    """
    folders = [(os.fspath(root), 0)]
    while folders:
        folder, depth = folders.pop()
        if depth > DEEPEST:
            raise Linked(f"{folder[:200]}...: lies {depth} folders deep, and no run has more than {DEEPEST}; remove it")
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, depth + 1))
                    elif not entry.is_file(follow_symlinks=False):
                        _refuse(entry)
        except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
            continue
        except OSError as error:
            raise Linked(f"{folder}: cannot be read ({error.strerror}); make it readable, or remove it") from None


def _refuse(entry: "os.DirEntry[str]") -> None:
    if entry.is_symlink():
        raise Linked(f"{entry.path}: is a link to {os.readlink(entry.path)!r}; a run is read and written inside its folder alone, and no "
                     "link is followed out of it. Put what it leads to in its place, or remove it")
    with contextlib.suppress(FileNotFoundError):
        entry.stat(follow_symlinks=False)  # a file removed meanwhile does not count, either
        raise Linked(f"{entry.path}: is neither a file nor a folder (a FIFO, socket or device); no run has such things. Remove it")


@contextlib.contextmanager
def held(root: Path | str) -> Iterator[None]:
    """While this lasts, nothing that this process writes below `root` through `opened` follows a link there.

    Raises:
        Linked: as `refuse_links`.
    """
    refuse_links(root)
    place = _absolute(root)
    _held.append(place)
    try:
        yield
    finally:
        _held.remove(place)


@contextlib.contextmanager
def opened(folder: Path | str) -> Iterator[int]:
    """A descriptor of a folder, which is created with its parents where missing.

    Raises:
        OSError: it cannot be created or opened; in a held folder also where a link is on the way.
    """
    descriptor = _open(_absolute(folder))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    root = next((root for root in _held if root == folder or root in folder.parents), None)
    if root is None:
        _make(folder)
        return os.open(folder, _FOLDER)
    _make(root)
    descriptor = os.open(root, _FOLDER)
    for name in folder.relative_to(root).parts:
        outer = descriptor
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=outer)
                os.fsync(outer)
            descriptor = os.open(name, _FOLDER | NO_LINK, dir_fd=outer)
        finally:
            os.close(outer)
    return descriptor


def make(folder: Path | str) -> None:
    """Makes a folder with its parents for a library that writes into it by path.

    Raises:
        OSError: as `opened`.
    """
    os.close(_open(_absolute(folder)))


def _make(folder: Path) -> None:
    """Makes a folder with its parents, and flushes the entries that name them to the disk, too."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    flush(folder.parent)


def flush(path: Path | str) -> None:
    """Flushes a file's content, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_own(path: Path | str, flags: int) -> int:
    """A descriptor of a file that is written in place; created where missing.

    Raises:
        Linked: the path is a link, is not a file, or has a second name elsewhere.
        OSError: as the system gives it.
    """
    path = _absolute(path)
    with opened(path.parent) as folder:
        try:
            descriptor = os.open(path.name, flags | os.O_CREAT | NO_LINK, 0o666, dir_fd=folder)
        except OSError:
            if path.is_symlink():
                raise Linked(f"{path}: is a link, and is not written through; remove it") from None
            raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        what = "has a second name elsewhere (a hard link)" if stat.S_ISREG(status.st_mode) else "is not a file"
        raise Linked(f"{path}: {what}, and is not written to; put a copy of its own in its place, or remove it")
    return descriptor


def _absolute(path: Path | str) -> Path:
    return Path(os.path.abspath(path))


_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
          (stat.S_ISSOCK, "a socket"))


def other_kind(path: str | Path) -> str | None:
    """The kind of a path that is not a regular file ("a named pipe"); None for a regular file, and where unknown."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # missing, or a loop of links, or a name with a NUL: opening it reports that
        return None
    return None if stat.S_ISREG(mode) else next((name for test, name in _KINDS if test(mode)), "a special file")


def check_regular(path: str | Path, setting: str = "", error: type[QuartetError] = DataError) -> None:
    """Raises `error` for a folder, a named pipe, a device or a socket; a missing path passes.

    Args:
        setting: what named the path, such as `data.items`.
    """
    kind = other_kind(path)
    if kind:
        remedy = "name a file" if kind == "a folder" else "only regular files are read; copy what it gives into one"
        raise error(f"{setting + ': ' if setting else ''}{path} is {kind}; {remedy}")


def all_below(folder: Path) -> Iterator[Path]:
    """Every file and folder below a folder, in no order, however deep (`os.walk` and `rglob` call themselves for each level). Links are not
    entered; folders that cannot be read are passed over."""
    folders = [folder]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                yield path
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)


def read_small(path: str | Path, limit: int) -> bytes:
    """A file of at most `limit` bytes. Raises DataError for a larger or special one, OSError as usual."""
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DataError(f"{path} has more than {limit:,} bytes, more than such a file ever needs; it is not read")
    return content


def digest(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
