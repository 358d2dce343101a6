"""A folder per class, with or without folders for train, validation and test above them.

The order is that of the relative paths, whatever the file system gives, so a copy of the folder makes the same splits.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipelines.data.divide import ALIASES
from pipelines.data.files import FileSource
from pipelines.errors import DataError

POOL = "all"  # the one split of a folder that has none
SNIFF = 32  # bytes by which a file of unknown name is recognised


@dataclass(frozen=True)
class Folders:
    """What a folder of class folders holds.

    Attributes:
        splits: name as in the file system (or `all`) -> the files, with labels, and groups where asked for.
        classes: class names in the order of the labels: those of train, sorted, then any that only other splits have.
        notes: what was left out, and how much.
    """

    splits: dict[str, FileSource]
    classes: list[str]
    notes: list[str]


@dataclass
class _Ignored:
    hidden: int = 0
    others: Counter = field(default_factory=Counter)
    loops: list[str] = field(default_factory=list)


def read_folders(root: str | Path, *, key: str, suffixes: Collection[str], kind: str, sniff: Callable[[bytes], bool] | None = None,
                 group_by: str | None = None) -> Folders:
    """Finds the files of every class.

    Args:
        root: the folder.
        key: the name of a file's bytes in an example.
        suffixes: lower-case endings of the files that count, with the dot; compared without regard to case.
        kind: what such a file is called in messages ("image").
        sniff: says from a file's first 32 bytes whether it counts, where its ending is not in `suffixes`.
        group_by: `folder` sets the groups to the name of each file's parent folder (below the class folder).

    Raises:
        DataError: no folder, no class folders, files beside them, a class of train without files, groups that are the classes.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"data.path: {root} is not a folder" if root.exists() else f"data.path: {root} does not exist")
    if group_by not in (None, "folder"):
        raise DataError(f"data.group_by: {group_by}: with source: folder, only 'folder' (the parent folder's name) is possible")
    ignored = _Ignored()

    def counts(path: Path) -> bool:
        if path.suffix.lower() in suffixes:
            return True
        if sniff is not None and path.is_file():
            try:
                with open(path, "rb") as file:
                    if sniff(file.read(SNIFF)):
                        return True
            except OSError:
                pass
        ignored.others[path.suffix.lower() or "no ending"] += 1
        return False

    tops = _folders(root, ignored)
    train = next((path for path in tops if path.name.lower() in ALIASES["train"] and _folders(path, _Ignored())), None)
    if train is None:
        parts = {POOL: root}
        loose = {}
    else:
        parts = {path.name: path for path in tops if path.name.lower() in sum(ALIASES.values(), ()) or _folders(path, _Ignored())}
        loose = {path.name: path for path in tops if path.name not in parts}
        _refuse_files(root, counts, f"{kind} files lie beside the split folders of {root}", ignored)

    found: dict[str, dict[str, list[Path]]] = {}
    for name, folder in parts.items():
        _refuse_files(folder, counts, f"{kind} files lie directly in {folder}, outside of any class folder", ignored)
        classes = tops if folder is root else _folders(folder, ignored)
        if not classes:
            raise DataError(f"{folder} has no class folders; put the {kind}s of each class into a folder of its own "
                            f"({folder.name}/cat/1.jpg, {folder.name}/dog/2.jpg), or name files and labels in a table (source: table)")
        found[name] = {path.name: sorted((file for file in _files(path, ignored) if counts(file)), key=_key(root)) for path in classes}
    first = train.name if train is not None else POOL
    empty = [title for title, files in found[first].items() if not files]
    if empty:
        raise DataError(f"{parts[first] / empty[0]}: the class folder holds no {kind} file"
                        + (f", and so do {len(empty) - 1} others" if len(empty) > 1 else "") + f"{_list(ignored)}; fill or remove it")
    own = sorted(found[first])
    known = own + sorted({title for titles in found.values() for title, files in titles.items() if files} - set(own))
    numbers = {title: number for number, title in enumerate(known)}
    splits = {}
    for name, titles in found.items():
        pairs = sorted(((file, numbers[title]) for title, files in titles.items() for file in files), key=lambda pair: _key(root)(pair[0]))
        files = [file for file, _ in pairs]
        groups = _groups(files, parts[name]) if group_by else None
        splits[name] = FileSource(files, key=key, root=root, labels=np.array([label for _, label in pairs], np.int64), groups=groups)
    notes = [f"{root}: {path.name} holds no class folders and is not read" for path in loose.values()]
    if ignored.hidden:
        notes.append(f"{root}: {ignored.hidden:,} hidden files or folders ignored")
    if ignored.others:
        notes.append(f"{root}: {sum(ignored.others.values()):,} files ignored that are no {kind}s{_list(ignored)}")
    notes.extend(f"{place}: a link that leads back into its own parents is not followed" for place in ignored.loops)
    return Folders(splits, known, notes)


def _folders(folder: Path, ignored: _Ignored) -> list[Path]:
    """The visible folders directly in `folder`, links among them, sorted."""
    found = []
    for entry in _entries(folder):
        if not entry.is_dir():
            continue
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            ignored.hidden += 1
        else:
            found.append(folder / entry.name)
    return sorted(found)


def _refuse_files(folder: Path, counts: Callable[[Path], bool], message: str, ignored: _Ignored) -> None:
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            continue
        if entry.name.startswith("."):
            ignored.hidden += 1
        elif counts(folder / entry.name):
            raise DataError(f"{message} (such as {entry.name}); move them into class folders")


def _files(folder: Path, ignored: _Ignored, above: frozenset = frozenset()) -> Iterator[Path]:
    """Every visible file below `folder`; linked folders are entered unless they lead back into a folder they stand in."""
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        ignored.loops.append(str(folder))
        return
    for entry in _entries(folder):
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            ignored.hidden += 1
        elif entry.is_dir():
            yield from _files(folder / entry.name, ignored, above | {identity})
        else:
            yield folder / entry.name


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}") from error


def _key(root: Path) -> Callable[[Path], tuple[str, ...]]:
    depth = len(root.parts)
    return lambda path: path.parts[depth:]


def _groups(files: list[Path], folder: Path) -> np.ndarray:
    depth = len(folder.parts)
    if all(len(file.parts) == depth + 2 for file in files):
        raise DataError(f"data.group_by: folder: the files of {folder} lie directly in their class folders, so the groups would be the "
                        "classes; put each group into a folder within the class folder")
    return np.array([file.parent.name for file in files])


def _list(ignored: _Ignored) -> str:
    if not ignored.others:
        return ""
    return " (ignored: " + ", ".join(f"{number:,} {suffix}" for suffix, number in ignored.others.most_common(6)) + ")"
