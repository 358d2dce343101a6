"""The search space of an experiment, `tune.space`: checked against the settings it names, and laid over the experiment for a trial.

An entry names a setting and says how it varies: {choice: [...]}, {int: [low, high]}, {float: [low, high]} or {boolean: true};
for ranges also `scale: log` and `step`; `when: {other.setting: value}` where the setting matters only then.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.config.schema import Experiment
from pipelines.config.tree import settings, split, value_at

KINDS = ("choice", "int", "float", "boolean")
@dataclass(frozen=True)
class Dimension:
    """One searched setting.

    Attributes:
        name: the dotted setting.
        kind: "choice", "int", "float" or "boolean".
        values: what a choice or boolean may be, any YAML values; empty for ranges.
        low, high: ends of a range, both included.
        step: distance between values of a range, or their ratio with scale "log"; None for any value.
        scale: "linear" or "log".
        when: other searched setting -> the values of it for which this one matters.
    """

    name: str
    kind: str
    values: tuple[Any, ...] = ()
    low: float | int | None = None
    high: float | int | None = None
    step: float | int | None = None
    scale: str = "linear"
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def takes(self, value: Any) -> bool:
        """Whether a trial may have this value."""
        if self.kind in ("choice", "boolean"):
            return any(value == each and type(value) is type(each) for each in self.values)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and self.low is not None and self.high is not None and self.low <= value <= self.high


def dimensions(experiment: Experiment) -> list[Dimension]:
    """The searched settings of a checked experiment, each after those that its `when` names."""
    left = [_dimension(name, spec) for name, spec in (experiment.tune.space if experiment.tune else {}).items()]
    ordered: list[Dimension] = []
    while left:
        ready = [each for each in left if not set(each.when) & {other.name for other in left}]
        if not ready:
            raise ValueError("the conditions of tune.space go round in a circle")
        ordered += ready
        left = [each for each in left if each not in ready]
    return ordered


def current(experiment: Experiment, searched: Iterable[Dimension]) -> dict[str, Any]:
    """The experiment's own values of searched settings; None where it has none, as of another model's."""
    document = experiment.model_dump(mode="python")
    return {one.name: value_at(document, split(type(experiment), one.name)) for one in searched}


def laid_over(cls: type[Experiment], document: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's plain values, whole or only those given, with dotted settings set to `values` and without its tune section."""
    document = {**copy.deepcopy(document), "tune": None}
    for name in sorted(values, key=lambda name: not is_tag(cls, name)):
        *above, last = split(cls, name)
        at: Any = document
        for step in above:
            if at.get(step) is None:
                at[step] = {}
            at = at[step]
        if is_tag(cls, name) and at.get(last) != values[name]:
            at.clear()
        at[last] = values[name]
    return document


def _dimension(name: str, spec: Mapping[str, Any]) -> Dimension:
    kind = next(kind for kind in KINDS if kind in spec)
    when = {other: tuple(listed_values(value)) for other, value in spec.get("when", {}).items()}
    if kind == "choice":
        return Dimension(name, kind, tuple(spec[kind]), when=when)
    if kind == "boolean":
        return Dimension(name, kind, (False, True), when=when)
    low, high = spec[kind]
    return Dimension(name, kind, low=low, high=high, step=spec.get("step"), scale=spec.get("scale", "linear"), when=when)


def safe_dimension(name: str, spec: Mapping[str, Any]) -> Dimension | None:
    try:
        return _dimension(name, spec)
    except (StopIteration, TypeError, ValueError, AttributeError):
        return None  # its own entry says what is wrong


def listed_values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_tag(cls: type[Experiment], name: str) -> bool:
    return any(".".join(route) == name for setting in settings(cls) for route, _ in setting.variants)
