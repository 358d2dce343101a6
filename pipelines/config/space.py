"""The search space of an experiment, `tune.space`: checked against the settings it names, and laid over the experiment for a trial.

An entry names a setting and says how it varies: {choice: [...]}, {int: [low, high]}, {float: [low, high]} or {boolean: true};
for ranges also `scale: log` and `step`; `when: {other.setting: value}` where the setting matters only then.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.config.check import Check, Found
from pipelines.config.messages import describe, did_you_mean, listed, nearest_name, show
from pipelines.config.problems import Route
from pipelines.config.schema import Experiment
from pipelines.config.tree import Setting, find, settings, split, value_at

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


_MORE = ("scale", "step", "when")
_SCALES = ("linear", "log")


def problems(cls: type[Experiment], values: Mapping[str, Any]) -> list[Found]:
    """Everything wrong with the space in an experiment's values, with the way to each entry."""
    tune = values.get("tune")
    space = tune.get("space") if isinstance(tune, dict) else None
    if not isinstance(tune, dict) or (space is not None and not isinstance(space, dict)):
        return []
    if not space:
        sample = "train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}"
        return [(("tune", "space"), f"nothing to search; name settings, such as {sample}")]
    checker = _SpaceCheck(cls, values, space)
    for name, spec in space.items():
        checker.entry(name, spec)
    for name in space:
        if str(name).startswith("loss.") and str(tune.get("objective")).removeprefix("validation/") == "loss":
            checker.wrong((name,), "cannot be searched while trials are compared by it; take another tune.objective")
    if tune.get("algorithm") == "hyperband" and "train.epochs" in space:
        checker.wrong(("train.epochs",), "hyperband chooses the epochs itself; leave it out or take another algorithm")
    return checker.found


