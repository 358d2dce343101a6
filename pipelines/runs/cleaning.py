"""What of the runs on a disk is of no more use, and freeing its room. Reads and removes files only; imports no TensorFlow."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.base import staging
from pipelines.base.errors import QuartetError
from pipelines.base.inside import refuse_links
from pipelines.runs.folder import Locked, RunFolder
from pipelines.runs.listing import run_folders, size_of

STATE = "the state of a finished run's training"
MOVED = "a run that --fresh moved aside"


@dataclass(frozen=True)
class Useless:
    """Something that may go.

    Attributes:
        folder: the run's.
        path: what goes.
        why: what it is.
        size: bytes.
    """

    folder: RunFolder
    path: Path
    why: str
    size: int


def find(runs: Path, *, moved: bool = False) -> Iterator[Useless]:
    """What may go below a folder of runs: checkpoints of finished runs; with `moved`, whole runs that --fresh moved aside."""
    for folder in run_folders(runs):
        name, _, number = folder.path.name.rpartition("~")
        if moved and name and number.isdigit() and folder.path.with_name(name).is_dir():
            yield Useless(folder, folder.path, MOVED, size_of(folder.path))
        elif folder.finished and folder.checkpoints.is_dir():
            size = size_of(folder.checkpoints)
            if size:
                yield Useless(folder, folder.checkpoints, STATE, size)


def remove(one: Useless) -> str | None:
    """Removes it, and says why it cannot: a process works there, or the run leads out of its folder."""
    try:
        refuse_links(one.folder.path)
        with one.folder.locked():
            parent = os.open(one.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                staging.remove(parent, one.path.name)
            finally:
                os.close(parent)
    except Locked:
        return f"{one.folder.path}: a process works there"
    except (QuartetError, OSError) as error:
        return str(error)
    return None


def drop_state(folder: RunFolder) -> None:
    """Removes the checkpoints of a finished run whose lock is held."""
    parent = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if folder.checkpoints.is_dir():
            staging.remove(parent, folder.checkpoints.name)
    finally:
        os.close(parent)
