"""The generated pages - every setting, every shipped experiment - and the JSON Schema for editors, all from their sources.

python -m pipelines.config.reference docs            writes docs/settings/ and docs/experiments.md
python -m pipelines.config.reference docs --check    exits 1 where a page is not current
python -m pipelines.config.reference --json-schema experiment.json
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines.base.files import write_whole
from pipelines.config.load import shipped
from pipelines.config.messages import describe, listed, show
from pipelines.config.registry import experiment_class, tasks
from pipelines.config.schema import Data, Experiment, Section
from pipelines.config.space import KINDS
from pipelines.config.tree import Setting, default, settings
from pipelines.config.yaml_text import header

_EXPERIMENTS_OPENING = """\
# Shipped experiments

Generated from the headers of the files in `configs/` by `python -m pipelines.config.reference docs`; change the headers, not this page.

`quartet train NAME` trains one, from a checkout or an installed wheel; `quartet train NAME train.epochs=3` changes a setting. Each fits one
screen: copy it and change it. Figures are from one seed unless stated, on two cores of an AMD EPYC; brackets hold 95 % bootstrap intervals
over the test examples. Experiments without a score need data that cannot be downloaded freely, or your own.
"""


def experiments_page(domains: Iterable[str]) -> str:
    """The whole page as Markdown, a table for each domain."""
    parts = [_EXPERIMENTS_OPENING]
    for domain in domains:
        rows = [_row(name, path) for name, path in shipped().items() if name.startswith(f"{domain}/")]
        parts += [f"## {domain}\n", "\n".join(["| experiment | what it trains | cost and score |", "|---|---|---|", *rows]) + "\n"]
    return "\n".join(parts).rstrip() + "\n"


def _row(name: str, path: Path) -> str:
    what, command, cost = _parts(header(path.read_text(encoding="utf-8")))
    settings = command.partition(name)[2].strip()
    place = path.relative_to(Path(__file__).parents[2]).as_posix()
    example = f"[`{name}`](../{place})" + (f"<br>with `{settings}`" if settings else "")
    return f"| {example} | {what} | {cost} |"


def _parts(text: str) -> tuple[str, str, str]:
    """(what it trains, command, cost and score) of a header: prose, the command indented, then prose and perhaps more indented code."""
    blocks = groupby(text.splitlines(), lambda line: line.startswith("  "))
    what, command, *rest = [(code, " ".join(map(str.strip, lines))) for code, lines in blocks]
    return _experiment_cell(what[1]), command[1], " ".join(f"`{part}`" if code else _experiment_cell(part) for code, part in rest)


def _experiment_cell(text: str) -> str:
    return re.sub(r"([|<*])", r"\\\1", text)


COMMAND = "python -m pipelines.config.reference"
_NOTICE = f"Generated from the schema by `{COMMAND} docs`; change the schema, not this page."
_OPENING = f"""\
# Every setting of an experiment

{_NOTICE}

An experiment is one YAML file. Its `task` decides what is learned and which settings exist; every setting that has a default can be
left out. This page lists the settings that all tasks share; each domain has a page of its own:

{{domains}}

```yaml
task: vision.classification
data: {{{{source: digits}}}}
model: {{{{name: cnn}}}}
train:
  epochs: 30
  learning_rate: {{{{peak: 0.003}}}}
```

- On the command line, `train.epochs=5 model.widths=[32,64]` changes settings for one run. `setting=null` sets null where null is
  allowed; elsewhere it removes the setting, so that its default applies.
- Values are those of YAML 1.2: `1e-3` is a number; `yes`, `no`, `on` and `off` are text; `true` and `false` are not.
- Relative paths start at the current directory; `~` is the home folder.
- A wrong key, type, value or path is an error before any work starts. The message names the line and the nearest valid name.
- `quartet schema --output experiment.json` writes a JSON Schema. Editors that support it complete and check settings while you type,
  given this first line: `# yaml-language-server: $schema=experiment.json`.
"""
_SPACE = """\
An entry of `tune.space` is a setting's dotted name and how it varies:

