"""The files and folders that a person put somewhere: hidden ones left out, links followed but never in a circle. Imports no TensorFlow."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.errors import DataError


@dataclass
class PassedOver:
    """What a walk left out.

    Attributes:
        hidden: files and folders whose name begins with a dot, and macOS's __MACOSX.
        others: ending -> files that do not count, as the caller finds.
        loops: links that lead back into a folder they stand in.
    """

    hidden: int = 0
    others: Counter = field(default_factory=Counter)
    loops: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Counts a file that does not count."""
        self.others[path.suffix.lower() or "no ending"] += 1

    def listed(self) -> str:
        """The others by ending, the most common first: `3 .txt, 1 .xml`."""
        shown = self.others.most_common(6)
        more = sum(self.others.values()) - sum(number for _, number in shown)
        return ", ".join([f"{number:,} {suffix}" for suffix, number in shown] + ([f"{more:,} more"] if more else []))


def hidden(name: str) -> bool:
    """Whether a file or folder of that name is passed over."""
    return name.startswith(".") or name == "__MACOSX"


def folders_in(folder: Path, passed: PassedOver) -> list[Path]:
    """The visible folders directly in `folder`, links among them, sorted."""
    found = []
    for entry in entries(folder):
        if not entry.is_dir():
            continue
        if hidden(entry.name):
            passed.hidden += 1
        else:
            found.append(folder / entry.name)
    return sorted(found)


def files_below(folder: Path, passed: PassedOver, above: frozenset = frozenset()) -> Iterator[Path]:
    """Every visible file below `folder`, in no order; linked folders are entered unless they lead back into a folder they stand in."""
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        passed.loops.append(str(folder))
        return
    for entry in entries(folder):
        if hidden(entry.name):
            passed.hidden += 1
        elif entry.is_dir():
            yield from files_below(folder / entry.name, passed, above | {identity})
        else:
            yield folder / entry.name


def entries(folder: Path) -> list[os.DirEntry]:
    """What lies directly in a folder. Raises DataError where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}") from error