class _SpaceCheck:
    def __init__(self, cls: type[Experiment], values: Mapping[str, Any], space: dict[str, Any]):
        self.cls, self.values, self.space = cls, values, space
        self.found: list[Found] = []

    def wrong(self, route: Route, message: str) -> None:
        self.found.append((("tune", "space", *route), message))

    def entry(self, name: str, spec: Any) -> None:
        candidates = self._candidates(name)
        if not isinstance(spec, dict):
            sample = f"{{choice: {show(spec)}}}" if isinstance(spec, list) else "{choice: [...]}, {int: [low, high]}, {float: [low, high]}"
            return self.wrong((name,), f"{show(spec)} does not say how it varies; write {sample}")
        for key in spec:
            if key not in KINDS + _MORE:
                self.wrong((name, key), f"no such key{did_you_mean(key, KINDS + _MORE)}; a space has {listed(KINDS + _MORE, 'and')}")
        kinds = [kind for kind in KINDS if kind in spec]
        if len(kinds) != 1:
            given = f"{listed(kinds, 'and')} are given" if kinds else "nothing says how it varies"
            return self.wrong((name,), f"{given}; give one of {listed(KINDS)}")
        kind = kinds[0]
        if kind in ("int", "float"):
            self._range(name, kind, spec, candidates)
        elif kind == "boolean" and spec[kind] is not True:
            self.wrong((name, kind), f"{show(spec[kind])} is not true; write {{boolean: true}}")
        elif kind == "choice" and is_tag(self.cls, name):
            self._tags(name, spec[kind], candidates)
        elif kind == "choice":
            self._choice(name, spec[kind], candidates)
        if kind in ("boolean", "choice"):
            for key in ("scale", "step"):
                if key in spec:
                    self.wrong((name, key), f"{key} is for int and float, not for {kind}")
        if kind == "boolean" and candidates and not all(each.shape.kind(bool) for each in candidates):
            self.wrong((name, kind), f"the setting is {describe(candidates[0].shape)}, not true or false")
        if "when" in spec:
            self._when(name, spec["when"])
        return None

    def _candidates(self, name: str) -> list[Setting]:
        """The settings of that name that trials can have; says what is wrong where there are none."""
        named = find(self.cls, name)
        if not named:
            meant = nearest_name(self.cls, name, self.values)
            self.wrong((name,), "no such setting" + (f"; did you mean {meant}?" if meant else ""))
            return []
        if why := _not_searched(named[0]):
            self.wrong((name,), f"cannot be searched: {why}")
            return []
        if named[0].shape.sections:
            inside = dict.fromkeys(each.name for each in settings(self.cls) if each.route[:-1] == named[0].route)
            self.wrong((name,), f"is a section; name one of its settings: {listed(inside)}")
            return []
        return named if is_tag(self.cls, name) else self._in_trials(name, named)

    def _in_trials(self, name: str, named: list[Setting]) -> list[Setting]:
        """Of settings that only some models have, those whose models are in the trials."""
        if any(not setting.variants for setting in named):
            self._section_is_set(named[0])
            return named
        tag_route = named[0].variants[-1][0]
        tag_name = ".".join(tag_route)
        own = value_at(self.values, tag_route)
        spec = self.space.get(tag_name)
        searched = spec.get("choice") if isinstance(spec, dict) else None
        active = {str(each) for each in searched} if isinstance(searched, list) else {str(own)} if own else set()
        having = {setting.variants[-1][1]: setting for setting in named}
        if active and not active & set(having):
            guess = nearest_name(self.cls, name, self.values)
            meant = f"; did you mean {guess}?" if guess else ""
            have = f"{listed(having, 'and')} {'has' if len(having) == 1 else 'have'}"
            self.wrong((name,), f"no such setting of {listed(sorted(active), 'and')} ({have} it){meant}")
            return []
        entry = self.space.get(name)
        when = entry.get("when") if isinstance(entry, dict) else None
        asked = {str(each) for each in listed_values(when.get(tag_name))} if isinstance(when, dict) and tag_name in when else active
        if lacking := sorted(asked - set(having)):
            usable = sorted(active & set(having))
            condition = usable[0] if len(usable) == 1 else f"[{', '.join(usable)}]"
            self.wrong((name,), f"{listed(lacking, 'and')} has no such setting; add when: {{{tag_name}: {condition}}}")
        return [having[tag] for tag in sorted(asked & set(having))]

    def _section_is_set(self, setting: Setting) -> None:
        """A section that is null by default and not given must get all it needs from the space."""
        for length in range(1, len(setting.route)):
            above = setting.route[:length]
            section = find(self.cls, ".".join(above))[0]
            given = section.field.is_required() or section.field.get_default(call_default_factory=True) is not None
            if given or value_at(self.values, above):
                continue
            fields = section.shape.sections[0].model_fields
            needed = [key for key, each in fields.items() if each.is_required() and ".".join((*above, key)) not in self.space]
            if needed:
                self.wrong((setting.name,), f"{section.name} is not set in this experiment and needs {listed(needed, 'and')}")

    def _choice(self, name: str, given: Any, candidates: list[Setting]) -> None:
        if not isinstance(given, list) or not given:
            return self.wrong((name, "choice"), f"{show(given)} is not a list of values, such as [1, 2]")
        shown = [show(value) for value in given]
        if len(set(shown)) < len(shown):
            self.wrong((name, "choice"), f"{next(text for text in shown if shown.count(text) > 1)} is given twice")
        for number, value in enumerate(given):
            self._value((name, "choice", number), value, candidates)
            if name == "train.precision" and value == "auto":
                self.wrong((name, "choice", number), "auto is one of the others, chosen for the machine; name those to be compared")
        return None

    def _tags(self, name: str, given: Any, candidates: list[Setting]) -> None:
        """A choice of models: each must be one, and get from the space what it cannot do without."""
        sections = {tag: setting.owner for setting in candidates for route, tag in setting.variants if ".".join(route) == name}
        own = value_at(self.values, tuple(name.split(".")))
        for number, value in enumerate(given if isinstance(given, list) else [given]):
            if not isinstance(value, str) or value not in sections:
                guess = did_you_mean(str(value), sections, 0.5)
                self.wrong((name, "choice", number), f"{show(value)} is not one of {listed(sections)}{guess}")
            elif value != own:
                above = name.rpartition(".")[0]
                needed = [f"{above}.{key}" for key, each in sections[value].model_fields.items() if each.is_required()]
                missing = [each for each in needed if each != name and each not in self.space]
                if missing:
                    self.wrong((name, "choice", number), f"{value} needs {listed(missing, 'and')} in the space too")

    def _range(self, name: str, kind: str, spec: dict[str, Any], candidates: list[Setting]) -> None:
        given, wanted = spec[kind], (int,) if kind == "int" else (int, float)
        ends = "[low, high]" if kind == "float" else "[low, high] in whole numbers"
        numbers = isinstance(given, list) and all(isinstance(end, wanted) and not isinstance(end, bool) for end in given)
        if not numbers or len(given) != 2 or not given[0] < given[1]:
            why = "; the low end comes first" if numbers and len(given) == 2 else ""
            return self.wrong((name, kind), f"{show(given)} is not {ends}{why}")
        low, high = given
        fitting = [setting for setting in candidates if setting.shape.kind(float) or (kind == "int" and setting.shape.kind(int))]
        if candidates and not fitting:
            other = "; write {int: [low, high]}" if candidates[0].shape.kind(int) else "; write {choice: [...]}"
            return self.wrong((name, kind), f"the setting is {describe(candidates[0].shape)}{other}")
        for number, end in enumerate(given):
            self._value((name, kind, number), end, fitting)
        scale = spec.get("scale", "linear")
        if scale not in _SCALES:
            self.wrong((name, "scale"), f"{show(scale)} is not {listed(_SCALES)}{did_you_mean(str(scale), _SCALES, 0.4)}")
        if scale == "log" and low <= 0:
            self.wrong((name, kind), f"{show(given)}: a log scale begins above 0")
        step = spec.get("step")
        if step is not None:
            if not isinstance(step, wanted) or isinstance(step, bool):
                self.wrong((name, "step"), f"{show(step)} is not a {'whole number' if kind == 'int' else 'number'}")
            elif scale == "log" and step <= 1:
                self.wrong((name, "step"), f"{show(step)} is not above 1; on a log scale it is the ratio of neighbouring values")
            elif scale == "linear" and not 0 < step <= high - low:
                self.wrong((name, "step"), f"{show(step)} is not above 0 and at most {show(high - low)}, the width of the range")
        return None

    def _value(self, route: Route, value: Any, candidates: list[Setting]) -> None:
        for setting in candidates:
            if wrong := Check(self.cls, {}).value(setting, value):
                self.wrong((*route, *wrong[0][0]), wrong[0][1])
                return

    def _when(self, name: str, when: Any) -> None:
        if not isinstance(when, dict) or not when:
            return self.wrong((name, "when"), f"{show(when)} is not a mapping of a searched setting to its value")
        for other, value in when.items():
            spec = self.space.get(other)
            if other == name or spec is None:
                hint = did_you_mean(other, [each for each in self.space if each != name])
                self.wrong((name, "when", other), f"is not searched here{hint}" if other != name else "a setting cannot depend on itself")
            elif isinstance(spec, dict) and (dimension := safe_dimension(other, spec)):
                for each in listed_values(value):
                    if not dimension.takes(each):
                        self.wrong((name, "when", other), f"{show(each)} is not among the values searched for {other}")
        if self._circle(name):
            self.wrong((name, "when"), "the conditions go round in a circle")
        return None

    def _circle(self, start: str) -> bool:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            spec = self.space.get(ahead.pop())
            when = spec.get("when") if isinstance(spec, dict) else None
            for other in when if isinstance(when, dict) else ():
                if other == start and seen:
                    return True
                if other not in seen and other != start:
                    seen.add(other)
                    ahead.append(other)
        return False


def _not_searched(setting: Setting) -> str | None:
    """Why a setting cannot be searched; None where it can."""
    allowed = setting.extra("search")
    if isinstance(allowed, str):
        return allowed
    if setting.route[0] == "tune":
        return "it belongs to the search"
    return "it changes what trials are judged on" if setting.route[0] == "data" and not allowed else None
