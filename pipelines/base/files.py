"""Files and folders written whole or not at all.

Everything in a run directory goes through `write_whole`, what libraries write by path through `whole_folder`: a reader, a resume, a
kill or a power cut at any moment sees either the old one or the new. What grows (metrics.jsonl, a search's journal) goes through
`open_to_append`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.base.errors import QuartetError
from pipelines.base.inside import flush, open_own, opened
from pipelines.base.staging import put, remove, stage_file, stage_folder, sweep


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

    A link that stands there is replaced, not followed; what an earlier writer of the same file left, killed in the middle, goes.

    Args:
        path: the target; its folder is made.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.

    Raises:
        WriteError: the system does not take it (a full disk, no permission); the target is then as it was.
    """
    path = Path(path)
    with writing(path), opened(path.parent) as folder:
        sweep(folder, path.name)
        descriptor, name = stage_file(folder, path.name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if callable(content):
                    content(file)
                else:
                    # a name that is not UTF-8, of a file that somebody gave, must not end a report
                    file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, name)
            raise
        os.fsync(folder)


@contextlib.contextmanager
def whole_folder(target: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """A new folder to write into, beside its target; at the end it is flushed to the disk and put into place. On an error it goes.

    What an earlier writer of the same target left, killed in the middle, is swept away first.

    Args:
        target: its parent is made.
        replace: what stands there may go; it stands there whole until the new one does.

    Raises:
        WriteError: the system does not take it, or something stands there (without `replace`).
    """
    target = Path(target)
    with contextlib.ExitStack() as open_folder:
        with writing(target):
            folder = open_folder.enter_context(opened(target.parent))
            sweep(folder, target.name)
            descriptor, name = stage_folder(folder, target.name)
        try:
            staging = target.with_name(name)
            yield staging
            with writing(target):
                for place, _, files in os.walk(staging):
                    for one in (*files, "."):
                        flush(os.path.join(place, one))
                if not replace and os.path.lexists(target):
                    raise OSError(errno.ENOTEMPTY, "something stands there already")
                put(folder, name, target.name)
        finally:
            remove(folder, name)  # nothing, what is half, or what stood there before
            os.close(descriptor)


def open_to_append(path: Path | str) -> BinaryIO:
    """A file that grows at its end, unbuffered; it is made with its folder where it is not there. Neither a link nor a second name of a
    file elsewhere is written through.

    Raises:
        Linked: such a thing stands there.
        WriteError: the system does not let it be written.
    """
    with writing(path):
        return os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)


def append_whole(file: BinaryIO, content: bytes) -> None:
    """Writes to the end of an unbuffered file: all, or nothing that the next line would be glued to.

    Raises:
        OSError: as the system gives it, such as a full disk.
    """
    size, written = os.fstat(file.fileno()).st_size, 0
    try:
        while written < len(content):
            written += file.write(content[written:])
    except OSError:
        os.ftruncate(file.fileno(), size)
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
