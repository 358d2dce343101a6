"""Every experiment, or part of one, that a page of the documentation shows is one that is taken."""

import re
from pathlib import Path

import pytest
import yaml

from pipelines.config.load import from_dict, load
from pipelines.config.yaml_text import parse

ROOT = Path(__file__).resolve().parent.parent.parent
# docs/extending.md is run whole by tests/extension/test_docs.py: its experiments need its files
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "extending.md")]
# What a part of an experiment is laid over, where its page is of one domain; the others show images.
BASES = {"speech": "speech/quickstart", "text": "nlp/quickstart", "recommendation": "recsys/quickstart"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(place, text) of each block that is YAML, or that is not marked and is a mapping of an experiment's sections."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] == "yaml" or (not block[1] and _sections(block[2])):
                found.append((f"{page.relative_to(ROOT)}:{text[:block.start()].count(chr(10)) + 1}", block[2]))
    return found


def _sections(text: str) -> bool:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return isinstance(found, dict) and bool({"task", "data", "model", "train", "tune"} & set(found))


def test_there_are_some():
    pages = {place.partition(":")[0] for place, _ in blocks()}
    assert {"docs/settings/README.md", "docs/training.md", "docs/images.md", "docs/text.md"} <= pages


@pytest.mark.parametrize(("place", "text"), blocks(), ids=[place for place, _ in blocks()])
def test_what_a_page_shows_is_taken(place, text):
    shown = parse(text, place).values
    if "task" not in shown:
        base = load(BASES.get(Path(place.partition(":")[0]).stem, "vision/digits")).document.values
        if shown.get("model", {}).get("name") == "pretrained":  # its preset takes the place of these sections
            base = {name: section for name, section in base.items() if name not in ("frontend", "tokens")}
        shown = {**base, "tune": None, **shown}
    from_dict(shown, check_paths=False)
