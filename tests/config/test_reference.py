"""The reference page is current and whole; the JSON Schema says what the check says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.config.domains import tasks
from pipelines.config.reference import json_schema, main, page
from pipelines.config.tree import settings

PAGE = Path(__file__).parents[2] / "docs/experiment.md"


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m pipelines.config.reference docs/experiment.md"


def test_every_setting_is_on_the_page_with_its_meaning() -> None:
    text = page()
    for cls in tasks().values():
        for setting in settings(cls):
            if setting.shape.sections or any(setting.route == route for route, _ in setting.variants) or setting.name == "task":
                continue
            assert f"| `{setting.name}` |" in text
            assert setting.meaning, f"{setting.name} has no meaning"


def test_command(tmp_path: Path, capsys) -> None:
    target, schema = tmp_path / "page.md", tmp_path / "schema.json"
    assert main([str(target), "--check"]) == 1
    assert main([str(target), "--json-schema", str(schema)]) == 0
    assert main([str(target), "--check"]) == 0
    assert json.loads(schema.read_text(encoding="utf-8")) == json_schema()
    target.write_text("old", encoding="utf-8")
    assert main([str(target), "--check"]) == 1
    assert "is not current; run" in capsys.readouterr().err


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
