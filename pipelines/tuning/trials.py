"""The trials of a search as it knows them: what came of each, the best, how long the rest will take, and all this on the terminal.
Imports no TensorFlow.
"""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.text import Text

from pipelines.base import formatting, stored
from pipelines.base.errors import QuartetError, TrainingError
from pipelines.base.terminal import Screen
from pipelines.config.schema import Cost
from pipelines.tuning.analysis import worth
from pipelines.tuning.search_folder import Result

_SIGNALS = {signal.SIGKILL: "most likely the system ran out of memory; a smaller model or batch, or fewer --workers"}


class Stopped(QuartetError):
    """A signal came; trials that ran have saved their state."""

    def __init__(self, number: int):
        super().__init__("interrupted; the same command resumes from here")
        self.exit_status = 128 + number


@dataclass
class Trial:
    """One trial as the search knows it.

    Attributes:
        number: from 1, in the order in which they were requested.
        values: setting -> value.
        setting: number of the trial whose folder it trains in: its own, or with hyperband the one that it continues from.
        epochs: to which it trains, None for all.
        peers: trials that the median rule compares it with.
        result: what came of it, None while it runs.
    """

    number: int
    values: dict[str, Any]
    setting: int
    epochs: int | None
    peers: list[int]
    result: dict[str, Any] | None = None

    @property
    def value(self) -> float | None:
        return self.result.get("value") if self.result else None

    @property
    def cost(self) -> float | None:
        return self.result.get("cost") if self.result else None


def best_of(trials: Sequence[Trial], sign: float, logs: Path, cost: Cost | None = None) -> Trial:
    """The best trial; of equals the one that trained longer, then the first.

    Args:
        sign: 1 where larger is better, -1 where smaller is.
        logs: named in the message.
        cost: the second objective, see `front.worth`.

    Raises:
        TrainingError: none came to an end.
    """
    ended = [trial for trial in trials if trial.value is not None]
    if not ended:
        reasons = [trial.result["reason"] for trial in trials if trial.result]
        raise TrainingError("no trial came to an end" + (f"; the last: {reasons[-1]}" if reasons else "") + f"\nLogs are in {logs}")
    return max(ended, key=lambda trial: ((worth(trial, cost, sign) or 0.0) * sign, trial.epochs or 0, -trial.number))


def read_result(file: Path, status: int, log: Path) -> dict[str, Any]:
    """What a process left as its result, or why it left none. `status`: its exit status, negative for a signal.

    Raises:
        ConfigError: it is not what a process leaves.
    """
    if not file.exists():
        return {"status": "failed", "reason": why_ended(status, log)}
    result = stored.read(file, Result).model_dump(exclude_unset=True)
    return {**result, "reason": result.get("reason") or "no reason is given"} if result["status"] == "failed" else result


def why_ended(status: int, log: Path) -> str:
    """Why a process left no result. `status`: its exit status, negative for a signal."""
    if status < 0:
        name = signal.Signals(-status)
        return f"killed by {name.name}" + (f": {_SIGNALS[name]}" if name in _SIGNALS else "") + f"; see {log}"
    return f"its process ended with status {status}; see {log}"


def time_left(trials: Sequence[Trial], total: int, plan: Sequence[tuple[int, int]], workers: int, limit: float | None) -> float | None:
    """Seconds to go, from what trials took so far; None before the first has ended.

    Args:
        total: trials that there will be.
        plan: (epochs before, epochs after) of each trial of a sweep of Hyperband; empty for other searches.
        workers: trials at a time on this machine.
        limit: seconds until no trial is started any more.
    """
    ended = [trial for trial in trials if trial.value is not None]
    if not ended:
        return None
    spent = sum(trial.result["seconds"] for trial in ended if trial.result)
    over = {trial.number for trial in trials if trial.result is not None}
    if plan:
        steps = [after - before for before, after in (list(plan) * (1 + total // len(plan)))[:total]]
        done = sum(steps[trial.number - 1] for trial in ended)
        left = spent / max(done, 1) * sum(step for number, step in enumerate(steps, 1) if number not in over)
    else:
        left = spent / len(ended) * (total - len(over))
    left /= max(1, workers, sum(trial.result is None for trial in trials))
    return left if limit is None else min(left, limit + spent / len(ended))


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
