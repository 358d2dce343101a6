"""Files and folders written whole or not at all.

Everything in a run directory goes through `write_whole`, what libraries write by path through `whole_folder`: a reader, a resume, a
kill or a power cut at any moment sees either the old one or the new. What grows (metrics.jsonl, a search's journal) goes through
`open_to_append`. `Background` writes in a thread of its own while other work goes on.
"""

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.base import storage
from pipelines.base.errors import QuartetError
from pipelines.base.inside import flush, open_own, opened
from pipelines.base.staging import put, remove, stage_file, stage_folder, sweep


class WriteError(QuartetError, OSError):
    """The system refuses to write a file: a full disk, a folder without permission. Errors of reading are not wrapped."""

    def __str__(self) -> str:
        remedy = "free some space and give the same command again" if disk_full(self) else "fix that, or choose another place"
        return f"{self.filename}: cannot be written: {why(self)}; {remedy}"


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Within, `path` is written.

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
    """Whether a write failed for lack of space."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path | str, content: bytes | str | Callable[[BinaryIO], None], *, plain: bool = False) -> None:
    """Writes a file beside its target, flushes it to the disk, and renames it into place.

    An existing link is replaced, not followed; leftovers of an earlier, killed writer of the same file are removed. It has the form of the
    storage that owns its folder.

    Args:
        path: the target; its folder is created.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.
        plain: as it is, whatever storage owns its folder.

    Raises:
        WriteError: the system refuses (a full disk, no permission); the target is then unchanged.
        Closed: the storage cannot be written.
    """
    path = Path(path)
    owner = None if plain else storage.owner(path)

    def write(file: BinaryIO) -> None:
        if callable(content):
            content(file)
        else:
            # a user's file name that is not UTF-8 must not end a report
            file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)

    with writing(path), opened(path.parent) as folder:
        sweep(folder, path.name)
        descriptor, name = stage_file(folder, path.name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if owner is None:
                    write(file)
                else:
                    owner.write(write, file)
                file.flush()
                os.fsync(file.fileno())
                os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, name)
            raise
        os.fsync(folder)


@contextlib.contextmanager
def whole_folder(target: Path | str, *, replace: bool = False, like: Path | None = None) -> Iterator[Path]:
    """A new folder to write into, beside its target; at the end it is flushed to the disk and renamed into place, or removed on an error.

    Leftovers of an earlier, killed writer of the same target are removed first. What a storage owns is written at a place of its own, and
    takes its form at the end.

    Args:
        target: its parent is created.
        replace: an existing target may be replaced; it stays whole until then.
        like: a path whose storage takes it where none owns the target.

    Raises:
        WriteError: the system refuses, or the target exists (without `replace`).
        Closed: the storage cannot be written.
    """
    target = Path(target)
    owner = storage.owner(target) or (storage.owner(like) if like is not None else None)
    with contextlib.ExitStack() as open_folder:
        with writing(target):
            folder = open_folder.enter_context(opened(target.parent))
            sweep(folder, target.name)
            descriptor, name = stage_folder(folder, target.name)
        try:
            staging = target.with_name(name)
            if owner is None:
                yield staging
            else:
                with owner.workplace() as plain:
                    yield plain
                    with writing(target):
                        storage.write_folder(owner, plain, staging)
            with writing(target):
                for place, _, files in os.walk(staging):
                    for one in (*files, "."):
                        flush(os.path.join(place, one))
                if not replace and os.path.lexists(target):
                    raise OSError(errno.ENOTEMPTY, "the target exists already")
                put(folder, name, target.name)
        finally:
            remove(folder, name)  # nothing, an unfinished folder, or the one replaced
            os.close(descriptor)


def open_to_append(path: Path | str) -> BinaryIO:
    """A file that grows at its end, unbuffered; created with its folder where missing. Neither a link nor a second name of a
    file elsewhere is written through.

    Raises:
        Linked: the path is one of these.
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


def write_json(path: Path | str, value: Any, *, plain: bool = False) -> None:
    """Writes `value` as indented JSON, as `write_whole`; NaN and infinities become null, so that any reader accepts it."""
    write_whole(path, as_json(value), plain=plain)


def as_json(value: Any) -> str:
    """`value` as `write_json` writes it."""
    return json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def abridged(value: Any, most: int = 100) -> Any:
    """`value` as `finite` gives it, with lists and mappings of more than `most` entries, at any depth, cut to their beginning: {"count",
    "first"}."""
    if isinstance(value, dict):
        if len(value) > most:
            return {"count": len(value), "first": finite(dict(itertools.islice(value.items(), 10)))}
        return {str(key): abridged(item, most) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and len(value) > most:
        return {"count": len(value), "first": finite(value[:10])}
    return finite(value)


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


class Background:
    """Works beside the thread that calls it, one thing at a time. The process does not end before what was begun is done.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str):
        self._pool = ThreadPoolExecutor(1, name)
        self._begun: tuple[Future[None], Callable[[OSError | None], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._begun is not None and not self._begun[0].done()

    def start(self, work: Callable[[], None], after: Callable[[OSError | None], None]) -> None:
        """Begins `work` once that before it is done and taken up.

        Args:
            work: called in the other thread; it must not touch what this thread changes.
            after: called by `collect`, in the thread that calls that, with the OSError that ended the work, or None.
        """
        self.collect(wait=True)
        self._begun = self._pool.submit(work), after

    def collect(self, *, wait: bool = False) -> None:
        """Takes up the outcome of work that is done; with `wait`, waits for it. Raises what other than an OSError ended it."""
        if self._begun is None or (self.busy and not wait):
            return
        (future, after), self._begun = self._begun, None
        error = future.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        after(error)
