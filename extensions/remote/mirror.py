"""A folder of this machine, and the same in a store: fetched before the work, sent while it goes on and at its end.

Promises: what the store holds can be resumed at any moment, however a process ended. Objects are written whole; of a checkpoint, what it
names goes first, and the checkpoint that names it after; what is no longer there is removed last; and a journal or a report, which says
what is done, follows all that was there when it was written. Who has lost the lease writes nothing more.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from extensions.remote.copies import bring
from extensions.remote.lease import NAME, Lease
from extensions.remote.objects import Changed, Entry, Objects
from pipelines.base.errors import HostLost, QuartetError
from pipelines.base.files import write_json
from pipelines.base.stored import Count, Record, Text, read
from pipelines.stores.remote import Address

EVERY = 5.0  # s between two looks at what has changed
LAST = ("checkpoints/resume.npz", "report/report.json", "journal.jsonl", "report/search.json")  # in this order, after all else
_LINKED = "checkpoints"  # its files are replaced by renaming, never written in place
_SMALL = 64 << 20  # bytes; what may grow while it is sent is read at once


class Sent(Record):
    """A file as it was when it was sent or fetched."""

    size: Count
    modified: int  # ns since 1970
    version: Text


class State(Record):
    """What a mirror keeps beside its folder."""

    address: Text
    files: dict[str, Sent]


@dataclass(frozen=True)
class _Read:
    """A file as it was when it was read: bytes and ns since 1970; one that is large or does not change is read as it is sent."""

    size: int
    modified: int
    content: bytes | Path


class Mirror:
    """Folders that stand beside each other, such as the runs of several seeds.

    Args:
        address: of what `folder` is on this machine.
        names: of the folders within it.
        lease: without it, nothing is written.
        say: told of what goes wrong while work goes on.
    """

    def __init__(self, objects: Objects, address: Address, folder: Path, names: Collection[str], lease: Lease,
                 say: Callable[[str], None] = lambda text: None):
        self.objects, self.address, self.folder, self.names, self.lease, self.say = objects, address, folder, tuple(names), lease, say
        self._record = folder / f".{self.names[0]}.mirror.json"
        self._links = folder / f".{self.names[0]}.mirror"
        self._sent: dict[str, Sent] = {}
        self._end, self._failed = threading.Event(), False
        self._thread: threading.Thread | None = None

    def fetch(self) -> None:
        """Makes the folders hold what the store does; where it holds what this machine has sent, nothing has to be fetched."""
        there = self.listed()
        kept = read(self._record, State).files if self._record.exists() else {}
        if {name: _tag(one.version) for name, one in kept.items()} == {name: _tag(entry.version) for name, entry in there.items()}:
            self._sent = kept
            return
        self._record.unlink(missing_ok=True)
        for name in self.names:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        index = self.folder / f".{self.names[0]}.fetched.json"
        bring(self.objects, {name: (f"{self.address.key}/{name}", entry) for name, entry in there.items()}, self.folder, index,
              str(self.address))
        index.unlink()
        self._sent = {name: _sent(self.folder / name, entry.version) for name, entry in there.items()}
        self._keep()

    def listed(self) -> dict[str, Entry]:
        """Name below the folder -> entry of what the store holds of these folders."""
        cut = len(self.address.key) + 1
        return {key[cut:]: entry for name in self.names for key, entry in self.objects.entries(f"{self.address.key}/{name}").items()
                if key.rpartition("/")[2] != NAME}

    def send(self) -> None:
        """One round: sends what has changed since the last, in an order that can be resumed at any moment.

        Raises:
            HostLost: the lease is another's.
            StoreError: the store does not take it; what is there is whole, and the next round goes on.
        """
        files = self._snapshot()
        try:
            for name in sorted(files, key=lambda name: (_rank(name), name)):
                self._send(name, files[name])
            gone = sorted(set(self._sent) - set(files))
            if gone:
                self._require_lease()
                self.objects.delete(f"{self.address.key}/{name}" for name in gone)
                for name in gone:
                    del self._sent[name]
        finally:
            shutil.rmtree(self._links, ignore_errors=True)
            self._keep()

    def start(self) -> None:
        """Sends what changes from now on, in a thread."""
        self._thread = threading.Thread(target=self._go_on, name="store", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends that thread, and sends what is left. Raises as `send`."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self.send()

    def move_aside(self) -> None:
        """Renames each folder in the store to <name>~1, <name>~2, ..."""
        there = self.listed()
        for folder in self.names:
            mine = [name for name in there if name.startswith(f"{folder}/")]
            if not mine:
                continue
            number = 1
            while self.objects.entries(f"{self.address.key}/{folder}~{number}"):
                number += 1
            self._require_lease()
            for name in mine:
                self.objects.copy(f"{self.address.key}/{name}", f"{self.address.key}/{folder}~{number}{name[len(folder):]}")
            mine.sort(key=lambda name: (-_rank(name), name.endswith("experiment.yaml"), name))  # first what says that there is a training
            self.objects.delete(f"{self.address.key}/{name}" for name in mine)

    def _go_on(self) -> None:
        while not self._end.wait(EVERY):
            try:
                self.send()
                self._failed = False
            except HostLost:
                return
            except (QuartetError, OSError) as error:
                if not self._failed:
                    self.say(f"{error}; training goes on, and it is tried again")
                self._failed = True

    def _snapshot(self) -> dict[str, Path | _Read]:
        """Name -> file of all that belongs to the folders now. What says that others are there is read before those are looked for;
        checkpoints are links, so that what one names stays until it is sent."""
        files: dict[str, Path | _Read] = {}
        for name, file in self._walk():
            with contextlib.suppress(FileNotFoundError):
                if _rank(name):
                    files[name] = _read(file)
        for name, path in self._walk():
            if path.name == _LINKED:
                files |= self._linked(name)
            elif not _rank(name):
                files[name] = path
        return files

    def _walk(self) -> Iterator[tuple[str, Path]]:
        """(name, path) of each file, and of the folders of checkpoints in place of theirs."""
        for top in self.names:
            for place, folders, names in os.walk(self.folder / top):
                own = Path(place).relative_to(self.folder)
                if own.name == _LINKED:
                    folders.clear()
                    yield str(own), Path(place)
                    continue
                folders[:] = [name for name in folders if not _passing(name)]
                yield from ((str(own / name), Path(place) / name) for name in names if not _passing(name))

    def _linked(self, name: str) -> dict[str, Path | _Read]:
        source, target = self.folder / name, self._links / name
        while True:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            resume = _number(source / "resume.npz")
            try:
                for file in os.listdir(source):
                    if not _passing(file):
                        os.link(source / file, target / file)
            except FileNotFoundError:
                if source.exists():
                    continue  # replaced meanwhile: look again
            if resume == _number(source / "resume.npz"):
                return {f"{name}/{file}": target / file for file in os.listdir(target)}

    def _send(self, name: str, file: Path | _Read) -> None:
        before = self._sent.get(name)
        try:
            now = file if isinstance(file, _Read) else _read(file)
        except FileNotFoundError:
            return  # replaced or removed since: the next round has it
        if before is not None and (before.size, before.modified) == (now.size, now.modified):
            return
        self._require_lease()
        over = (before.version if before else "") if name.endswith(LAST[0]) else None
        try:
            version = self.objects.put(f"{self.address.key}/{name}", now.content, over=over)
        except Changed:
            raise self._taken() from None
        size = len(now.content) if isinstance(now.content, bytes) else now.size
        self._sent[name] = Sent(size=size, modified=now.modified if size == now.size else 0, version=version)

    def _require_lease(self) -> None:
        if not self.lease.holds:
            raise self._taken()

    def _taken(self) -> HostLost:
        return HostLost(f"{self.address / self.names[0]}: another process has taken this run over; nothing more is written to it")

    def _keep(self) -> None:
        write_json(self._record, {"address": str(self.address), "files": {name: one.model_dump() for name, one in self._sent.items()}})


def _sent(file: Path, version: str) -> Sent:
    about = file.stat()
    return Sent(size=about.st_size, modified=about.st_mtime_ns, version=version)


def _read(file: Path) -> _Read:
    about = file.stat()
    content = file.read_bytes() if about.st_size <= _SMALL and file.parent.name != _LINKED else file
    return _Read(about.st_size, about.st_mtime_ns, content)


def _tag(version: str) -> str:
    """What a listing has of a version, too: of a bucket that keeps versions, it does not have their names."""
    return version.partition("\n")[0] or version


def _passing(name: str) -> bool:
    """Whether a file or folder is on its way to be another: a lock, or what is being written."""
    return name.startswith(".") or name.endswith((".part", ".old"))


def _rank(name: str) -> int:
    return next((number for number, last in enumerate(LAST, 1) if name.endswith(last)), 0)


def _number(file: Path) -> int:
    try:
        return file.stat().st_ino
    except OSError:
        return 0
