"""Settings that choose one of several sections by a key, open to more: each section is registered with what is built from it.

    MODELS = Variants()

    @MODELS.register("vision.models.cnn:build")      # ours: the builder by name, so that the settings import no TensorFlow
    class Cnn(Section):
        name: Literal["cnn"]

    class ImageClassification(Experiment):
        model: Annotated[Any, MODELS]

A class of settings that was built before a section was registered is built anew by `rebuild`.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, TypeVar, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

from pipelines.base.errors import ConfigError
from pipelines.config.doors import Builder, Origin, origin_of, resolved
from pipelines.config.section import ADDED, Section

SectionClass = TypeVar("SectionClass", bound=type[Section])


@dataclass(frozen=True)
class Registered:
    """A section and what is built from it: a function or class, or its place as "module:name"; `origin` is None for Quartet's own."""

    section: type[Section]
    builder: Builder
    origin: Origin | None
    key: str
    what: str


_EVERY: dict[type[Section], Registered] = {}
_ALL: "list[Variants]" = []


class Variants:
    """The sections among which a setting chooses. It stands in an annotation: `model: Annotated[Any, MODELS]`.

    Args:
        key: the setting by whose value one is chosen; each section declares it as a Literal.
        what: what one of them is called in messages.
    """

    changes = 0  # of all: how often a section was registered
    stale = False  # whether some class of settings was built before a section that it should take was registered

    def __init__(self, key: str = "name", what: str = "model"):
        self.key, self.what = key, what
        self._known: dict[str, Registered] = {}
        self._in_use = False
        _ALL.append(self)

    def register(self, builder: Builder) -> Callable[[SectionClass], SectionClass]:
        """A decorator for the section's class. Raises ConfigError where the class is no such section, or the name is taken."""

        def add(section: SectionClass) -> SectionClass:
            self.add(section, builder)
            return section

        return add

    def add(self, section: type[Section], builder: Builder) -> None:
        """As `register`, called plainly."""
        names = self._names(section)
        origin = origin_of(builder if isinstance(builder, str) else inspect.unwrap(builder))
        for name in names:
            before = self._known.get(name)
            if before is not None and (before.origin is None or origin is None or before.origin.name != origin.name):
                raise ConfigError(f"{section.__name__}: there is a {self.what} {name!r} already, from {before.origin or 'Quartet itself'}; "
                                  "choose another name")
        entry = Registered(section, builder, origin, self.key, self.what)
        self._known.update(dict.fromkeys(names, entry))
        _EVERY[section] = entry
        Variants.changes += 1
        Variants.stale |= self._in_use

    def sections(self) -> tuple[type[Section], ...]:
        """In the order in which they were registered."""
        return tuple(dict.fromkeys(entry.section for entry in self._known.values()))

    def section(self, name: str) -> type[Section] | None:
        """The section that is chosen by that name; None where there is none."""
        entry = self._known.get(name)
        return entry.section if entry else None

    def annotation(self) -> Any:
        """What the setting may be, as pydantic takes it."""
        sections = self.sections()
        if len(sections) < 2:
            return sections[0] if sections else None
        return Annotated[reduce(or_, sections), Field(discriminator=self.key)]  # type: ignore[arg-type]

    def builder(self, settings: Section) -> Any:
        """The function, class or module that was registered with these settings."""
        return resolved(_EVERY[type(settings)].builder)

    def build(self, settings: Section, **given: Any) -> Any:
        """What the builder of these settings makes; of `given` it is handed those that it names."""
        builder = self.builder(settings)
        parameters = inspect.signature(builder).parameters
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            given = {name: value for name, value in given.items() if name in parameters}
        return builder(settings, **given)

    def _names(self, section: type[Section]) -> tuple[str, ...]:
        if not (isinstance(section, type) and issubclass(section, Section)):
            raise ConfigError(f"{section!r} is no class of settings; derive it from quartet.Section")
        field = section.model_fields.get(self.key)
        names = get_args(field.annotation) if field else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise ConfigError(f'{section.__name__}: needs the {self.key} by which it is chosen, such as {self.key}: Literal["mine"]')
        bare = next((name for name, one in section.model_fields.items() if name != self.key and not one.description), None)
        if bare or not section.__doc__:
            what = f"{bare} has no meaning: {bare}: ... = quartet.setting(default, 'what it does')" if bare else "it has no docstring"
            raise ConfigError(f"{section.__name__} cannot be documented: {what}")
        return names

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        self._in_use = True
        annotation = self.annotation()
        return handler.generate_schema(type(None) if annotation is None else annotation)


