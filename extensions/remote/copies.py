"""Copies of a store's objects on this machine: fetched once, and again where the store has another version."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from extensions.remote.objects import Entry, Missing, Objects, objects_of
from pipelines.base.errors import DataError
from pipelines.base.files import write_json
from pipelines.base.stored import Count, Record, Text, read
from pipelines.stores.remote import Address

INDEX = "index.json"
FETCHES = 16  # at a time


class Known(Record):
    """An object as it was fetched."""

    size: Count
    version: Text


class Index(Record):
    """index.json beside a copy."""

    address: Text
    objects: dict[str, Known]


def copied(address: Address, *, wanted: Callable[[str, Entry], bool] = lambda name, entry: True) -> Path:
    """Brings the copy of an object, or of all below an address, up to date; where it is.

    Args:
        wanted: says of a name below the address whether it is fetched.
    """
    objects, place = objects_of(address), _place(address)
    found = objects.entries(address.key)
    if not found:
        raise DataError(f"{address}: there is nothing at this address")
    below = {_below(address, key): (key, entry) for key, entry in found.items()}
    with _locked(place):
        target = place.joinpath(*(address.key.split("/")[-3:] if address.key else [address.bucket]))  # as a run's folder is named
        bring(objects, {name: one for name, one in below.items() if wanted(name, one[1])}, target, place / INDEX, str(address))
    return target


def bring(objects: Objects, found: dict[str, tuple[str, Entry]], target: Path, index: Path, address: str) -> None:
    """Makes `target` hold these objects and no other files of its index.

    Args:
        found: name below `target` ("": itself) -> (key, entry).
        index: the file that says which versions are there.
    """
    for name in found:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name or "\\" in name:
            raise DataError(f"{address}: holds an object whose name is no path: {name!r}")
    known = read(index, Index).objects if index.exists() else {}
    stale = [name for name, (_, entry) in found.items()
             if known.get(name) != Known(size=entry.size, version=entry.version) or not _is_there(target / name if name else target, entry)]
    _check_room(target, sum(found[name][1].size for name in stale), address)
    for name in set(known) - set(found):
        (target / name if name else target).unlink(missing_ok=True)

    def fetch(name: str) -> None:
        if name.endswith("/"):  # what consoles write for an empty folder
            return
        try:
            objects.fetch(found[name][0], target / name if name else target)
        except Missing:
            raise DataError(f"{address}: {name}: was removed while it was fetched; give the same command again") from None

    with ThreadPoolExecutor(FETCHES) as pool:
        list(pool.map(fetch, stale))
    note(index, address, {name: entry for name, (_, entry) in found.items()})


def note(index: Path, address: str, entries: dict[str, Entry]) -> None:
    """Writes which versions a copy holds."""
    write_json(index, {"address": address, "objects": {name: {"size": one.size, "version": one.version} for name, one in entries.items()}})


def cache() -> Path:
    """Where copies and the folders of runs in stores are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet" / "stores"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Waits until no other process of this machine holds the folder, which is created; the system lets go of it when its holder ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(ImportError):  # Windows: without
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _place(address: Address) -> Path:
    return cache() / hashlib.sha256(str(address).encode()).hexdigest()[:24]


def _below(address: Address, key: str) -> str:
    return "" if key == address.key else key[len(address.key):].lstrip("/") if address.key else key


def _is_there(path: Path, entry: Entry) -> bool:
    try:
        return path.stat().st_size == entry.size
    except OSError:
        return False


def _check_room(target: Path, size: int, address: str) -> None:
    place = next(parent for parent in target.absolute().parents if parent.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise DataError(f"{address}: {size / 1e9:,.1f} GB are to be fetched, and {place} has {free / 1e9:,.1f} GB free; "
                        "free some, or let XDG_CACHE_HOME name a larger disk")
