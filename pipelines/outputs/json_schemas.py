"""Which JSON schemas (draft 2020-12) written texts can keep to: what outlines-core would pass over is refused by name.

It follows one way of saying what a value is, `$ref`, `anyOf`, `enum`, `const` or `type`, and of a type its own keywords alone. Imports no
TensorFlow.
"""

import json
from collections.abc import Mapping
from typing import Any

from pipelines.base.errors import DataError
from pipelines.config.messages import listed

NESTED = 64  # parts of a place in a schema
NOTES = frozenset(("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"))
NAMED = ("$defs", "definitions")
OF_TYPE: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"), "array": ("items", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"), "integer": (), "number": (), "boolean": (), "null": ()}
VALUES: dict[str, tuple[type, ...]] = {"string": (str,), "array": (list,), "object": (dict,), "integer": (int,), "number": (int, float),
                                       "boolean": (bool,), "null": (type(None),)}
KINDS = {"properties": (dict, "object"), "$defs": (dict, "object"), "definitions": (dict, "object"), "required": (list, "list"),
         "anyOf": (list, "list"), "enum": (list, "list"), "pattern": (str, "text"), "format": (str, "text"), "$ref": (str, "text"),
         **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), (int, "whole number"))}
YEAR, LEAP = "[1-9][0-9]{3}", "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
DATE = (f"(?:{YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
        f"|{LEAP}-02-29)")
HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{HOUR}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{HOUR})"
# RFC 3339 and RFC 9562
FORMATS = {"date": DATE, "time": TIME, "date-time": f"{DATE}T{TIME}", "uuid": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"}


def kept_to(schema: Any) -> dict[str, Any]:
    """The schema as outlines-core keeps to it: a pattern is of the whole text. Raises DataError for what would not be kept to."""
    named = {f"#/{part}/{name}": one for part in NAMED if isinstance(schema, dict) and isinstance(schema.get(part, {}), dict)
             for name, one in schema.get(part, {}).items()}
    return _kept(schema, "", named, ())


def _kept(schema: Any, place: str, named: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Of a part of a schema.

    Args:
        named: what `$ref` may name.
        inside: names that are being followed.
    """
    here = f"{place}: " if place else ""
    if not isinstance(schema, dict):
        raise DataError(f"{here}{schema!r:.60} is no JSON schema: an object")
    if place.count("/") > NESTED:
        raise DataError(f"a JSON schema of more than {NESTED} levels is not followed")
    for name, (kind, word) in KINDS.items():
        if name in schema and (not isinstance(schema[name], kind) or isinstance(schema[name], bool)):
            raise DataError(f"{here}{name}: {schema[name]!r:.60} is no {word}")
    said = [name for name in schema if name not in NOTES and (name not in NAMED or place)]
    way = next((name for name in ("$ref", "anyOf", "enum", "const", "type") if name in said), None)
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if wrong := [one for one in types if not isinstance(one, str) or one not in OF_TYPE]:
        raise DataError(f"{here}type: {wrong[0]!r:.60} is none of {listed(OF_TYPE, 'and')}")
    beside = {"enum": ("type",), "const": ("type",), "type": OF_TYPE[types[0]] if len(types) == 1 else ()}.get(way or "", ())
    if unfit := sorted(name for name in said if name not in (way, *beside)):
        why = f"beside {way}" if way is not None else "without a type"
        raise DataError(f"{here}{unfit[0]:.60} {why} cannot be kept to while writing; leave it out, or say it in another way")
    found = {name: schema[name] for name in (*said, *(name for name in NAMED if name in schema and not place))}
    if way == "$ref":
        if schema["$ref"] not in named:
            raise DataError(f"{here}$ref: {schema['$ref']:.60} is none of the schema's $defs")
        if schema["$ref"] in inside:
            raise DataError(f"{here}$ref: {schema['$ref']:.60} holds itself, and a form has to be finite; write out as many levels as are "
                            "wanted")
        _kept(named[schema["$ref"]], schema["$ref"][1:], named, (*inside, schema["$ref"]))
    elif way in ("enum", "const") and types:
        values = schema["enum"] if way == "enum" else [schema["const"]]
        if unlike := [one for one in values if not any(_is_of(one, each) for each in types)]:
            raise DataError(f"{here}{way}: {unlike[0]!r:.60} is not of type {listed(types, 'or')}")
    elif way == "anyOf":
        found["anyOf"] = [_kept(one, f"{place}/anyOf/{number}", named, inside) for number, one in enumerate(schema["anyOf"])]
    _check_text(found, here)
    if lacking := [name for name in schema.get("required", ()) if not isinstance(name, str) or name not in schema.get("properties", {})]:
        raise DataError(f"{here}required: {lacking[0]!r:.60} is none of the properties")
    for name in ("properties", *NAMED):
        if name in found:
            found[name] = {_quoted(key): _kept(one, f"{place}/{name}/{key}", named, inside) for key, one in schema[name].items()}
    if "required" in found:
        found["required"] = [_quoted(one) for one in found["required"]]
    for name in ("items", "additionalProperties"):
        if name in found and not isinstance(schema[name], bool):
            found[name] = _kept(schema[name], f"{place}/{name}", named, inside)
    return found


def _quoted(name: str) -> str:
    """A name as it stands in JSON, which outlines-core writes as it is."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, VALUES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _check_text(schema: dict[str, Any], here: str) -> None:
    """Of a text: one way of saying what stands in it; a pattern becomes one of the whole text, and so does a format."""
    if "format" in schema and schema["format"] not in FORMATS:
        raise DataError(f"{here}format: {schema['format']!r:.60} cannot be kept to while writing; these can: {listed(FORMATS, 'and')}")
    ways = [name for name in ("pattern", "format", "minLength", "maxLength") if name in schema]
    if len(ways) > 1 and ways != ["minLength", "maxLength"]:
        raise DataError(f"{here}{ways[1]} beside {ways[0]} cannot be kept to while writing; leave one of them out")
    if "format" in schema:
        schema["pattern"] = f"^(?:{FORMATS[schema.pop('format')]})$"
    elif "pattern" in schema:
        text = schema["pattern"].removeprefix("^")
        ended = text.endswith("$") and (len(text) - len(text[:-1].rstrip("\\"))) % 2 == 1
        schema["pattern"] = f"^(?:{text[:-1] if ended else text})$"


def patterns_of(schema: Any) -> list[str]:
    """All patterns in a schema that `kept_to` gave, without what stands around them."""
    if isinstance(schema, list):
        return [one for part in schema for one in patterns_of(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["pattern"][1:-1]] if isinstance(schema.get("pattern"), str) else []
    return own + [one for name, part in schema.items() if name not in ("enum", "const", *NOTES) for one in patterns_of(part)]
