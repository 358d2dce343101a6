"""Which settings of an experiment are not at their defaults."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

_NONE = object()  # where a setting has no default


@dataclass(frozen=True)
class Changed:
    """A setting by dotted name, its value, and its default (`required`: it has none)."""

    name: str
    value: Any
    default: Any
    required: bool = False


def changed_settings(section: BaseModel, *, leave_out: tuple[str, ...] = ()) -> list[Changed]:
    """The settings whose values are not their defaults, in order of the schema; those without default are always among them.

    Args:
        leave_out: sections at the top that do not count, such as `tune`.
    """
    names = [name for name in type(section).model_fields if name not in leave_out]
    return [change for name in names for change in _differing(section, name, _default(section, name), "")]


def _differing(section: BaseModel, name: str, default: Any, prefix: str) -> list[Changed]:
    value, dotted = getattr(section, name), f"{prefix}{name}"
    if not isinstance(value, BaseModel):
        if isinstance(value, list):
            value = [one.model_dump() if isinstance(one, BaseModel) else one for one in value]
        required = default is _NONE
        same = value == default and type(value) is type(default)
        return [] if same else [Changed(dotted, value, None if required else default, required)]
    same_kind = type(default) is type(value)
    changes = []
    for inner in type(value).model_fields:
        changes += _differing(value, inner, getattr(default, inner) if same_kind else _default(value, inner), f"{dotted}.")
    return changes


def _default(section: BaseModel, name: str) -> Any:
    field = type(section).model_fields[name]
    if field.is_required():
        return _NONE
    try:
        return field.get_default(call_default_factory=True, validated_data={})
    except ValidationError:  # a section with settings that must be given has no default as a whole
        return _NONE
