"""What is wrong with an experiment: one line for each problem, with its place, its setting and its remedy."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.base.errors import ConfigError

Route = tuple[str | int, ...]  # the way to a value: ("model", "widths", 0)


@dataclass(frozen=True)
class Place:
    """Where a value was given: a line of a file, or an override (its text, and its number among the overrides)."""

    file: str
    line: int | None = None
    override: int | None = None

    def __str__(self) -> str:
        if self.override is not None:
            return f"override {self.file!r}"
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def order(self) -> tuple[int, int]:
        """File before overrides, each from top to bottom."""
        return (1, self.override) if self.override is not None else (0, self.line or 0)


def dotted(route: Route) -> str:
    """The name of a setting as people write it: model.widths[0], tune.space[train.epochs]."""
    text = ""
    for step in route:
        if not text:
            text = str(step)
        else:
            text += f"[{step}]" if isinstance(step, int) or "." in step else f".{step}"
    return text


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `message` begins after the setting's name and says what to do."""

    place: Place
    route: Route
    message: str

    def __str__(self) -> str:
        name = dotted(self.route)
        return f"{self.place}: {name}: {self.message}" if name else f"{self.place}: {self.message}"


class ExperimentError(ConfigError):
    """Everything that is wrong with an experiment, a line for each problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = sorted(dict.fromkeys(problems), key=lambda problem: problem.place.order)
        super().__init__("\n".join(str(problem) for problem in self.problems))
