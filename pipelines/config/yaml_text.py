"""YAML text into plain values, each with the line it stands in, and values into YAML that says everything. Data only: no tags, no objects.

Scalars are those of YAML 1.2: `1e-3` is a number, `yes`, `no`, `on` and `off` are text. Keys are always text, and a key
given twice is an error that names both lines. Every syntax error names file and line and says how to fix it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from pipelines.base.errors import ConfigError
from pipelines.base.inside import check_regular
from pipelines.config.problems import ExperimentError, Place, Problem, Route
from pipelines.config.schema import Experiment

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {"null": None, "Null": None, "NULL": None, "~": None, "": None, "true": True, "True": True, "TRUE": True,
            "false": False, "False": False, "FALSE": False}
_TAG = "tag:yaml.org,2002:"
_MOST_VALUES = 100_000  # aliases can make a small file huge; no experiment comes near


@dataclass
class Document:
    """Values as read and, for every key and list item, the place it came from."""

    file: str
    values: dict[str, Any]
    places: dict[Route, Place] = field(default_factory=dict)
    header: str = ""

    def place(self, route: Route) -> Place:
        """Where a value stands, or else the nearest section around it."""
        for length in range(len(route), -1, -1):
            if route[:length] in self.places:
                return self.places[route[:length]]
        return Place(self.file)


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar as YAML 1.2's core schema reads it: None, bool, int, float or the text itself."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text) and len(text) < 4000:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lower() in (".nan", ".inf", "+.inf", "-.inf"):
        return float(text.replace(".", ""))
    return text


def read(path: Path, shown: str) -> Document:
    """Reads an experiment file. `shown` is how messages call it. Raises ConfigError for a file that cannot be read as YAML."""
    check_regular(path, error=ConfigError)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{shown}:{line}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    return parse(text, shown)


def parse(text: str, shown: str) -> Document:
    """An experiment's YAML text, as `read` takes it from a file."""
    node = compose(text, shown)
    if node is None:
        raise ConfigError(f"{shown}: the file is empty; an experiment needs at least a task, its data and a model")
    if not isinstance(node, yaml.MappingNode):
        remedy = "put a space after the colon" if re.match(r"\w+:\S", text.lstrip()) else "write `task: ...` at the left margin"
        raise ConfigError(f"{shown}:{node.start_mark.line + 1}: an experiment is a mapping of settings; {remedy}")
    builder = _Builder(shown)
    values = builder.value(node, ())
    if builder.problems:
        raise ExperimentError(builder.problems)
    return Document(shown, values, builder.places, header(text))


def header(text: str) -> str:
    """The comment lines that open a file, without their marks."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].removeprefix(" ").rstrip())
    return "\n".join(lines)


def compose(text: str, shown: str) -> yaml.Node | None:
    """YAML's node tree with lines, None for text without a value. Raises ConfigError for text that is not YAML."""
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError(f"{shown}:{line}: character {chr(int(error.character))!r} cannot stand in YAML; remove it") from None
    except RecursionError:
        raise ConfigError(f"{shown}: brackets or sections nested too deep") from None
    except yaml.MarkedYAMLError as error:
        line, remedy = _explain(error, text.split("\n"))
        raise ConfigError(f"{shown}:{line}: {remedy}") from None
    finally:
        if loader is not None:
            loader.dispose()


