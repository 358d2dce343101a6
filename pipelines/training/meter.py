"""Where the time goes: wall seconds by part, examples per second, and the share of time waiting for input.

Parts may nest; time counts for the innermost one only, so that the parts add up. A call costs under a microsecond.
Used from one thread.
"""

from collections.abc import Callable
from time import perf_counter
from types import TracebackType
from typing import Any

PARTS = ("setup", "compile", "input", "step", "evaluation", "checkpoint", "callbacks")


class Meter:
    """Accumulates seconds by part and counts examples, over one process or, with `state`, over the resumes of a run.

    `input` is waiting for a batch, `step` everything else of a training step; the first call of a step, which traces and
    compiles, is `compile` and counts neither examples nor steps in the rates.
    """

    def __init__(self, *, clock: Callable[[], float] = perf_counter):
        """`clock` gives seconds; another one than the real is for tests."""
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.examples = 0
        self.steps = 0
        self._clock = clock
        self._parts: dict[str, _Part] = {}
        self._open: list[_Part] = []

    def part(self, name: str) -> "_Part":
        """`with meter.part("evaluation"): ...` adds the time inside, less that of parts opened inside it."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part(self, name)
        return part

    def add(self, name: str, seconds: float) -> None:
        """Adds time measured elsewhere to a part. Not subtracted from a part that is open meanwhile."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def step(self, seconds: float, waited: float, steps: int, batch: int, *, first: bool = False) -> None:
        """Adds a call of some training steps.

        Args:
            seconds: of the whole call.
            waited: of those, spent waiting for input.
            steps: done in it.
            batch: examples in a step.
            first: the call traced and compiled.
        """
        if first:
            self.seconds["compile"] += seconds
            return
        waited = min(max(waited, 0.0), seconds)
        self.seconds["input"] += waited
        self.seconds["step"] += seconds - waited
        self.steps += steps
        self.examples += steps * batch

    @property
    def examples_per_second(self) -> float:
        """Examples trained per second of input and step together; 0 before the first."""
        return _ratio(self.examples, self.seconds["input"] + self.seconds["step"])

    @property
    def input_wait_fraction(self) -> float:
        """Input's share of input and step together."""
        return _ratio(self.seconds["input"], self.seconds["input"] + self.seconds["step"])

    def shares(self) -> dict[str, float]:
        """Each part's share of all time accounted for; they sum to 1. Parts without time are left out."""
        total = sum(self.seconds.values())
        return {name: seconds / total for name, seconds in self.seconds.items() if seconds > 0}

    def summary(self) -> dict[str, Any]:
        """Everything for the report: rates over the whole run, seconds and shares by part, steps and examples counted."""
        return {
            "examples_per_second": self.examples_per_second, "input_wait_fraction": self.input_wait_fraction,
            "steps": self.steps, "examples": self.examples,
            "seconds": {name: seconds for name, seconds in self.seconds.items() if seconds > 0}, "shares": self.shares(),
        }

    def state(self) -> dict[str, Any]:
        """JSON values to go on from in another process."""
        return {"seconds": dict(self.seconds), "examples": self.examples, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        """Adds what an interrupted process had measured."""
        for name, seconds in state["seconds"].items():
            self.add(name, seconds)
        self.examples += state["examples"]
        self.steps += state["steps"]


class _Part:
    """A part's stopwatch: entering pauses the part around it."""

    __slots__ = ("_meter", "_name", "_since")

    def __init__(self, meter: Meter, name: str):
        self._meter, self._name, self._since = meter, name, 0.0
        meter.seconds.setdefault(name, 0.0)

    def __enter__(self) -> None:
        meter = self._meter
        now = meter._clock()
        if meter._open:
            outer = meter._open[-1]
            meter.seconds[outer._name] += now - outer._since
        meter._open.append(self)
        self._since = now

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        meter = self._meter
        now = meter._clock()
        meter._open.pop()
        meter.seconds[self._name] += now - self._since
        if meter._open:
            meter._open[-1]._since = now


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
