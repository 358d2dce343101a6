"""Files written whole or not at all.

Everything in a run directory goes through `write_whole`: a reader, a resume or a kill at any moment sees
either the old file or the new one.
"""

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.errors import QuartetError


class WriteError(QuartetError, OSError):
    """The system did not take a file of ours: a full disk, a folder that may not be written to. Errors of reading stay what they are."""

    def __str__(self) -> str:
        remedy = "free some space and give the same command again" if disk_full(self) else "mend that, or choose another place"
        return f"{self.filename}: cannot be written: {why(self)}; {remedy}"


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """What is done here writes `path`.

    Raises:
        WriteError: an OSError of it, with the file and the reason.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


def why(error: OSError) -> str:
    """Why a write failed, for a person."""
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file stands where its folder should be"
    return "the disk is full" if disk_full(error) else str(error.strerror or error)


def disk_full(error: OSError) -> bool:
    """Whether a write failed for want of room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path | str, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Writes a file beside its target, flushes it to the disk, and renames it into place.

    Args:
        path: the target; its folder is made.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.

    Raises:
        WriteError: the system does not take it (a full disk, no permission); the target is then as it was.
    """
    path = Path(path)
    with writing(path):
        _write_whole(path, content)


def _write_whole(path: Path, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path | str, value: Any) -> None:
    """Writes `value` as indented JSON, whole; NaN and infinities become null, so that any reader takes it."""
    write_whole(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """`value` with plain Python types for JSON: numpy numbers unpacked, non-finite floats as None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float) and not (value == value and abs(value) != float("inf")):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
