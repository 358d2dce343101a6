"""How far long work is, in one way for all of it: a line once it has taken some seconds, and then again now and then."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from pipelines.base.formatting import duration

SECONDS = 15.0  # between two lines
Say = Callable[[str], None]
Item = TypeVar("Item")


def silent(text: str) -> None:
    """Says nothing."""


class Work:
    """A context manager, inside of which lines are said, from a thread, also while a single call takes long.

    Args:
        say: is given each line.
        what: is done, such as "judging test".
        total: of what `at` counts; 0 where that is not known: then the lines have the count and the time that it has taken.
        every: seconds between lines, by default `SECONDS`; before the first of them, nothing is said.
    """

    def __init__(self, say: Say, what: str, total: int = 0, *, every: float | None = None):
        self.say, self.what, self.total, self.every = say, what, total, every or SECONDS
        self._done = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._lines, daemon=True, name=what)

    def at(self, done: int) -> None:
        """So much of the total is done."""
        self._done = done

    def of(self, done: int, total: int) -> None:
        """So much of a total that was not known before is done."""
        self._done, self.total = done, total

    def doing(self, what: str) -> None:
        """What is done now."""
        self.what = what

    def __enter__(self) -> "Work":
        self._began = time.monotonic()
        if self.say is not silent:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _lines(self) -> None:
        while not self._ended.wait(self.every):
            self.say(self._line(time.monotonic() - self._began))

    def _line(self, seconds: float) -> str:
        if not self._done or not self.total:
            return f"{self.what}: {f'{self._done:,} in ' if self._done else ''}{duration(seconds)} so far"
        share = min(1.0, self._done / self.total)
        left = f", {duration(seconds * (1 - share) / share)} left" if share < 1 else ""
        return f"{self.what}: {share:.0%}{left}"


def followed(items: Iterable[Item], say: Say, what: str) -> Iterator[Item]:
    """Passes items on, whose number is not known, as work that says how many were done."""
    with Work(say, what) as work:
        for count, item in enumerate(items):
            work.at(count)
            yield item
