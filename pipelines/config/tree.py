"""The schema seen from outside: which settings there are, what each may be, and under which choice of model it exists.

Messages, overrides, the search space and the reference page all ask here; the classes of the schema stay the only source.
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from pipelines.config.problems import Route
from pipelines.config.schema import Section
from pipelines.config.variants import Variants

LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


@dataclass(frozen=True)
class Kind:
    """One of the things a setting may be.

    Attributes:
        base: int, float, bool, str, list, dict, Literal, Any, or a Section class.
        choices: the values of a Literal.
        item: annotation of a list's items or a mapping's values.
        limits: ge, gt, le, lt, min_length, ... that hold for it.
    """

    base: Any
    choices: tuple[Any, ...] = ()
    item: Any = None
    limits: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def section(self) -> type[Section] | None:
        return self.base if isinstance(self.base, type) and issubclass(self.base, Section) else None


@dataclass(frozen=True)
class Shape:
    """All that a setting may be. `tag` is the key by which one of several sections is chosen (`name`), if so."""

    kinds: tuple[Kind, ...]
    nullable: bool = False
    tag: str | None = None

    @cached_property
    def sections(self) -> tuple[type[Section], ...]:
        return tuple(kind.section for kind in self.kinds if kind.section)

    def kind(self, base: Any) -> Kind | None:
        return next((kind for kind in self.kinds if kind.base is base), None)

    def variants(self) -> dict[str, type[Section]]:
        """Tag value -> section class, where sections are chosen by a tag; else empty."""
        if not self.tag:
            return {}
        return {str(value): section for section in self.sections for value in get_args(section.model_fields[self.tag].annotation)}

    def section_for(self, value: Mapping[str, Any]) -> type[Section] | None:
        """The section that a mapping means; None where its tag is missing or unknown."""
        if self.tag:
            return self.variants().get(value.get(self.tag, ""))  # type: ignore[arg-type]
        return self.sections[0] if self.sections else None


def shape(annotation: Any, metadata: tuple[Any, ...] = ()) -> Shape:
    """Takes an annotation apart: unions, None, Annotated, Literal, lists, mappings and sections."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *more = get_args(annotation)
        return shape(base, (*metadata, *more))
    variants = next((one for one in metadata if isinstance(one, Variants)), None)
    if variants is not None:
        return shape(variants.annotation())
    limits, tag = _metadata(metadata)
    if origin in (Union, types.UnionType):
        parts = [shape(part, metadata) for part in get_args(annotation)]
        tags = [part.tag for part in parts if part.tag]
        return Shape(tuple(kind for part in parts for kind in part.kinds), any(part.nullable for part in parts), tags[0] if tags else tag)
    if annotation is None or annotation is type(None):
        return Shape((), nullable=True)
    if origin is Literal:
        return Shape((Kind(Literal, choices=get_args(annotation)),))
    if origin is list:
        return Shape((Kind(list, item=get_args(annotation)[0], limits=limits),))
    if origin is dict:
        return Shape((Kind(dict, item=get_args(annotation)[1], limits=limits),))
    return Shape((Kind(annotation, limits=limits),), nullable=annotation is Any, tag=tag)


def annotation_of(field: FieldInfo) -> Any:
    """A field's whole annotation, with the limits and the discriminator that pydantic keeps beside it."""
    extra = [Field(discriminator=field.discriminator)] if field.discriminator else []
    parts = (field.annotation, *field.metadata, *extra)
    return Annotated[parts] if len(parts) > 1 else field.annotation


