"""`a.b.c=value` on the command line, laid over what the file says.

Values are YAML: scalars and flow lists and mappings. null sets a setting that may be null and otherwise takes it out,
so that its default holds. Sections that are missing or empty are made.
"""

from collections.abc import Sequence
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.config.messages import show, spell
from pipelines.config.problems import ExperimentError, Place, Problem, Route, dotted
from pipelines.config.schema import Section
from pipelines.config.tree import shapes_at, split
from pipelines.config.yaml_text import Document, compose, plain, scalar

Override = tuple[str, Any, Place]


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """(dotted name, value, place) of each; raises ConfigError for what is not `setting=value`."""
    parsed = []
    problems = []
    for number, text in enumerate(overrides):
        place = Place(text, override=number)
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name or not all(name.split(".")):
            example = f"{name.strip('.')}=value" if name.strip(".") and not equals else "train.epochs=3"
            problems.append(Problem(place, (), f"overrides are written setting=value, such as {example}"))
            continue
        try:
            parsed.append((name, _value(value.strip(), place), place))
        except ExperimentError as error:
            problems += error.problems
        except ConfigError as error:
            problems.append(Problem(place, (), str(error).partition(": ")[2]))
    if problems:
        raise ExperimentError(problems)
    return parsed


def apply_overrides(document: Document, overrides: Sequence[Override], cls: type[Section]) -> list[Problem]:
    """Changes the document's values and their places; returns what could not be laid over."""
    problems = []
    for name, value, place in overrides:
        route = split(cls, name)
        at: Any = document.values
        blocked = None
        for depth, step in enumerate(route[:-1], 1):
            if at.get(step) is None:
                at[step] = {}
                document.places[route[:depth]] = place
            at = at[step]
            if not isinstance(at, dict):
                blocked = route[:depth]
                break
        if blocked:
            problems.append(Problem(place, (), _blocked(document, blocked, at, route[len(blocked):], value)))
            continue
        _forget(document, route)
        if value is None and not _may_be_null(cls, route):
            at.pop(route[-1], None)
        else:
            at[route[-1]] = value
            document.places[route] = place
    return problems


def _value(text: str, place: Place) -> Any:
    """Flow lists, mappings and quoted texts as YAML; anything else is one plain scalar, whatever signs are in it."""
    if text[:1] not in ("[", "{", '"', "'"):
        return scalar(text)
    node = compose(text, "override")
    return None if node is None else plain(node, str(place))


def _may_be_null(cls: type[Section], route: Route) -> bool:
    found = shapes_at(cls, route)
    return not found or any(each.nullable for each in found)


def _forget(document: Document, route: Route) -> None:
    for known in [known for known in document.places if known[: len(route)] == route]:
        del document.places[known]


def _blocked(document: Document, route: Route, at: Any, below: Route, value: Any) -> str:
    """What stands in the way of an override, and how to write it instead."""
    name = dotted(route)
    if isinstance(at, list):
        return f"{name} is a list ({document.place(route)}); give the whole list: {name}=[...]"
    return f"{name} is {show(at)} ({document.place(route)}), which holds no settings; write {name}={{{dotted(below)}: {spell(value)}}}"
