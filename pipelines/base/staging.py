"""Files and folders being written: named for their target, locked while in use, removed when abandoned.

`.report.json.1f09c2ab.part` lies beside `report.json`. Its writer holds a lock on it, which the system releases when the process
ends, however it ends. So what can be locked is abandoned, whatever process, container or machine wrote it. Where the
file system has no locks, nothing is swept.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable

from pipelines.base.inside import NO_LINK

_PART = re.compile(r"\.(?P<target>.+)\.[0-9a-z_]{8}\.part", re.DOTALL)
_ASIDE = re.compile(r"\.(?P<target>.+)\.[0-9a-z_]{8}\.old", re.DOTALL)
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2


def stage_file(folder: int, target: str) -> tuple[int, str]:
    """Creates a file beside its target. Returns (descriptor, opened for reading and writing and locked; name).

    Args:
        folder: descriptor of the folder.
        target: the name that it will have.
    """
    return _stage(folder, target, lambda name: os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666, dir_fd=folder))


def stage_folder(folder: int, target: str) -> tuple[int, str]:
    """The same with a new folder; its descriptor is for reading."""

    def make(name: str) -> int:
        os.mkdir(name, dir_fd=folder)
        return os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)

    return _stage(folder, target, make)


def _stage(folder: int, target: str, make: Callable[[str], int]) -> tuple[int, str]:
    for _ in range(100):
        name = f".{target}.{secrets.token_hex(4)}.part"
        try:
            descriptor = make(name)
        except (FileExistsError, FileNotFoundError):  # the name is taken; or it was swept before it could be opened
            continue
        _lock(descriptor, wait=True)
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False)):
                return descriptor, name
        except FileNotFoundError:  # swept before it was locked
            pass
        os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "its folder was removed")


def sweep(folder: int, target: str | None = None) -> None:
    """Removes leftovers of killed writers.

    Args:
        folder: descriptor of the folder.
        target: only leftovers of this name; None for all in this folder.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _PART.fullmatch(name) or _ASIDE.fullmatch(name)
            if not match or target not in (None, match["target"]):
                continue
            with contextlib.suppress(OSError):
                if name.endswith(".old") and not _there(folder, match["target"]):
                    os.rename(name, match["target"], src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    _remove_unlocked(folder, name)


def sweep_tree(root: str | os.PathLike[str]) -> None:
    """`sweep` in a folder and all folders below it."""
    for _, names, _, folder in os.fwalk(os.path.realpath(root)):
        names[:] = [name for name in names if not _PART.fullmatch(name)]
        sweep(folder)


def _remove_unlocked(folder: int, name: str) -> None:
    try:
        descriptor = os.open(name, os.O_RDWR | NO_LINK, dir_fd=folder)  # a network's file system locks only what is open for writing
    except IsADirectoryError:
        descriptor = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)
    try:
        kind = os.fstat(descriptor).st_mode
        if (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and _lock(descriptor, wait=False):
            remove(folder, name)
    finally:
        os.close(descriptor)


def remove(folder: int, name: str) -> None:
    """Removes a file, or a folder with all that is in it; follows no link. A missing one is fine."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return os.unlink(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)
        try:
            for one in os.listdir(inner):
                remove(inner, one)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def put(folder: int, name: str, target: str) -> None:
    """Gives a staged folder its target's name. An existing folder stays whole until then, and has the staging name afterwards.

    Where the system cannot exchange two names at once, the old one is moved aside for a moment; after a kill then, `sweep` puts it back.

    Raises:
        OSError: as the system gives it; the old folder is back.
    """
    if not _there(folder, target):
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)
    elif not _exchange(folder, name, target):
        aside = f".{target}.{secrets.token_hex(4)}.old"
        os.rename(target, aside, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.rename(aside, target, src_dir_fd=folder, dst_dir_fd=folder)
            raise
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _exchange(folder: int, one: str, other: str) -> bool:
    """Exchanges two names in one step of the system (Linux); False where this file system has none."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number))


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Whether this process has the lock now; False where another has it, or the file system has none."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True
