"""Values against the schema: every problem at once, each with its route, what was given, what is allowed and what was meant.

The walk follows the schema's own annotations and asks pydantic about each value, so that types and limits stand
in the schema alone. Empty sections in the values become {}; nothing else is changed.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pipelines.base.inside import other_kind
from pipelines.config.keras_names import keras_names
from pipelines.config.messages import describe, did_you_mean, listed, nearest, no_number, remedies, show, spell, suggest
from pipelines.config.problems import Route, dotted
from pipelines.config.schema import Section
from pipelines.config.tree import Kind, Setting, Shape, annotation_of, default, find, shape
from pipelines.config.variants import within
from pipelines.stores.remote import address_of

Found = tuple[Route, str]
LARGEST = 2**63  # of whole numbers; no tensor has a size or an index beyond


class Check:
    """Collects what is wrong with the values of one experiment.

    Args:
        cls: the experiment's class.
        values: what was given; empty sections in it become {}.
        overridden: whether the value at a route came from the command line.

    Attributes:
        problems: wrong keys, types and values: the experiment cannot be built.
        missing: files and folders that are not there, or are neither.
    """

    def __init__(self, cls: type[Section], values: dict[str, Any], overridden: Callable[[Route], bool] = lambda route: False):
        self.cls, self.values, self.overridden = cls, values, overridden
        self.problems: list[Found] = []
        self.missing: list[Found] = []

    def run(self) -> "Check":
        self._section(self.cls, self.values, ())
        return self

    def value(self, setting: Setting, value: Any) -> list[Found]:
        """What is wrong with one value of a setting; routes begin at the setting. Paths may be missing."""
        self._value(setting, setting.annotation, value, (), lambda cleaned: None)
        return self.problems

    def _section(self, cls: type[Section], values: dict[str, Any], route: Route, chosen: tuple[str, Shape] | None = None) -> None:
        for key in list(values):
            if key not in cls.model_fields:
                self._unknown(cls, key, values[key], route, chosen)
        for name, field in cls.model_fields.items():
            setting = Setting((name,), field, cls)
            if name in values:
                def keep(cleaned: Any, name: str = name) -> None:
                    values[name] = cleaned

                self._value(setting, annotation_of(field), values[name], (*route, name), keep)
            elif field.is_required():
                self._wrong((*route, name), f"must be given: {_wanted(setting)}")

    def _value(self, setting: Setting, annotation: Any, value: Any, route: Route, keep: Callable[[Any], None]) -> None:
        allowed = shape(annotation)
        if value is None and allowed.nullable:
            return
        if isinstance(value, int) and abs(value) >= LARGEST:
            return self._wrong(route, f"{show(value)} is larger than any number that a setting can be")
        if allowed.sections and value is None:
            value = {}
            keep(value)
        items = allowed.kind(dict if isinstance(value, dict) else list if isinstance(value, list) else None)
        if allowed.sections and isinstance(value, dict):
            self._chosen(allowed, value, route)
        elif items and items.base is not None:
            self._items(setting, allowed, items, annotation, value, route)
        elif allowed.sections and len(allowed.sections) == len(allowed.kinds):
            self._wrong(route, _not_a_section(allowed, value, route))
        elif not _accepts(annotation, value):
            self._wrong(route, _refusal(setting, annotation, value))
        elif isinstance(value, str):
            self._named(setting, value, route)

    def _chosen(self, allowed: Shape, value: dict[str, Any], route: Route) -> None:
        """A mapping where a section is allowed; with several, its tag says which."""
        variants = allowed.variants()
        cls = allowed.section_for(value)
        if cls is not None:
            self._section(cls, value, route, (str(value[allowed.tag]), allowed) if allowed.tag else None)
        elif allowed.tag not in value:
            self._wrong((*route, str(allowed.tag)), f"must be given: one of {listed(variants)}")
        else:
            given = value[str(allowed.tag)]
            guess = f"; {_of_variant(allowed, given)}" if _of_variant(allowed, given) else did_you_mean(str(given), variants, 0.5)
            self._wrong((*route, str(allowed.tag)), f"{show(given)} is not one of {listed(variants)}{guess}")

    def _items(self, setting: Setting, allowed: Shape, kind: Kind, annotation: Any, value: Any, route: Route) -> None:
        before = len(self.problems)
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            def keep(cleaned: Any, key: Any = key) -> None:
                value[key] = cleaned

            self._value(setting, kind.item, item, (*route, key), keep)
        if len(self.problems) == before and not shape(kind.item).sections and not _accepts(annotation, value):
            self._wrong(route, _refusal(setting, annotation, value))

    def _named(self, setting: Setting, value: str, route: Route) -> None:
        """A text that names something outside the experiment: a file, a class of Keras."""
        if any(value in kind.choices for kind in setting.shape.kinds):
            return
        if setting.extra("path") and address_of(value) is None and not self._in_place(route):
            path, kind = Path(value).expanduser(), other_kind(Path(value).expanduser())
            if kind and kind != "a folder":
                self.missing.append((route, f"{show(value, 200)} is {kind}; only regular files and folders are read"))
            elif not kind and not path.exists():
                self.missing.append((route, not_there(path, value)))
        module = setting.extra("names")
        names = keras_names(module) if module else ()
        if names and value.lower() not in {name.lower() for name in names}:
            guess = nearest(value, names, 0.5)
            meant = f"; did you mean {guess.lower() if value.islower() else guess}?" if guess else f"; it has {listed(names, 'and')}"
            self._wrong(route, f"{show(value)} is not in {module}{meant}")

    def _in_place(self, route: Route) -> bool:
        """Whether the data that a setting names are not looked for, since they were prepared (data.prepared)."""
        data = self.values.get("data")
        return route[0] == "data" and route[-1] != "prepared" and isinstance(data, dict) and bool(data.get("prepared"))

    def _unknown(self, cls: type[Section], key: str, value: Any, route: Route, chosen: tuple[str, Shape] | None) -> None:
        name = (*route, key)
        here = dotted(route)
        if ":" in key and value is None:
            return self._wrong(name, "no such setting; put a space after the colon")
        if "." in key and find(self.cls, dotted(route) + "." + key if route else key):
            nested = key.replace(".", ": {") + f": {spell(value)}" + "}" * key.count(".")
            return self._wrong(name, f"dotted names are for the command line; in the file write {nested}")
        found = suggest(self.cls, cls, route, key, self.values)
        meant = f"; did you mean {listed(found)}?" if found else ""
        if not chosen:
            has = "" if found else f"; {here or 'an experiment'} has {listed(cls.model_fields, 'and')}"
            return self._wrong(name, f"no such setting{meant}{has}")
        tag, allowed = chosen
        others = [other for other, section in allowed.variants().items() if key in section.model_fields]
        have = f"; {listed(others, 'and')} {'has' if len(others) == 1 else 'have'} it" if others else ""
        own = listed([field for field in cls.model_fields if field != allowed.tag], "and")
        changed = self.overridden((*route, str(allowed.tag))) and not self.overridden(name)
        whole = f"; {here}={{{allowed.tag}: {tag}}} replaces the whole section" if changed else ""
        return self._wrong(name, f"no such setting of {tag}, which has {own}{have}{meant}{whole}")

    def _wrong(self, route: Route, message: str) -> None:
        self.problems.append((route, message))


def validation_problems(error: ValidationError, values: Mapping[str, Any]) -> list[Found]:
    """What pydantic found beyond the walk (validators of a domain's own), with the way to each value."""
    found: list[Found] = []
    for entry in error.errors(include_url=False, include_context=False):
        route: list[str | int] = []
        at: Any = values
        for step in entry["loc"]:
            inside = step in at if isinstance(at, dict) else isinstance(at, list) and isinstance(step, int) and step < len(at)
            if inside:
                route.append(step)
                at = at[step]
        message = entry["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        found.append((tuple(route), message[:1].lower() + message[1:]))
    return found


def _accepts(annotation: Any, value: Any) -> bool:
    allowed = shape(annotation)
    if allowed.sections and len(allowed.sections) == len(allowed.kinds):
        return False
    try:
        TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        return False
    return True


def _takes(setting: Setting, annotation: Any, value: Any) -> bool:
    """Whether a suggestion would not be refused, too: `_accepts`, and of names of a module, that it has one."""
    module = setting.extra("names")
    return _accepts(annotation, value) and not (module and str(value).lower() not in {name.lower() for name in keras_names(module)})


def _refusal(setting: Setting, annotation: Any, value: Any) -> str:
    """Why a value is refused: what it is not, and what was probably meant, where that would not be refused, too."""
    allowed = shape(annotation)
    text = f"{show(value)} is not {describe(allowed, setting.extra('unit') or '')}"
    if isinstance(value, dict) and not allowed.kinds and (choice := within(setting.field)) is not None:
        return f"no {choice.what} {show(value.get(choice.key))} is registered here; pass the file that registers it: --use FILE"
    if isinstance(value, dict):
        return f"{text}; it has no settings of its own"
    if value is None:
        usual = default(setting.field)
        return f"{text}; leave the line out for the default, {show(usual)}" if usual is not ... else text
    choices = [choice for kind in allowed.kinds if kind.base is Literal for choice in kind.choices if isinstance(choice, str)]
    meant = nearest(value, choices, 0.5) if isinstance(value, str) else None
    if meant:
        return f"{text}; did you mean {meant}?"
    hint = next((hint for other, hint in remedies(value, allowed) if _takes(setting, annotation, other)), no_number(value))
    return f"{text}; {hint}" if hint else text


def _wanted(setting: Setting) -> str:
    allowed = setting.shape
    if variants := allowed.variants():
        return f"a section with {allowed.tag}: one of {listed(variants)}"
    if allowed.sections:
        needed = [name for name, field in allowed.sections[0].model_fields.items() if field.is_required()]
        return f"a section with {listed(needed, 'and')}"
    return describe(allowed, setting.extra("unit") or "")


def _not_a_section(allowed: Shape, value: Any, route: Route) -> str:
    """A plain value where a mapping belongs: says which of its settings the value fits."""
    key = route[-1]
    write = f"write {key}: " if isinstance(key, str) else "write "
    variants = allowed.variants()
    if variants and (known := _of_variant(allowed, value)):
        return f"{show(value)} is not a section; {known}"
    if variants:
        meant = value if value in variants else nearest(str(value), variants, 0.5)
        sample = f"{allowed.tag}: {meant or '...'}" + (_needed(variants[meant], str(allowed.tag)) if meant else "")
        return f"{show(value)} is not a section; {write}{{{sample}}}" + ("" if meant else f" with one of {listed(variants)}")
    fields = allowed.sections[0].model_fields
    inner = (Setting((name,), field, allowed.sections[0]) for name, field in fields.items())
    fitting = next((one.name for one in inner if _takes(one, one.annotation, value)), None)
    if fitting:
        return f"{show(value)} is not a section; {write}{{{fitting}: {spell(value)}{_needed(allowed.sections[0], fitting)}}}"
    return f"{show(value)} is not a section; {key} has {listed(fields, 'and')}"


def _needed(section: type[Section], given: str) -> str:
    """What else a section cannot do without, for a person to fill in."""
    return "".join(f", {name}: ..." for name, field in section.model_fields.items() if field.is_required() and name != given)


def _of_variant(allowed: Shape, value: Any) -> str:
    """Where a wrong tag is a name that one of the sections takes (ResNet50 of keras.applications): how to write it."""
    for tag, section in allowed.variants().items():
        for name, field in section.model_fields.items():
            module = Setting((name,), field, section).extra("names")
            found = nearest(str(value), keras_names(module), 0.8) if module else None
            if found:
                return f"write {{{allowed.tag}: {tag}, {name}: {found}}}"
    return ""


def not_there(path: Path, given: str) -> str:
    """A path that does not exist: where it was looked for, and what lies nearest."""
    if path.is_symlink():
        return f"{show(given, 200)} is a link that leads nowhere; name what it should lead to"
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    step = path.relative_to(parent).parts[0] if parent in path.parents else path.name
    try:
        siblings: Sequence[str] = sorted(entry.name for entry in parent.iterdir())
    except OSError:
        siblings = ()
    near = nearest(step, siblings, 0.5)
    where = "" if path.is_absolute() else f" in {Path.cwd()}"
    if near:
        return f"{show(given, 200)} does not exist{where}; did you mean {parent / near}?"
    return f"{show(given, 200)} does not exist{where}" + (f"; there is no {parent / step}" if step != path.name else "")
