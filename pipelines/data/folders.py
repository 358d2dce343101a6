"""A folder per class, with or without folders for train, validation and test above them.

The order is that of the relative paths, whatever the file system's order, so a copy of the folder has the same splits.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipelines.base import npz
from pipelines.base.errors import DataError, QuartetError
from pipelines.base.files import write_whole
from pipelines.base.inside import other_kind
from pipelines.base.stored import Name, Record, Text
from pipelines.data.divide import ALIASES
from pipelines.data.files import FileSource
from pipelines.data.fingerprint import VERSION
from pipelines.data.names import groups_in_names
from pipelines.data.walk import PassedOver, entries, files_below, folders_in, hidden, is_folder
from pipelines.stores.remote import local

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


def listing_file(cache: Path, root: Path, options: Sequence[Any]) -> Path:
    """Where the listing of a folder is kept; `options` are all that it depends on beside the folder."""
    identity = json.dumps([os.path.abspath(root), VERSION, *options], default=sorted, ensure_ascii=False)
    return cache / f"listing-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:24]}.npz"


def load_listing(file: Path) -> tuple[Kept, dict[str, list[str]], dict[str, dict[str, np.ndarray]]] | None:
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


def keep_listing(file: Path, folders: Sequence[str], *, classes: list[str], notes: list[str], paths: dict[str, list[str]],
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


POOL = "all"  # the only split of a folder without splits
SNIFF = 32  # bytes by which a file of unknown name is recognised


@dataclass(frozen=True)
class Folders:
    """What a folder of class folders holds.

    Attributes:
        splits: name as in the file system (or `all`) -> the files, with labels, and groups where asked for.
        classes: class names in the order of the labels: those of train, sorted, then any that only other splits have.
        notes: what was ignored, and how much.
    """

    splits: dict[str, FileSource]
    classes: list[str]
    notes: list[str]


def read_folders(root: str | Path, *, key: str, suffixes: Collection[str], kind: str, sniff: Callable[[bytes], bool] | None = None,
                 group_by: str | None = None, group_pattern: str | None = None, label_pattern: str | None = None,
                 cache: Path | None = None) -> Folders:
    """Finds the files of every class.

    Args:
        root: the folder.
        key: the name of a file's bytes in an example.
        suffixes: lower-case endings of the files that count, with the dot; compared without regard to case.
        kind: of such a file, in messages ("image").
        sniff: says from a file's first 32 bytes whether it counts, where its ending is not in `suffixes`.
        group_by: `folder` sets the groups to the name of each file's parent folder (below the class folder); `name` to what
            `group_pattern` finds in its path from `root` on.
        label_pattern: finds the class in a file's path from `root` on, instead of class folders.
        cache: a folder in which the listing is kept while the folders stay as they are.

    Raises:
        DataError: no folder, no class folders, files beside them, a class of train without files, groups that are the classes.
    """
    root = local(root)
    if cache is None:
        return _listed(root, key, suffixes, kind, sniff, group_by, group_pattern, label_pattern)[0]
    file = listing_file(cache, root, [key, suffixes, kind, sniff is not None, group_by, group_pattern, label_pattern])
    kept = load_listing(file)
    if kept is not None:
        about, paths, arrays = kept
        splits = {name: FileSource(paths[name], key=key, root=root, **arrays[name], fingerprint=fingerprint, stamp=stamp)  # type: ignore[arg-type]
                  for name, fingerprint, stamp in zip(about.splits, about.fingerprints, about.stamps)}
        return Folders(splits, about.classes, about.notes)
    found, walked = _listed(root, key, suffixes, kind, sniff, group_by, group_pattern, label_pattern)
    sources = found.splits
    keep_listing(
        file, walked, classes=found.classes, notes=found.notes, paths={name: source.paths for name, source in sources.items()},
        arrays={name: {of: value for of in ("labels", "groups") if (value := getattr(source, of)) is not None}
                for name, source in sources.items()},
        fingerprints=lambda: [source.fingerprint() for source in sources.values()],
        stamps=lambda: [source.stamp() for source in sources.values()])
    return found


def _listed(root: Path, key: str, suffixes: Collection[str], kind: str, sniff: Callable[[bytes], bool] | None, group_by: str | None,
            group_pattern: str | None, label_pattern: str | None) -> tuple[Folders, list[str]]:
    """See `read_folders`; and the folders that were walked."""
    if not root.is_dir():
        raise DataError(f"data.path: {root} is not a folder" if root.exists() else f"data.path: {root} does not exist")
    if group_by not in (None, "folder", "name"):
        raise DataError(f"data.group_by: {group_by}: with source: folder, only 'folder' (the parent folder's name) and 'name' (what "
                        "data.group_pattern finds) are possible")
    ignored = PassedOver()

    def counts(path: Path) -> bool:
        if path.suffix.lower() in suffixes:
            return True
        if sniff is not None:
            try:
                with open(path, "rb") as file:
                    if sniff(file.read(SNIFF)):
                        return True
            except OSError:
                pass
        ignored.add(path)
        return False

    tops = folders_in(root, ignored)
    train = next((path for path in tops if path.name.lower() in ALIASES["train"] and folders_in(path, PassedOver())), None)
    if train is None:
        parts = {POOL: root}
        loose = {}
    else:
        parts = {path.name: path for path in tops if path.name.lower() in sum(ALIASES.values(), ()) or folders_in(path, PassedOver())}
        loose = {path.name: path for path in tops if path.name not in parts}
        _refuse_files(root, counts, f"{kind} files lie beside the split folders of {root}", ignored)

    by_split: dict[str, dict[str, list[Path]]] = {}
    if label_pattern is not None:
        train = next((path for path in tops if path.name.lower() in ALIASES["train"]), None)
        parts = {POOL: root} if train is None else {path.name: path for path in tops if path.name.lower() in sum(ALIASES.values(), ())}
        by_split = {name: _by_name(folder, root, counts, label_pattern, ignored) for name, folder in parts.items()}
        if not by_split[train.name if train is not None else POOL]:
            raise DataError(f"{root}: holds no {kind} file{_list(ignored)}")
        parts_to_read: dict[str, Path] = {}
    else:
        parts_to_read = parts
    for name, folder in parts_to_read.items():
        _refuse_files(folder, counts, f"{kind} files lie directly in {folder}, outside of any class folder", ignored)
        classes = tops if folder is root else folders_in(folder, ignored)
        if not classes:
            raise DataError(f"{folder} has no class folders; put the {kind}s of each class into a folder of its own "
                            f"({folder.name}/cat/1.jpg, {folder.name}/dog/2.jpg), or name files and labels in a table (source: table)")
        by_split[name] = {path.name: sorted((file for file in files_below(path, ignored) if counts(file)), key=_key(root))
                          for path in classes}
    first = train.name if train is not None else POOL
    empty = [title for title, files in by_split[first].items() if not files]
    if empty:
        raise DataError(f"{parts[first] / empty[0]}: the class folder holds no {kind} file"
                        + (f", and so do {len(empty) - 1} others" if len(empty) > 1 else "") + f"{_list(ignored)}; fill or remove it")
    own = sorted(by_split[first])
    known = own + sorted({title for titles in by_split.values() for title, files in titles.items() if files} - set(own))
    numbers = {title: number for number, title in enumerate(known)}
    splits = {}
    for name, titles in by_split.items():
        pairs = sorted(((file, numbers[title]) for title, files in titles.items() for file in files), key=lambda pair: _key(root)(pair[0]))
        files = [file for file, _ in pairs]
        groups = None
        if group_by == "folder":
            groups = _groups(files, parts[name])
        elif group_by == "name":
            groups = np.array(groups_in_names([file.relative_to(root).as_posix() for file in files], group_pattern or ""))
        splits[name] = FileSource(files, key=key, root=root, labels=np.array([label for _, label in pairs], np.int64), groups=groups)
    notes = [f"{root}: {path.name} holds no class folders and is not read" for path in loose.values()]
    if ignored.hidden:
        notes.append(f"{root}: {ignored.hidden:,} hidden files or folders ignored")
    if ignored.others:
        notes.append(f"{root}: {sum(ignored.others.values()):,} files ignored that are no {kind}s{_list(ignored)}")
    notes.extend(f"{path} is {kind}, which is not read" for path, kind in ignored.special)
    notes.extend(f"{place}: a link that leads back into its own parents is not followed" for place in ignored.loops)
    walked = [*ignored.folders, *map(str, tops), *(str(folder) for top in tops for folder in folders_in(top, PassedOver()))]
    return Folders(splits, known, notes), list(dict.fromkeys(walked))


def _by_name(folder: Path, root: Path, counts: Callable[[Path], bool], pattern: str, ignored: PassedOver) -> dict[str, list[Path]]:
    """Class -> files, the class as `pattern` finds it in each file's path."""
    files = sorted((file for file in files_below(folder, ignored) if counts(file)), key=_key(root))
    by_class: dict[str, list[Path]] = {}
    for file, title in zip(files, groups_in_names([file.relative_to(root).as_posix() for file in files], pattern, "data.label_pattern")):
        by_class.setdefault(title, []).append(file)
    return by_class


def _refuse_files(folder: Path, counts: Callable[[Path], bool], message: str, ignored: PassedOver) -> None:
    for entry in sorted(entries(folder), key=lambda entry: entry.name):
        if is_folder(entry):
            continue
        if kind := other_kind(entry.path):
            ignored.special.append((folder / entry.name, kind))
        elif hidden(entry.name):
            ignored.hidden += 1
        elif counts(folder / entry.name):
            raise DataError(f"{message} (such as {entry.name}); move them into class folders")


def _key(root: Path) -> Callable[[Path], tuple[str, ...]]:
    depth = len(root.parts)
    return lambda path: path.parts[depth:]


def _groups(files: list[Path], folder: Path) -> np.ndarray:
    depth = len(folder.parts)
    if all(len(file.parts) == depth + 2 for file in files):
        raise DataError(f"data.group_by: folder: the files of {folder} lie directly in their class folders, so the groups would be the "
                        "classes; put each group into a folder within the class folder")
    return np.array([file.parent.name for file in files])


def _list(ignored: PassedOver) -> str:
    return f" (ignored: {ignored.listed()})" if ignored.others else ""
