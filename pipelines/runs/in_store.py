"""Runs and searches in an object store: trained in a folder of this machine that is sent there as it changes, and found there to be used.

A process that is killed leaves in the store what the same command, on any machine, resumes.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipelines.base.errors import ConfigError, HostLost
from pipelines.config.schema import Experiment
from pipelines.runs.folder import RunFolder, seed_name
from pipelines.stores import copies
from pipelines.stores.address import Address, address_of
from pipelines.stores.lease import NAME, SECONDS, Lease
from pipelines.stores.mirror import Mirror
from pipelines.stores.objects import Entry, objects_of

_STATE = "resume.npz"
_STATE_MOST = 64 << 20  # bytes of a checkpoint that a listing of runs fetches to say how far a run is
_LISTED = re.compile(r"experiment\.yaml|environment\.json|metrics\.jsonl|report\.json|\d+\.(order|result)\.json|resume\.npz")


def names_of(experiment: Experiment, name: str) -> list[str]:
    """The folders of a run: its own, and those of its seeds."""
    first = experiment.train.seed
    return [name, *(seed_name(name, first + number) for number in range(experiment.seeds) if experiment.seeds > 1)]


@contextlib.contextmanager
def here(runs: Path, experiment: Experiment, folder: RunFolder, *, fresh: bool, say: Callable[[str], None], writes: bool = True,
         ) -> Iterator[RunFolder]:
    """The folder of this machine in which a run is trained, as `folder_here` has it with the folders of its seeds."""
    with folder_here(runs, folder.path, names_of(experiment, folder.path.name), fresh=fresh, say=say, writes=writes) as path:
        yield RunFolder(path)


@contextlib.contextmanager
def folder_here(runs: Path, folder: Path, names: Sequence[str], *, fresh: bool, say: Callable[[str], None], writes: bool = True,
                ) -> Iterator[Path]:
    """The folder of this machine in which a run or a search works: below `runs` on a disk `folder` itself; below an address one that is
    fetched from there before and sent there meanwhile and at the end, while this process holds its lease.

    Args:
        folder: as `run_folder` names it.
        names: of it and of those beside it that belong to it.
        writes: whether this process does; of several hosts, the chief alone.
        fresh: what is in the store is moved aside to <name>~1, <name>~2, ...

    Raises:
        Leased: another process works there.
        StoreError: the store refuses, or does not answer.
        HostLost: another process has taken the folder over meanwhile.
    """
    address = _of(runs, folder)
    if address is None:
        yield folder
        return
    objects, place = objects_of(address), copies.cache() / "runs" / address.protocol / address.bucket / address.parent.key
    if not writes:
        yield place / address.name
        return
    lease = Lease(objects, (address / NAME).key, lost=lambda: os.kill(os.getpid(), signal.SIGTERM))
    mirror = Mirror(objects, address.parent, place, names, lease, say)
    lease.take(say)
    try:
        if fresh:
            mirror.move_aside()
        mirror.fetch()
        copies.called(place, address.parent)
        mirror.start()
        try:
            yield place / address.name
        finally:
            mirror.stop()
    finally:
        lease.release()


def moved_aside(runs: Path, experiment: Experiment, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Moves a run in a store aside, as `here` does, and does nothing else."""
    with here(runs, experiment, folder, fresh=True, say=say):
        pass


def _of(runs: Path, folder: Path) -> Address | None:
    address = address_of(runs)
    if address is None:
        return None
    for part in folder.parts[-3:]:
        address = address / part
    return address


def fetched(runs: Path, given: str) -> Path | None:
    """The copy of a run that is named by its address, or by its name below an address; None where it is not in a store.

    Raises:
        ConfigError: there is no such run, or several.
    """
    address = address_of(given) if "://" in given else None
    below = address_of(runs)
    if address is None and below is None:
        return None
    if address is None:
        assert below is not None
        names = sorted(key.removeprefix(f"{below.key}/").rpartition("/")[0] for key in objects_of(below).entries(below.key)
                       if key.endswith("/experiment.yaml"))
        wanted = given.strip("/")
        matches = [name for name in names if name == wanted] or [name for name in names if f"/{name}".endswith(f"/{wanted}")] \
            or [name for name in names if name.startswith(f"{wanted}/")]
        if len(matches) != 1:
            raise ConfigError(f"{given}: names {len(matches) or 'no'} runs in {below}; "
                              + (f"give one of {', '.join(matches[:8])}" if matches else f"there are {', '.join(names[:8]) or 'none'}"))
        address = below / matches[0]
    if address.name == "experiment.yaml":
        address = address.parent
    target = copies.copied(address, wanted=lambda name, entry: not name.startswith(("checkpoints/", "tensorboard/")) and name != NAME)
    if not (target / "experiment.yaml").is_file():
        raise ConfigError(f"{address}: is no run: it has no experiment.yaml")
    copies.called(target, address)
    return target


def listing(runs: Path) -> tuple[Path, dict[str, int], set[str]] | None:
    """Of runs in a store, what a listing of them reads: (folder, run -> bytes of all its objects, those that are being trained).

    None where they are on a disk.
    """
    address = address_of(runs)
    if address is None:
        return None
    found = {key.removeprefix(f"{address.key}/"): entry for key, entry in objects_of(address).entries(address.key).items()}
    names = [name.rpartition("/")[0] for name in found if name.endswith("/experiment.yaml")]
    sizes = {run: sum(entry.size for name, entry in found.items() if name.startswith(f"{run}/")) for run in names}
    newest = max((entry.seconds for entry in found.values()), default=0.0)
    # by the store's own clock: a lease that was renewed shortly before the last write of any run
    leases = {run: found[f"{run}/{NAME}"] for run in names if f"{run}/{NAME}" in found}
    held = {run for run, entry in leases.items() if newest - entry.seconds < SECONDS and _is_held(address / run)}

    def wanted(name: str, entry: Entry) -> bool:
        last = name.rpartition("/")[2]
        return bool(_LISTED.fullmatch(last)) and (last != _STATE or entry.size <= _STATE_MOST)

    folder = copies.copied(address, wanted=wanted) if found else copies.cache()
    copies.called(folder, address)
    return folder, sizes, held


def _is_held(run: Address) -> bool:
    return b'"held": true' in objects_of(run).read((run / NAME).key)[0]


def put_back(folder: RunFolder) -> None:
    """Sends what a command wrote into the copy of a run (a report on other data, an export) to the store; nothing where it is on a disk."""
    address = next((one for one, path in copies.known().items() if path == folder.path), None)
    if address is None:
        return
    objects = objects_of(address)
    there = objects.entries(address.key)
    new = [path for path in sorted(folder.path.rglob("*")) if path.is_file() and not path.name.startswith(".")
           and f"{address.key}/{path.relative_to(folder.path).as_posix()}" not in there]
    lease = Lease(objects, (address / NAME).key)
    if not new:
        return
    lease.take()
    try:
        for path in new:
            if not lease.holds:
                raise HostLost(f"{address}: another process has taken this run over")
            objects.put(f"{address.key}/{path.relative_to(folder.path).as_posix()}", path)
    finally:
        lease.release()
