"""The reference page of all settings and the JSON Schema for editors, both made from the schema.

    python -m pipelines.config.reference docs/experiment.md            writes the page
    python -m pipelines.config.reference docs/experiment.md --check    exits 1 where the page is not current
    python -m pipelines.config.reference --json-schema experiment.json
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.config.domains import experiment_class, tasks
from pipelines.config.schema import Data, Experiment, Section
from pipelines.config.space import KINDS
from pipelines.config.tree import Setting, default, settings
from pipelines.config.wording import describe, show
from pipelines.files import write_whole

COMMAND = "python -m pipelines.config.reference"
_OPENING = f"""\
# Every setting of an experiment

Made from the schema by `{COMMAND} docs/experiment.md`; change the schema, not this page.

An experiment is one YAML file. `task` says what is learned and with that which settings there are; everything that has a
default can be left out.

```yaml
task: vision.classification
data: {{source: digits}}
model: {{name: cnn}}
train:
  epochs: 30
  learning_rate: {{peak: 0.003}}
```

- On the command line `train.epochs=5 model.widths=[32,64]` change settings for one run; `setting=null` sets null where that is
  allowed and else takes the setting out, so that its default holds.
- Values are those of YAML 1.2: `1e-3` is a number; `yes`, `no`, `on` and `off` are text; `true` and `false` are not.
- Files and folders are looked for from the current directory; `~` is the home folder.
- A wrong key, type, value or path is an error before any work, with its line and what was probably meant.
- `{COMMAND} --json-schema experiment.json` writes a JSON Schema. Editors that understand it complete and
  check while you type, given this line on top: `# yaml-language-server: $schema=experiment.json`.
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


def page() -> str:
    """The whole reference as Markdown: what all tasks share, then each task's own."""
    parts = [_OPENING, "## Shared by all tasks\n", *_shared()]
    for task, cls in tasks().items():
        parts += [f"## {task}\n", f"{_first(cls)}\n", *_own(cls)]
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
        yield f"### {section.name}\n"
        yield f"{_first(section.shape.sections[0])}" + (" Null, the default, leaves it out.\n" if default(section.field) is None else "\n")
        yield _table(each for each in settings(Experiment) if each.route[0] == section.name and len(each.route) > 1)
        if section.name == "tune":
            yield _SPACE
    yield "### data\n"
    yield f"{_first(Data)}\n"
    yield _table(Setting(("data", *each.route), each.field, each.owner) for each in settings(Data))


def _own(cls: type[Experiment]) -> Iterator[str]:
    """What a task has beyond the shared settings, a table for each section and each model."""
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
        yield f"### {section.name}\n"
        if variants := section.shape.variants():
            yield f"`{section.name}.{section.shape.tag}` chooses one of {len(variants)}: {', '.join(f'`{tag}`' for tag in variants)}.\n"
            for tag, variant in variants.items():
                yield f"#### {section.name}: {tag}\n"
                yield f"{_first(variant)}\n"
                chosen = (((*section.route, str(section.shape.tag)), tag),)
                yield _table(each for each in own if each.variants[:1] == chosen and each.route[-1] != section.shape.tag)
        elif section.shape.sections:
            beyond = f" Beside these, all of [{section.name}](#{section.name}) above." if len(own) < len(below) else ""
            yield f"{_first(section.shape.sections[0])}{beyond}\n"
            yield _table(own)
        else:
            yield _table([section])


def _table(rows: Iterable[Setting]) -> str:
    lines = ["| setting | what it may be | default | meaning |", "|---|---|---|---|"]
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
        if setting.extra("path"):
            kind = kind.replace("text", "path of a file or folder", 1)
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
    own = {"title": str, "unit": str, "path": bool, "names": str}
    tidy = {key: _tidy(value) for key, value in node.items() if not isinstance(value, own.get(key, ()))}
    if isinstance(unit, str) and unit and isinstance(tidy.get("description"), str):
        tidy["description"] += f" ({unit})"
    return tidy


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page, writes the JSON Schema; gives the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, help="the Markdown page to write or check")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not current")
    parser.add_argument("--json-schema", type=Path, metavar="FILE", help="write the JSON Schema of all tasks")
    given = parser.parse_args(arguments)
    if given.page is None and given.json_schema is None:
        parser.error("name the page, or --json-schema FILE")
    if given.json_schema:
        write_whole(given.json_schema, json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
    if given.page and given.check:
        if not given.page.is_file() or given.page.read_text(encoding="utf-8") != page():
            print(f"{given.page} is not current; run {COMMAND} {given.page}", file=sys.stderr)
            return 1
    elif given.page:
        write_whole(given.page, page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