def plain(node: yaml.Node, shown: str) -> Any:
    """The value of a node tree, for values that stand in no file. Raises ConfigError as `parse` does."""
    builder = _Builder(shown)
    value = builder.value(node, ())
    if builder.problems:
        raise ExperimentError(builder.problems)
    return value


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML up to the node tree, without its YAML 1.1 guesses: a plain scalar keeps the tag '?'."""

    def __init__(self, text: str):
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)

    def resolve(self, kind: type, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return "?"
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def dispose(self) -> None:
        Parser.dispose(self)  # type: ignore[no-untyped-call]


class _Builder:
    """Turns nodes into values and keeps the place of each; collects what is wrong with keys and tags."""

    def __init__(self, shown: str):
        self.shown = shown
        self.places: dict[Route, Place] = {}
        self.problems: list[Problem] = []
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, route: Route, line: int | None = None) -> Any:
        line = line or node.start_mark.line + 1
        self.places[route] = Place(self.shown, line)
        self._count += 1
        if id(node) in self._open or self._count > _MOST_VALUES:
            raise ConfigError(f"{self.shown}:{line}: the alias (*name) holds itself or grows without end; write the values out")
        self._open.add(id(node))
        try:
            if not isinstance(node, yaml.ScalarNode) and node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
                self._tagged(node, route)
                return None
            if isinstance(node, yaml.MappingNode):
                return dict(self._entries(node, route))
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*route, number)) for number, item in enumerate(node.value)]
            return self._scalar(node, route)
        finally:
            self._open.discard(id(node))

    def _entries(self, node: yaml.MappingNode, route: Route) -> Iterator[tuple[str, Any]]:
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not key:
                remedy = "a key must be text; put {{...}} and [...] in quotes" if key is None else "a key is missing before the colon"
                self._wrong(route, line, remedy)
            elif key == "<<" and key_node.tag == "?":
                self._wrong((*route, key), line, "merging with << is not supported; write the settings out")
            elif key in lines:
                self._wrong((*route, key), line, f"given twice, first in line {lines[key]}; keep one of the two")
            else:
                lines[key] = line
                yield key, self.value(value_node, (*route, key), line)

    def _scalar(self, node: yaml.Node, route: Route) -> Any:
        if node.tag == "?":
            return scalar(node.value)
        kind = node.tag.removeprefix(_TAG)
        if kind == "str" or node.tag == "!":
            return node.value
        value = scalar(node.value)
        fits: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
        if isinstance(value, fits.get(kind, ())) and not (kind != "bool" and isinstance(value, bool)):
            return float(node.value) if kind == "float" and isinstance(value, int) else value
        self._tagged(node, route)
        return None

    def _tagged(self, node: yaml.Node, route: Route) -> None:
        tag = node.tag.replace(_TAG, "!!", 1)
        self._wrong(route, node.start_mark.line + 1, f"the tag {tag} is not allowed here; write a plain value")

    def _wrong(self, route: Route, line: int, message: str) -> None:
        self.problems.append(Problem(Place(self.shown, line), route, message))


def _explain(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, str]:
    """Line (from 1) and plain words for one of PyYAML's syntax errors."""
    mark = error.problem_mark or error.context_mark
    at = mark.line if mark else 0
    opened = error.context_mark.line if error.context_mark else at
    what = f"{error.context or ''} | {error.problem or ''}"
    tabbed = next((number for number, line in enumerate(lines[: at + 1]) if re.match(r" *\t\s*\S", line)), None)
    if tabbed is not None:
        return tabbed + 1, "a tab in the indentation; indent with spaces"
    if "'\\t' that cannot start" in what:
        return at + 1, "a tab before the value; use a space"
    if found := re.search(r"character '(.)' that cannot start", what):
        return at + 1, f"text cannot begin with {found[1]}; put it in quotes"
    if "quoted scalar" in what and ("end of stream" in what or "document separator" in what):
        return opened + 1, "the quotation mark that opens here is never closed"
    if "escape character" in what or "hexadecimal" in what:
        return at + 1, "a backslash in double quotes begins an escape; use single quotes"
    if found := re.search(r"expected ',' or '(.)', but got '(.*)'", what):
        if found[2] in "?*&":
            return at + 1, f"put names with {found[2]} in quotes"
        return opened + 1, f"the bracket that opens here needs a comma between its entries and {found[1]} at its end"
    if found := re.search(r"undefined alias '(.*)'", what):
        return at + 1, f"*{found[1]} is YAML's sign for an alias; put names with * in quotes"
    if "mapping values are not allowed" in what:
        return _second_colon(at, lines)
    if "could not find expected ':'" in what:
        return opened + 1, f"{lines[opened].strip()!r} has no value; write `setting: value` (and `- item`, with a space, in lists)"
    if "another document" in what:
        return at + 1, "--- begins a second document; an experiment is one document"
    if found := re.search(r"but found '([]}])'", what):
        return at + 1, f"{found[1]} closes a bracket that was not opened"
    if "but found '<scalar>'" in what:
        return at + 1, "text continues after the closing quotation mark; put all of it in quotes"
    if "<block end>" in what or "<document start>" in what:
        return at + 1, "the indentation fits no line above; settings of one section begin in the same column"
    if "sequence entries are not allowed" in what:
        return at + 1, "a list begins on a line of its own: `- item` under its setting, or [item, item] beside it"
    return at + 1, f"not YAML: {error.problem or error.context}; put the text in quotes if it is a value"


def _second_colon(at: int, lines: list[str]) -> tuple[int, str]:
    """A colon where none can stand: a second one in its line, or a line that is not what the line above expects."""
    if len(re.findall(r":(\s|$)", lines[at])) > 1:
        return at + 1, "a second colon in one line; put text with ': ' in quotes, or a mapping in {braces}"
    above = at - 1
    while above > 0 and (not lines[above].strip() or lines[above].lstrip().startswith("#")):
        above -= 1
    if above >= 0 and not re.search(r":(\s|$)", lines[above]):
        space = re.match(r"\s*[\w.]+:\S", lines[above])
        return above + 1, "put a space after the colon" if space else f"{lines[above].strip()!r} has no value; write `setting: value`"
    return at + 1, "indented deeper than the line above, which already has its value; settings of one section begin in the same column"


def resolved_yaml(experiment: Experiment) -> str:
    """Every setting, defaults included, in the order of the schema; `load` reads it back into an equal experiment."""
    return to_yaml(experiment.model_dump(mode="python"))


def to_yaml(values: dict[str, Any]) -> str:
    """Plain values as YAML: sections as blocks, lists of plain values in one line, text quoted where any reader would mistake it."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)


def inline(value: Any) -> str:
    """One value as YAML in one line, for text that is put together by hand."""
    text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=100_000, default_flow_style=True)
    return text.removesuffix("...\n").strip()


class _Dumper(yaml.SafeDumper):
    """SafeDumper without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # SafeDumper quotes what YAML 1.1 would mistake ("yes", "012"); YAML 1.2 also takes "1e-3" for a number.
    style = None if isinstance(scalar(text), str) and "\n" not in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value).lower()
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # YAML 1.1 readers take 1e-05 for text
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    flat = not any(isinstance(value, (dict, list)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=flat or None)


def _mapping(dumper: yaml.SafeDumper, values: dict[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", values.items(), flow_style=not values or None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
