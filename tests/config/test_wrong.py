"""Every wrong experiment of wrong_experiments.txt gets its message: place, setting, value, what is allowed, what was meant."""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.check import Check
from pipelines.config.load import from_text
from pipelines.config.messages import nearest
from pipelines.config.registry import tasks
from pipelines.config.tree import settings
from pipelines.config.yaml_text import parse
from vision.settings import ImageClassification

HERE = Path(__file__).parent
SPACE = """tune:
  space:
    train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}
    model.name: {choice: [cnn, residual]}
    model.depth: {int: [1, 3], step: 1, when: {model.name: residual}}
"""
BASE = "task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn}\n"


@dataclass
class Wrong:
    title: str
    text: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)


def table(path: Path) -> list[Wrong]:
    found: list[Wrong] = []
    for line in path.read_text(encoding="utf-8").partition("\n== ")[2].splitlines()[1:]:
        mark, _, rest = line[2:].partition(" ") if line.startswith("  ") else ("", "", line)
        if mark:
            {"|": found[-1].text, "+": found[-1].overrides, ">": found[-1].says}[mark].append(rest)
        elif line and not line.startswith("== "):
            found.append(Wrong(line))
    return found


WRONG = table(HERE / "wrong_experiments.txt")


def matches(line: str, pattern: str) -> bool:
    """Whether the pieces of `pattern` between ... stand in `line` in their order, the outer ones at its ends."""
    first, *rest = pattern.split("...")
    if not rest:
        return line == pattern
    if not line.startswith(first) or not line.endswith(rest[-1]):
        return False
    at = len(first)
    for piece in rest:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.title)
def test_message(wrong: Wrong) -> None:
    text = "\n".join(wrong.text)
    whole = any(line.startswith(("task:", "tsk:")) for line in wrong.text) or wrong.title == "no task"
    with pytest.raises(ConfigError) as caught:
        from_text(text if whole else BASE + text, wrong.overrides, file="mine.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(wrong.says), lines
    for line, pattern in zip(lines, wrong.says):
        assert matches(line, pattern), f"{line}\nis not\n{pattern}"
    assert caught.value.exit_status == 2


def test_there_are_many() -> None:
    assert len(WRONG) >= 25
    assert all(wrong.says for wrong in WRONG)


def test_every_setting_misspelt_is_found_again() -> None:
    """A letter dropped from any setting of any model: the message names the right one."""
    missed, tried = [], 0
    for setting in settings(ImageClassification):
        tag = next((tag for _, tag in setting.variants), "cnn")
        *above, last = setting.route
        slip = last[:2] + last[3:]
        if len(last) < 4 or last in ("name", "task") or nearest(slip, [last]) is None:
            continue
        model = f"{{name: {tag}, architecture: ResNet50}}" if tag == "application" else f"{{name: {tag}}}"
        inner = [f"{'.'.join(route[:-1])}={{name: {kind}}}" for route, kind in setting.variants[1:]]
        with pytest.raises(ConfigError) as caught:
            from_text(BASE, [f"model={model}", *inner, ".".join([*above, slip]) + "=1"], file="mine.yaml")
        tried += 1
        if f"did you mean {setting.name}" not in str(caught.value):
            missed.append((setting.name, slip, str(caught.value)))
    assert not missed
    assert tried > 60


def test_damaged_text_is_an_error_and_never_a_crash() -> None:
    """Letters lost, doubled and swapped for YAML's signs, anywhere: an experiment or a ConfigError with the file's name."""
    text = (HERE.parents[1] / "configs/vision/digits.yaml").read_text(encoding="utf-8") + SPACE
    draw = random.Random(0)
    signs = ["", "\t", " ", "\n", ":", "- ", "{", "]", "'", '"', "*", "&", "!", "%", "\x00", "x"]
    refused = 0
    for _ in range(600):
        damaged = list(text)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(damaged))
            damaged[at: at + draw.randint(0, 3)] = draw.choice(signs)
        try:
            from_text("".join(damaged), file="mine.yaml")
        except ConfigError as error:
            refused += 1
            assert all(line.startswith("mine.yaml") for line in str(error).splitlines()), str(error)
    assert refused > 100


GIVEN = (0, 1, 2, 3, -1, 2.0, 0.5, True, False, "3", "0", "none", "on", "off", "yes", "true", "50%", "200%", "1,5", "1,000",
         "60s", "word", 10**6)
WRITE = re.compile(r"; write (?:the number alone, such as )?(.+?)(?:, with a decimal point|, without quotes| in quotes)?$")


def refusals(cls, setting, given) -> list[str]:
    check = Check(cls, {})
    check._value(setting, setting.annotation, given, (setting.route[-1],), lambda cleaned: None)
    return [said for _, said in check.problems]


@pytest.mark.parametrize("task", sorted(tasks()))
def test_what_a_message_says_to_write_is_not_refused_too(task: str) -> None:
    """Of each plain setting, whatever was given instead."""
    cls = tasks()[task]
    wrong, suggested = [], 0
    for setting in settings(cls):
        for given in (*GIVEN, *setting.shape.variants()):
            for said in refusals(cls, setting, given):
                remedy = WRITE.search(said)
                if remedy is None or remedy[1] == "the result" or "..." in remedy[1]:
                    continue  # something is left to the person
                suggested += 1
                text = remedy[1].removeprefix(f"{setting.route[-1]}: ")
                if problems := refusals(cls, setting, parse(f"value: {text}", "it").values["value"]):
                    wrong.append(f"{setting.name}={given}: {said} -> {problems}")
    assert not wrong and suggested > 500, "\n".join(wrong)
