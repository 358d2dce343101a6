"""The files and folders of a user: hidden ones are skipped, links followed but never in a circle. Imports no TensorFlow.

Only regular files are given: reading a named pipe or a device might not end.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pipelines.base.errors import DataError
from pipelines.base.inside import other_kind

FOLDERS = 50  # folders beside a table that are searched for its files
TURNS = 64  # of a scan of many files that may end early
MOST, SECONDS = 20_000, 2.0  # files that a sample holds, and the time after which no more are read
Value = TypeVar("Value")


@dataclass
class PassedOver:
    """What a walk skipped.

    Attributes:
        hidden: files and folders whose name begins with a dot, and macOS's __MACOSX.
        others: ending -> files that do not count, as the caller finds.
        loops: links that lead back into a folder above them.
        special: files that are not regular, each with its kind ("a named pipe").
        folders: those that were walked.
    """

    hidden: int = 0
    others: Counter = field(default_factory=Counter)
    loops: list[str] = field(default_factory=list)
    special: list[tuple[Path, str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Counts a file that does not count."""
        self.others[path.suffix.lower() or "no ending"] += 1

    def listed(self) -> str:
        """The others by ending, the most common first: `3 .txt, 1 .xml`."""
        shown = self.others.most_common(6)
        more = sum(self.others.values()) - sum(number for _, number in shown)
        return ", ".join([f"{number:,} {suffix}" for suffix, number in shown] + ([f"{more:,} more"] if more else []))


def hidden(name: str) -> bool:
    """Whether a file or folder of that name is skipped."""
    return name.startswith(".") or name == "__MACOSX"


def folders_in(folder: Path, passed: PassedOver) -> list[Path]:
    """The visible folders directly in `folder`, links among them, sorted. Raises DataError for one whose name is not UTF-8."""
    folders = []
    passed.folders.append(str(folder))
    for entry in entries(folder):
        if not is_folder(entry):
            continue
        if hidden(entry.name):
            passed.hidden += 1
        else:
            _check_name(entry.name, folder)
            folders.append(folder / entry.name)
    return sorted(folders)


def other_folders(folder: Path, used: Collection[Path], count: Callable[[Path], int]) -> list[str]:
    """A note on folders beside those of the splits, with the number of files in each that were not looked at; none where there is none."""
    rest = [(entry.name, count(entry)) for entry in folders_in(folder, PassedOver()) if entry not in used]
    shown = ", ".join(f"{name} ({number:,} files)" for name, number in rest if number)
    return [f"Not used: folder {shown}, which is called like none of train, validation and test."] if shown else []


def _check_name(name: str, folder: Path) -> None:
    """Raises DataError for a folder's name that is not UTF-8: as a class it could not be written into a report."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise DataError(f"{folder}: the name of the folder {shown} is not UTF-8; rename it") from None


def files_below(folder: Path, passed: PassedOver) -> Iterator[Path]:
    """Every visible file below `folder`, in no order; linked folders are entered unless they lead back into a folder above them.

    A link that leads nowhere, or onto itself, is given, too: reading it reports that.
    """
    folders: list[tuple[Path, frozenset]] = [(folder, frozenset())]
    while folders:
        place, above = folders.pop()
        status = os.stat(place)
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            passed.loops.append(str(place))
            continue
        passed.folders.append(str(place))
        for entry in entries(place):
            if hidden(entry.name):
                passed.hidden += 1
            elif is_folder(entry):
                folders.append((place / entry.name, above | {identity}))
            elif not entry.is_file(follow_symlinks=False) and (kind := other_kind(entry.path)):
                passed.special.append((place / entry.name, kind))
            else:
                yield place / entry.name


def files_of(folder: str | Path, suffixes: Collection[str]) -> list[Path]:
    """The visible files below `folder` with one of these endings (lower-case, with the dot), sorted.

    Raises:
        DataError: a file of such a name is not regular.
    """
    if not Path(folder).is_dir():
        return []
    passed = PassedOver()
    files = [path for path in files_below(Path(folder), passed) if path.suffix.lower() in suffixes]
    refuse_special(passed, suffixes)
    return sorted(files)


def refuse_special(passed: PassedOver, suffixes: Collection[str]) -> None:
    """Raises DataError where a file that is not regular is named like one that counts."""
    for path, kind in passed.special:
        if path.suffix.lower() in suffixes:
            raise DataError(f"{path} is {kind}; remove it: only regular files are read")


def entries(folder: Path) -> list[os.DirEntry]:
    """The entries of a folder. Raises DataError where it cannot be read."""
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}") from error


def is_folder(entry: os.DirEntry) -> bool:
    """Whether an entry, or what its link leads to, is a folder; not of a link that leads in a circle or where nobody may look."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def pattern_of_files(folder: Path, values: Sequence[str], endings: Sequence[str]) -> str | None:
    """Where nearly all values name files, as data.file_pattern has it: `images/{}.jpg`; None where nowhere.

    Args:
        folder: of the table; it, the folders in it and in these, and the folders beside it (`../audio/{}`) are searched.
        endings: of such files, "" for values that have theirs.
    """
    inside = folders_in(folder, PassedOver())[:FOLDERS]
    deeper = [one for entry in inside for one in _readable(entry)][:FOLDERS]
    beside = ["..", *(f"../{entry.name}" for entry in _readable(folder.absolute().parent)[:FOLDERS])]
    for place in ["", *(entry.relative_to(folder).as_posix() for entry in (*inside, *deeper)), *beside]:
        for end in endings:
            pattern = f"{place}/{{}}{end}" if place else f"{{}}{end}"
            if pattern == "{}" or not values:
                continue
            there = ((folder / pattern.replace("{}", value)).is_file() for value in values)
            if next(there, False) and sum(there) + 1 >= 0.9 * len(values):
                return pattern
    return None


def _readable(folder: Path) -> list[Path]:
    """The folders in a folder; none where it cannot be read, or one has a name that is no text: it is not the user's data."""
    try:
        return folders_in(folder, PassedOver())
    except DataError:
        return []


def sampled(files: Sequence[Path], read: Callable[[Path], Value | None]) -> tuple[list[Value], bool]:
    """(what `read` gives of the files, without None; whether of a sample only): at most 20,000 files, as many as are read in two seconds,
    spread evenly."""
    values, count, until = [], 0, time.monotonic() + SECONDS
    for turn in spread(len(files), MOST):
        for number in turn:
            count += 1
            if (value := read(files[number])) is not None:
                values.append(value)
        if time.monotonic() > until:
            break
    return values, count < len(files)


def spread(count: int, most: int) -> list[list[int]]:
    """At most `most` of the numbers below `count` in turns, each of which is spread evenly: stopping early leaves an even sample."""
    kept = min(count, most)
    order = [number * count // kept for number in range(kept)]
    return [order[start::TURNS] for start in range(min(TURNS, kept))]