def registered(section: type[Section]) -> Registered | None:
    """How a section was registered; None for one that was not."""
    return _EVERY.get(section)


def forget(name: str) -> None:
    """Takes back all that an extension has registered."""
    for each in _ALL:
        kept = {key: entry for key, entry in each._known.items() if entry.origin is None or entry.origin.name != name}
        if len(kept) < len(each._known):
            each._known = kept
            Variants.changes += 1
            Variants.stale = True
    for section in [section for section, entry in _EVERY.items() if entry.origin is not None and entry.origin.name == name]:
        del _EVERY[section]
    for base, sections in ADDED.items():
        for section in [one for one in sections if (origin := origin_of(one)) is not None and origin.name == name]:
            _remove_settings(base, section)


def origins() -> set[Origin]:
    """Of all that is registered and does not ship with Quartet."""
    added = {origin_of(section) for sections in ADDED.values() for section in sections}
    return {entry.origin for entry in _EVERY.values() if entry.origin is not None} | {origin for origin in added if origin is not None}


def add_settings(section: type[Section], added: type[Section]) -> None:
    """Puts the settings of an extension into a section of the experiment, such as `Monitor`, behind its own.

    `experiment.monitor.added(Track)` gives them back; checks across settings (`Track.problems`) are made with those of the section.

    Raises:
        ConfigError: the section has a setting of that name.
    """
    before = next((one for one in ADDED.get(section, ()) if one.__qualname__ == added.__qualname__), None)
    if before is not None:  # a file that has changed, used again
        _remove_settings(section, before)
    taken = next((name for name in added.model_fields if name in section.model_fields), None)
    if taken:
        raise ConfigError(f"{added.__name__}: {section.__name__} has a setting {taken!r} already; choose another name")
    ADDED.setdefault(section, []).append(added)
    section.__pydantic_fields__.update(added.model_fields)
    section.__annotations__.update({name: added.__annotations__[name] for name in added.model_fields})
    for name, field in added.model_fields.items():  # of what was validated before, and by classes that nobody has registered
        setattr(section, name, field.get_default(call_default_factory=True))
    section.model_rebuild(force=True)
    Variants.stale = True


def _remove_settings(section: type[Section], added: type[Section]) -> None:
    ADDED[section].remove(added)
    for name in added.model_fields:
        del section.__pydantic_fields__[name], section.__annotations__[name]
        delattr(section, name)
    section.model_rebuild(force=True)
    Variants.stale = True


def within(field: FieldInfo) -> Variants | None:
    """The Variants of a field: of itself, of an optional one, or of a list's items."""
    return next((one for one in (*field.metadata, *_inner_variants(field.annotation)) if isinstance(one, Variants)), None)


def rebuild(cls: type[Section]) -> bool:
    """Builds a class of settings and the sections in it anew, so that they take what was registered since; whether there was need to."""
    stale = cls in ADDED
    for field in cls.model_fields.values():
        inner = [rebuild(section) for section in _sections_in(field.annotation)]
        stale = stale or within(field) is not None or any(inner)
    if stale:
        cls.model_rebuild(force=True)
    return stale


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def _inner_variants(annotation: Any) -> list[Variants]:
    """Those within an annotation such as list[Annotated[Any, ...]]."""
    own = [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Variants)]
    return own + [one for part in get_args(annotation) for one in _inner_variants(part)]
