"""The floors of the house: imports point down only, domains do not know each other, and no files or folders form a circle.

Above all stands `quartet`, which imports pipelines and is imported by nothing.
"""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("base", "stores", "machine", "config", "data", "task", "fitting", "encoders", "training", "monitoring", "reports", "outputs",
          "runs", "tuning", "serving", "commands")
DOMAINS = ("vision", "speech", "nlp", "recsys")
PACKAGES = ("pipelines", *DOMAINS, "quartet", "extensions")


def _name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports, anywhere in it: in functions and for type checkers, too."""
    files = {_name(file): file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))
             if "tests" not in file.parts[len(ROOT.parts):]}
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    whole = f"{node.module}.{each.name}"
                    graph[name] |= {one for one in ((whole,) if whole in files else (node.module,)) if one in files and one != name}
            elif isinstance(node, ast.Import):
                graph[name] |= {each.name for each in node.names if each.name in files}
    return graph


def folders() -> dict[str, set[str]]:
    """Folder -> the folders that its files import from; a domain's own modules beside its folders stand for themselves."""
    graph: dict[str, set[str]] = {}
    for name, others in imports().items():
        own = _folder(name)
        graph.setdefault(own, set()).update(_folder(other) for other in others if _folder(other) != own)
    return graph


def _folder(name: str) -> str:
    return ".".join(name.split(".")[:2])


def test_a_floor_imports_only_floors_below_it():
    wrong = [f"{name} -> {other}" for name, others in imports().items() if name.startswith("pipelines.") for other in others
             if other.startswith("pipelines.") and FLOORS.index(other.split(".")[1]) > FLOORS.index(name.split(".")[1])]
    assert not wrong


def test_no_module_of_pipelines_lies_outside_the_floors():
    assert {name.split(".")[1] for name in imports() if name.startswith("pipelines.")} == set(FLOORS)


def test_pipelines_imports_no_other_package_and_no_other_package_anything_but_pipelines():
    wrong = [f"{name} -> {other}" for name, others in imports().items() for other in others
             if other.split(".")[0] not in ("pipelines", name.split(".")[0])]
    assert not wrong


def test_extensions_know_each_other_as_little_as_the_core_knows_them():
    wrong = [f"{name} -> {other}" for name, others in imports().items() if name.startswith("extensions.")
             for other in others if other.startswith("extensions.") and other.split(".")[1] != name.split(".")[1]]
    assert not wrong


def test_the_public_face_stands_above_pipelines():
    assert any(other.startswith("pipelines.") for name, others in imports().items() if name.split(".")[0] == "quartet" for other in others)


@pytest.mark.parametrize("graph", [imports, folders])
def test_there_are_no_circles(graph):
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
