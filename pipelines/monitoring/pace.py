"""A line now and then about work that would say nothing for minutes."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
GAP = 0.05  # s between items that do not come together


class Pace:
    """Counts what is done, and says every ten seconds how much that is: `judging test: 1,200 of 10,000, 85 a second`."""

    def __init__(self, say: Callable[[str], None], what: str, total: int | None = None, *, seconds: float = 10.0,
                 clock: Callable[[], float] = time.monotonic):
        self._say, self._what, self._of, self._seconds, self._clock = say, what, f" of {total:,}" if total else "", seconds, clock
        self.done = 0
        self._began = self._said = clock()

    def add(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        self._say_if_due(self._clock(), self._seconds)

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Passes the items on, counting them; what comes together is counted together."""
        before = self._clock()
        for item in items:
            now = self._clock()
            self._say_if_due(now, self._seconds * (1 if now - before > GAP else 2))
            self.done, before = self.done + 1, now
            yield item

    def _say_if_due(self, now: float, seconds: float) -> None:
        if self.done and now - self._said >= seconds:
            self._said = now
            self._say(f"{self._what}: {self.done:,}{self._of}, {self.done / (now - self._began):,.0f} a second")
