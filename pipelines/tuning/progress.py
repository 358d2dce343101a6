"""How a search goes, on the terminal: a line for each trial that ends, and one below with the best so far and the time left."""

import time
from collections.abc import Mapping
from typing import Any, TextIO

from rich.text import Text

from pipelines.base import formatting
from pipelines.base.screen import Screen


class SearchProgress(Screen):
    """A line for each trial that ends; below them, or where there is no terminal after each, how far the search is."""

    def __init__(self, objective: str, direction: str, total: int, *, quiet: bool = False, file: TextIO | None = None):
        """
        Args:
            objective: the metric, without split.
            direction: "max" or "min".
            total: trials at most.
            quiet, file: see `Screen`.
        """
        super().__init__(self, quiet=quiet, file=file, refresh=2)
        self.objective, self.total = objective, total
        self.sign = 1.0 if direction == "max" else -1.0
        self.done, self.failed, self.running = 0, 0, 0
        self.best: tuple[float, int] | None = None
        self._left: tuple[float, float] | None = None

    def known(self, number: int, value: float | None) -> None:
        """A trial that ended before, counted without a line."""
        self.done += 1
        if value is None:
            self.failed += 1
        elif self.best is None or value * self.sign > self.best[0] * self.sign:
            self.best = value, number

    def ended(self, number: int, values: Mapping[str, Any], result: Mapping[str, Any], left: float | None) -> None:
        """A line for a trial; `left`: seconds that the search will still take, None while unknown."""
        value = result.get("value")
        self.known(number, value)
        self.running = max(0, self.running - 1)
        self._left = None if left is None else (left, time.monotonic())
        setting = ", ".join(f"{name.rpartition('.')[2]} {shown(item)}" for name, item in values.items())
        if value is None:
            message = f"failed: {str(result['reason']).splitlines()[0]}"
        else:
            first = " (best so far)" if self.best is not None and self.best[1] == number else ""
            costs = f", cost {formatting.number(float(result['cost']))}" if result.get("cost") is not None else ""
            message = f"{formatting.number(float(value), self.objective)}{costs}{first}"
        self.note(f"trial {number:>{len(str(self.total))}}/{self.total}  {message}  {formatting.duration(result['seconds'])}  {setting}")
        if not self._live:
            self.note(f"  {self.line()}")

    def line(self) -> str:
        """`7 of 20 trials done, best accuracy 91.2 % (trial 3), 12 min left`."""
        parts = [f"{self.done} of {self.total} trials done" + (f", {self.failed} failed" if self.failed else "")]
        if self.best:
            value = formatting.number(float(self.best[0]), self.objective)
            parts.append(f"best {formatting.title_within(self.objective)} {value} (trial {self.best[1]})")
        if self._left and self.done < self.total:
            parts.append(f"about {formatting.duration(max(0.0, self._left[0] - (time.monotonic() - self._left[1])))} left")
        return ", ".join(parts)

    def refresh(self, running: int) -> None:
        """Number of trials that run now, for the line below."""
        self.running = running
        if self._live:
            self._live.refresh()

    def __rich__(self) -> Text:
        return Text(self.line() + (f", {self.running} running" if self.running else ""), style="cyan")


def shown(value: Any) -> str:
    """A setting's value, short."""
    return f"{value:.4g}" if isinstance(value, float) else formatting.yaml_value(value)
