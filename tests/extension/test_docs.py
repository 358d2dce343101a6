"""Every example of docs/extending.md, run as it stands there: files saved under the names that the page gives them, then its commands."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.finished_run import ROOT

pytestmark = pytest.mark.slow(seconds=75)

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the files of the page."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("page")
    names = re.findall(r"[Ss]ave this as\s+`(\w+\.py)`", PAGE)
    for name, text in zip(names, blocks("python"), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    for text in blocks("yaml"):
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
    (folder / "digit.png").write_bytes(tf.io.encode_png(np.zeros([8, 8, 1], np.uint8)).numpy())
    return folder


@pytest.mark.parametrize("commands", blocks("sh"), ids=lambda text: text.split()[2])
def test_the_commands_of_the_page(place, commands):
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "quartet"
        done = processes.run("-m", "quartet", *arguments, cwd=place)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def test_the_contracts_of_the_page_hold(place):
    tests = ("test_my_hooks.py", "test_my_forms.py", "test_my_launcher.py", "test_my_storage.py", "test_my_protocol.py")
    done = processes.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=place)
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout + done.stderr
    assert (place / "ends.txt").read_text() == "vision/digits finished\n"


def test_the_contract_of_the_page_holds_for_its_transform(place):
    done = processes.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_transforms.py", cwd=place)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_model_takes_at_most_20_lines():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 20


def test_the_package_of_the_page_is_the_sample():
    (text,) = blocks("toml")
    assert text in (ROOT / "tests" / "sample_extension" / "pyproject.toml").read_text(encoding="utf-8")


def test_its_examples_pass_a_type_checker(place):
    examples = sorted(str(file) for file in place.glob("my_*.py"))
    assert len(examples) >= 10
    done = processes.run("-m", "mypy", "--ignore-missing-imports", "--check-untyped-defs", "--cache-dir", str(ROOT / ".mypy_cache"),
                         *examples, cwd=ROOT)
    assert done.returncode == 0, done.stdout
