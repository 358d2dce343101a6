"""The trials of a search as it knows them: what came of each, the best, and how long the rest will take. Imports no TensorFlow."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base import stored
from pipelines.base.errors import QuartetError, TrainingError
from pipelines.config.schema import Cost
from pipelines.tuning.front import worth
from pipelines.tuning.stored import Result

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
