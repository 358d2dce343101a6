"""The generated pages are current and complete; the JSON Schema agrees with the check."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.config.load import shipped
from pipelines.config.reference import json_schema, main, pages
from pipelines.config.registry import tasks
from pipelines.config.tree import settings
from pipelines.config.yaml_text import header

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_pages_are_current() -> None:
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name}: run python -m pipelines.config.reference docs"
    assert {f"settings/{file.name}" for file in (DOCS / "settings").iterdir()} <= set(pages()), "no page of a former domain is left"


def test_every_setting_is_on_a_page_with_its_meaning() -> None:
    for task, cls in tasks().items():
        text = pages()["settings/README.md"] + pages()[f"settings/{task.partition('.')[0]}.md"]
        for setting in settings(cls):
            if setting.shape.sections or any(setting.route == route for route, _ in setting.variants) or setting.name == "task":
                continue
            assert f"| `{setting.name}` |" in text
            assert setting.meaning, f"{setting.name} has no meaning"


@pytest.mark.parametrize(("name", "path"), shipped().items(), ids=shipped())
def test_the_header_of_an_experiment_is_whole_on_its_page(name: str, path: Path) -> None:
    """No row ends in mid-sentence: it has every word of the header, whose sentences end."""
    [row] = [line for line in pages()["experiments.md"].splitlines() if line.startswith(f"| [`{name}`]")]
    words = header(path.read_text(encoding="utf-8")).replace("`", "").split()
    assert not [word for word in words if word not in row.replace("`", "").replace("\\", "") + f" python -m {name.partition('/')[0]}.train"]
    _, what, cost = (cell.strip() for cell in row.strip("|").split(" | "))
    for cell in (what, cost):
        assert cell[-1] in ".`" and cell.count("(") == cell.count(")") and cell.count("[") == cell.count("]"), cell


def test_command(tmp_path: Path, capsys) -> None:
    target, schema = tmp_path / "docs", tmp_path / "schema.json"
    assert main([str(target), "--check"]) == 1
    assert main([str(target), "--json-schema", str(schema)]) == 0
    assert main([str(target), "--check"]) == 0
    assert json.loads(schema.read_text(encoding="utf-8")) == json_schema()
    (target / "settings/nlp.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    assert main([str(target), "--check"]) == 1
    assert capsys.readouterr().err.count("is not current; run") == 1


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(child)


def test_json_schema() -> None:
    for schema in (json_schema(), *(json_schema(task) for task in tasks())):
        for node in _nodes(schema):
            if isinstance(node.get("$ref"), str):
                assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
            assert not isinstance(node.get("unit"), str)
    schema = json_schema("vision.classification")
    assert schema["required"] == ["task", "data", "model"]
    assert schema["additionalProperties"] is False
    train = schema["$defs"]["Train"]["properties"]
    assert train["epochs"] == {"default": 10, "description": "passes over the training data (epochs)", "minimum": 1, "type": "integer"}
    assert "path" in schema["$defs"]["ImageData"]["properties"]
    assert "train.learning_rate.peak" in schema["$defs"]["Tune"]["properties"]["space"]["properties"]