| entry | values |
|---|---|
| `train.batch_size: {choice: [64, 128, 256]}` | one of these; lists and null are allowed where the setting takes them |
| `train.epochs: {int: [5, 20], step: 5}` | whole numbers, both ends included; `step` is optional |
| `train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}` | numbers; `scale` is `linear` or `log`; a log `step` is a ratio |
| `train.deterministic: {boolean: true}` | true and false |
| `model.depth: {int: [1, 3], when: {model.name: residual}}` | only where another searched setting has this value (or one of a list) |
"""


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown of every generated page."""
    domains = dict.fromkeys(task.partition(".")[0] for task in tasks())
    return {"settings/README.md": _shared_page(domains), **{f"settings/{domain}.md": _domain_page(domain) for domain in domains},
            "experiments.md": experiments_page(domains)}


def _shared_page(domains: Iterable[str]) -> str:
    links = "\n".join(f"- [{domain}]({domain}.md): {listed([f'`{task}`' for task in tasks(domain)], 'and')}" for domain in domains)
    return "\n".join([_OPENING.format(domains=links), *_shared()]).rstrip() + "\n"


def _domain_page(domain: str) -> str:
    """The settings that the tasks of a domain have beside the shared ones; a section that two tasks share is printed once."""
    parts = [f"# Settings of {domain}\n", f"{_NOTICE}\n", "The settings that all domains share are on [another page](README.md).\n"]
    printed: dict[str, str] = {}  # text of a section -> the first task that has it
    for task, cls in tasks(domain).items():
        parts += [f"## {task}\n", f"{_first(cls)}\n"]
        for name, text in _own(cls):
            first = printed.setdefault(f"{name}\n{text}", task)
            parts += [f"### {name}\n", text if first == task else f"The same as for [{first}](#{first.replace('.', '')}).\n"]
    return "\n".join(parts).rstrip() + "\n"


def json_schema(task: str | None = None) -> dict[str, Any]:
    """JSON Schema (2020-12) of one task's experiments, or of all tasks', chosen by `task`. Raises ConfigError for no such task."""
    if task is not None:
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_task_schema(task, "")}
    found = tasks()
    branches, definitions = [], {}
    for name in found:
        schema = _task_schema(name, f"{name}.")
        definitions.update(schema.pop("$defs", {}))
        branches.append({"if": {"properties": {"task": {"const": name}}, "required": ["task"]}, "then": schema})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Quartet experiment", "type": "object", "required": ["task"],
        "properties": {"task": {"enum": list(found), "description": "what is learned, as domain.task"}}, "allOf": branches,
        "$defs": definitions,
    }


def _shared() -> Iterator[str]:
    top = [each for each in settings(Experiment) if len(each.route) == 1 and not each.shape.sections]
    yield _table(top)
    for section in (each for each in settings(Experiment) if len(each.route) == 1 and each.shape.sections):
        yield f"## {section.name}\n"
        yield f"{_first(section.shape.sections[0])}" + (" Null, the default, leaves it out.\n" if default(section.field) is None else "\n")
        yield _table(each for each in settings(Experiment) if each.route[0] == section.name and len(each.route) > 1)
        if section.name == "tune":
            yield _SPACE
    yield "## data\n"
    yield f"{_first(Data)}\n"
    yield _table(Setting(("data", *each.route), each.field, each.owner) for each in settings(Data))


def _own(cls: type[Experiment]) -> Iterator[tuple[str, str]]:
    """(section, Markdown) of what a task has beyond the shared settings, a table for each section and each model."""
    shared = {(each.name, repr(each.field)) for each in settings(Experiment)}
    shared |= {(f"data.{each.name}", repr(each.field)) for each in settings(Data)}
    order = list(cls.__annotations__)
    top = [each for each in settings(cls) if len(each.route) == 1]
    for section in sorted(top, key=lambda each: order.index(each.name) if each.name in order else len(order)):
        below = [each for each in settings(cls) if each.route[0] == section.name and len(each.route) > 1]
        own = [each for each in below if (each.name, repr(each.field)) not in shared]
        if not own and (section.shape.sections or section.name == "task"):
            continue
        if (section.name, repr(section.field)) in shared and not section.shape.sections:
            continue
        yield section.name, "\n".join(_section(section, own, len(own) < len(below)))


