"""Regular files: reading a named pipe would wait, and a device may never end. Imports no TensorFlow.

Links to files are files. Code that opens a path from a user or from a folder checks it here first.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pipelines.base.errors import DataError, QuartetError

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
