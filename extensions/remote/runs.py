"""Runs and searches in an object store: trained in a folder of this machine that is sent there as it changes, and copied to be used.

A process that is killed leaves in the store what the same command, on any machine, resumes.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from extensions.remote import copies
from extensions.remote.lease import NAME, SECONDS, Lease
from extensions.remote.mirror import Mirror
from extensions.remote.objects import Entry, objects_of
from pipelines.base.errors import HostLost
from pipelines.stores.remote import Address

_STATE = "resume.npz"
_STATE_MOST = 64 << 20  # bytes of a checkpoint that a listing of runs fetches to say how far a run is
_LISTED = re.compile(r"experiment\.yaml|environment\.json|metrics\.jsonl|report\.json|\d+\.(order|result)\.json|resume\.npz")


@contextlib.contextmanager
def work_folder(address: Address, names: Sequence[str], *, fresh: bool, say: Callable[[str], None], writes: bool) -> Iterator[Path]:
    """As `Remote.work_folder`: fetched before and sent meanwhile and at the end, while this process holds the run's lease.

    Raises:
        Leased: another process works there.
        StoreError: the store refuses, or does not answer.
        HostLost: another process has taken the folder over meanwhile.
    """
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
        mirror.start()
        try:
            yield place / address.name
        finally:
            mirror.stop()
    finally:
        lease.release()


def copy_of_run(address: Address) -> Path:
    """A copy of a finished run: all but its checkpoints and TensorBoard's files."""
    return copies.copied(address, wanted=lambda name, entry: not name.startswith(("checkpoints/", "tensorboard/")) and name != NAME)


def listing(address: Address) -> tuple[Path, set[str]]:
    """A copy of what a listing of runs reads, and which are being trained: those whose lease was renewed shortly before the last write of
    any run, by the store's clock."""
    found = {key.removeprefix(f"{address.key}/"): entry for key, entry in objects_of(address).entries(address.key).items()}
    newest = max((entry.seconds for entry in found.values()), default=0.0)
    leases = {name.rpartition("/")[0]: entry for name, entry in found.items() if name.endswith(f"/{NAME}")}
    held = {run for run, entry in leases.items() if newest - entry.seconds < SECONDS and _is_held(address / run)}

    def wanted(name: str, entry: Entry) -> bool:
        last = name.rpartition("/")[2]
        return bool(_LISTED.fullmatch(last)) and (last != _STATE or entry.size <= _STATE_MOST)

    return (copies.copied(address, wanted=wanted) if found else copies.cache()), held


def _is_held(run: Address) -> bool:
    return b'"held": true' in objects_of(run).read((run / NAME).key)[0]


def put_back(folder: Path, address: Address) -> None:
    """Sends the files of a run's copy that the store does not have, under its lease."""
    objects = objects_of(address)
    there = objects.entries(address.key)
    new = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")
           and f"{address.key}/{path.relative_to(folder).as_posix()}" not in there]
    lease = Lease(objects, (address / NAME).key)
    if not new:
        return
    lease.take()
    try:
        for path in new:
            if not lease.holds:
                raise HostLost(f"{address}: another process has taken this run over")
            objects.put(f"{address.key}/{path.relative_to(folder).as_posix()}", path)
    finally:
        lease.release()