@dataclass(frozen=True)
class Setting:
    """A setting of an experiment, a section included.

    Attributes:
        route: the way to it; "*" stands for any item of a list or entry of a mapping.
        field: pydantic's field: default, meaning, limits.
        owner: the class that declares it.
        variants: (route of a tag, its value) for each chosen section around it: ((("model", "name"), "cnn"),).
    """

    route: tuple[str, ...]
    field: FieldInfo
    owner: type[Section]
    variants: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def name(self) -> str:
        return ".".join(self.route)

    @property
    def annotation(self) -> Any:
        return annotation_of(self.field)

    @property
    def shape(self) -> Shape:
        return shape(self.annotation)

    @property
    def meaning(self) -> str:
        return self.field.description or ""

    def extra(self, key: str) -> Any:
        """What `schema.setting` noted beside the type: unit, path, names."""
        extra = self.field.json_schema_extra
        return extra.get(key) if isinstance(extra, dict) else None

    def exists_in(self, values: Mapping[str, Any]) -> bool:
        """Whether the models (and the like) chosen in these values have this setting."""
        return all(value_at(values, route) == tag for route, tag in self.variants)


def settings(cls: type[Section]) -> tuple[Setting, ...]:
    """Every setting of an experiment class, sections before what they hold, in the order of declaration."""
    return _settings(cls, Variants.changes)


def settings_with(cls: type[Section], key: str) -> list[Setting]:
    """Those beside whose type `schema.setting` noted something, such as "path"."""
    return [setting for setting in settings(cls) if setting.extra(key)]


@cache
def _settings(cls: type[Section], changes: int) -> tuple[Setting, ...]:
    return tuple(_walk(cls, (), ()))


def find(cls: type[Section], name: str) -> list[Setting]:
    """The settings of that dotted name: several where several models have it, none where there is no such setting."""
    return [setting for setting in settings(cls) if setting.name == name]


def default(field: FieldInfo) -> Any:
    """A field's default; `...` where a value must be given."""
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def shapes_at(cls: type[Section], route: Route) -> list[Shape]:
    """What the value there may be, in each of the sections that have it; empty where there is no such setting."""
    found = [Shape((Kind(cls),))]
    for step in route:
        fields = [section.model_fields[step] for each in found for section in each.sections if step in section.model_fields]
        entries = [kind.item for each in found for kind in each.kinds if kind.base is dict]
        found = [shape(annotation_of(field)) for field in fields] or [shape(item) for item in entries]
    return found


def split(cls: type[Section], name: str) -> Route:
    """A dotted name as a route. In free mappings (tune.space, optimizer.options) all that follows is one key."""
    parts = name.split(".")
    for number in range(1, len(parts)):
        shapes = shapes_at(cls, tuple(parts[:number]))
        free = [kind for each in shapes for kind in each.kinds if kind.base is dict and not shape(kind.item).sections]
        if free and not any(each.sections for each in shapes):
            return (*parts[:number], ".".join(parts[number:]))
    return tuple(parts)


def _walk(cls: type[Section], route: tuple[str, ...], variants: tuple[Any, ...]) -> Iterator[Setting]:
    for name, field in cls.model_fields.items():
        setting = Setting((*route, name), field, cls, variants)
        yield setting
        yield from _below(setting.shape, setting.route, variants)


def _below(found: Shape, route: tuple[str, ...], variants: tuple[Any, ...]) -> Iterator[Setting]:
    tags = {section: tag for tag, section in found.variants().items()}
    for section in found.sections:
        yield from _walk(section, route, (*variants, ((*route, found.tag), tags[section])) if section in tags else variants)
    for kind in found.kinds:
        if kind.base in (list, dict):
            yield from _below(shape(kind.item), (*route, "*"), variants)


def _metadata(metadata: tuple[Any, ...]) -> tuple[tuple[tuple[str, Any], ...], str | None]:
    limits: dict[str, Any] = {}
    tag = None
    for entry in metadata:
        if isinstance(entry, FieldInfo):
            if isinstance(entry.discriminator, str):
                tag = entry.discriminator
            limits.update(_metadata(tuple(entry.metadata))[0])
        else:
            limits.update({name: getattr(entry, name) for name in LIMITS if getattr(entry, name, None) is not None})
    return tuple(limits.items()), tag


def value_at(values: Any, route: Iterable[Any]) -> Any:
    """The value there; None where the way leads nowhere."""
    for step in route:
        values = values.get(step) if isinstance(values, Mapping) else None
    return values
