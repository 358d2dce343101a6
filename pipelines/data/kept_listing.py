"""The listing of a folder of files kept in the cache folder, so that a million files are walked and looked at once, not at every start.

It holds while no folder below has changed its time or size (files added, removed, renamed, or replaced by renaming), nor any of `LOOKED_AT`
files, spread evenly, theirs. What is written into other files in place is not seen: an image edited by a program that does so, and keeps
its name; such data are listed anew after the folder of the file is touched.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipelines.base import npz
from pipelines.base.errors import QuartetError
from pipelines.base.files import write_whole
from pipelines.base.stored import Name, Record, Text
from pipelines.data.fingerprint import VERSION

LOOKED_AT = 256  # files whose time and size are looked at
SETTLED = 2.0  # s since the last change of a folder, before which another change might leave its time as it is


class Kept(Record):
    """What stands beside the arrays of a listing."""

    state: Text
    splits: list[Name]
    classes: list[Text]
    notes: list[str]
    fingerprints: list[Text]
    stamps: list[Text]


def file_of(cache: Path, root: Path, options: Sequence[Any]) -> Path:
    """Where the listing of a folder is kept; `options` are all that it depends on beside the folder."""
    identity = json.dumps([os.path.abspath(root), VERSION, *options], default=sorted, ensure_ascii=False)
    return cache / f"listing-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:24]}.npz"


def load(file: Path) -> tuple[Kept, dict[str, list[str]], dict[str, dict[str, np.ndarray]]] | None:
    """(what is kept, split -> paths, split -> labels and groups), while it holds; None where it does not, or there is none."""
    if not file.exists():
        return None
    try:
        with npz.opened(file) as stored:
            about = stored.json("about", Kept)
            folders = _paths(stored.read("folders"))
            paths = {name: _paths(stored.read(f"{number}/paths")) for number, name in enumerate(about.splits)}
            arrays = {name: {key: stored.read(f"{number}/{key}") for key in ("labels", "groups") if f"{number}/{key}" in stored.names}
                      for number, name in enumerate(about.splits)}
    except (QuartetError, ValidationError, OSError, ValueError):
        return None  # damaged, or of another version: listed anew
    return (about, paths, arrays) if about.state == state_of(folders, [path for some in paths.values() for path in some]) else None


def keep(file: Path, folders: Sequence[str], *, classes: list[str], notes: list[str], paths: dict[str, list[str]],
         arrays: dict[str, dict[str, np.ndarray]], fingerprints: Callable[[], list[str]], stamps: Callable[[], list[str]]) -> None:
    """Keeps a listing; not where a folder has changed a moment ago, or the cache cannot be written.

    Args:
        folders: all that were walked.
        paths, arrays: of each split.
        fingerprints, stamps: give those of each split.
    """
    try:
        if time.time() - max(os.stat(folder).st_mtime for folder in folders) < SETTLED:
            return
        state = state_of(folders, [path for some in paths.values() for path in some])
        about = {"state": state, "splits": list(paths), "classes": classes, "notes": notes, "fingerprints": fingerprints(),
                 "stamps": stamps()}
        values = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), "folders": _bytes(folders)}
        for number, name in enumerate(paths):
            values[f"{number}/paths"] = _bytes(paths[name])
            values |= {f"{number}/{key}": value for key, value in arrays[name].items()}
        write_whole(file, lambda opened: np.savez(opened, allow_pickle=False, **values))
    except OSError:  # the next start lists again
        return


def state_of(folders: Sequence[str], paths: Sequence[str]) -> str:
    """A hash of the folders' and of some files' times and sizes."""
    some = [paths[number * len(paths) // LOOKED_AT] for number in range(LOOKED_AT)] if len(paths) > LOOKED_AT else paths
    digest = hashlib.sha256(b"%d " % len(paths))
    for path in (*folders, *some):
        try:
            status = os.stat(path)
            digest.update(b"%d %d " % (status.st_mtime_ns, status.st_size))
        except OSError:
            digest.update(b"missing ")
    return digest.hexdigest()


def _bytes(paths: Sequence[str]) -> np.ndarray:
    return np.frombuffer(b"\0".join(map(os.fsencode, paths)), np.uint8)


def _paths(values: np.ndarray) -> list[str]:
    return os.fsdecode(values.tobytes()).split("\0") if len(values) else []