def _section(section: Setting, own: list[Setting], beside_shared: bool) -> Iterator[str]:
    if variants := section.shape.variants():
        yield f"`{section.name}.{section.shape.tag}` chooses one of {len(variants)}: {', '.join(f'`{tag}`' for tag in variants)}.\n"
        for tag, variant in variants.items():
            yield f"#### {section.name}: {tag}\n"
            yield f"{_first(variant)}\n"
            chosen = (((*section.route, str(section.shape.tag)), tag),)
            yield _table(each for each in own if each.variants[:1] == chosen and each.route[-1] != section.shape.tag)
    elif section.shape.sections:
        beyond = f" These come on top of the shared [{section.name}](README.md#{section.name}) settings." if beside_shared else ""
        yield f"{_first(section.shape.sections[0])}{beyond}\n"
        yield _table(own)
    else:
        yield _table([section])


def _table(rows: Iterable[Setting]) -> str:
    lines = ["| setting | values | default | meaning |", "|---|---|---|---|"]
    for setting in rows:
        usual = default(setting.field)
        meaning = setting.meaning
        if setting.shape.sections:
            kind = "section" + (" or null" if setting.shape.nullable else "")
            shown = "`null`" if usual is None else ""
            meaning = _first(setting.shape.sections[0]) if len(setting.shape.sections) == 1 else meaning
        else:
            kind = describe(setting.shape, setting.extra("unit") or "")
            shown = "**must be given**" if usual is ... else f"`{usual}`" if isinstance(usual, str) else f"`{show(usual)}`"
        for _, tag in setting.variants[1:]:  # the first is the heading's
            meaning = f"{tag}: {meaning}"
        if setting.extra("path"):
            kind = kind.replace("text", "path of a file or folder", 1)
        if setting.extra("run"):
            kind = kind.replace("text", "a run: its folder or name", 1)
        lines.append(f"| `{setting.name}` | {_cell(kind)} | {shown} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([|<*])", r"\\\1", text)


def _first(cls: type[Section]) -> str:
    return " ".join((cls.__doc__ or "").split())


def _task_schema(task: str, prefix: str) -> dict[str, Any]:
    cls = experiment_class(task)
    schema = cls.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    schema["$defs"] = {f"{prefix}{name}": definition for name, definition in schema.get("$defs", {}).items()}
    tune = schema["$defs"].get(f"{prefix}Tune")
    if tune:
        space = tune["properties"]["space"]
        searched = sorted({each.name for each in settings(cls) if "*" not in each.route and not each.shape.sections})
        space["additionalProperties"] = False
        space["properties"] = {name: {"$ref": f"#/$defs/{prefix}Dimension"} for name in searched if not name.startswith("tune.")}
        schema["$defs"][f"{prefix}Dimension"] = _dimension_schema()
    return _tidy(schema)


def _dimension_schema() -> dict[str, Any]:
    ends = {"type": "array", "minItems": 2, "maxItems": 2}
    return {
        "type": "object", "additionalProperties": False, "oneOf": [{"required": [kind]} for kind in KINDS],
        "properties": {
            "choice": {"type": "array", "minItems": 1}, "int": {**ends, "items": {"type": "integer"}},
            "float": {**ends, "items": {"type": "number"}}, "boolean": {"const": True}, "scale": {"enum": ["linear", "log"]},
            "step": {"type": "number", "exclusiveMinimum": 0}, "when": {"type": "object"},
        },
    }


def _tidy(node: Any) -> Any:
    """Without pydantic's titles and our own notes; units join the descriptions."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    unit = node.get("unit")
    own: dict[str, Any] = {"title": str, "unit": str, "path": (bool, str), "run": bool, "preset": bool, "names": str,
                           "search": (str, bool, type(None))}
    tidy = {key: _tidy(value) for key, value in node.items() if not isinstance(value, own.get(key, ()))}
    if isinstance(unit, str) and unit and isinstance(tidy.get("description"), str):
        tidy["description"] += f" ({unit})"
    return tidy


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages, writes the JSON Schema; returns the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("docs", nargs="?", type=Path, help="the folder of the Markdown pages to write or check")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    parser.add_argument("--json-schema", type=Path, metavar="FILE", help="write the JSON Schema of all tasks")
    given = parser.parse_args(arguments)
    if given.docs is None and given.json_schema is None:
        parser.error("name the folder of the pages, or --json-schema FILE")
    if given.json_schema:
        write_whole(given.json_schema, json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
    stale = False
    for name, text in pages().items() if given.docs else ():
        file = given.docs / name
        if not given.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            print(f"{file} is not current; run {COMMAND} {given.docs}", file=sys.stderr)
            stale = True
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
