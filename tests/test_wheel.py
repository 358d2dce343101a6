"""The wheel, installed away from the checkout: its command answers, and trains a shipped experiment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def checked(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, encoding="utf-8", timeout=600, check=False,
                          env={**CLEAN, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """bin/ of an environment with the wheel, which finds the libraries of this one and nothing of the checkout."""
    place = tmp_path_factory.mktemp("wheel")
    checked(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place / "dist", ROOT, cwd=place)
    wheel, = (place / "dist").glob("*.whl")
    checked(sys.executable, "-m", "venv", "--without-pip", place / "env", cwd=place)
    python = place / "env" / "bin" / "python"
    checked(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=place)
    own = Path(checked(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    # a path alone: the .pth files there, one of which may lead to the checkout, are not read
    (own / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_it_says_whose_it_is_and_has_no_link_that_an_index_cannot_follow(installed):
    own = Path(checked(installed / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=installed).strip())
    info, = own.glob("keras_quartet-*.dist-info")
    head, _, page = (info / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    assert {"License-Expression: Apache-2.0", "License-File: LICENSE", "Author: The Quartet developers",
            "Classifier: Typing :: Typed"} <= set(head.splitlines())
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text(encoding="utf-8")
    assert "quartet train" in page and [link for link in re.findall(r"\]\(([^)]*)\)", page) if "://" not in link] == []


def test_the_installed_command_trains_a_shipped_experiment(installed, tmp_path):
    assert "train" in checked(installed / "quartet", "--help", cwd=tmp_path)
    small = ("train.epochs=1", "train.devices=cpu", "data.limit=200", "model.widths=[4, 4]", "model.hidden=8", "evaluate.bootstrap=100")
    checked(installed / "quartet", "train", "vision/digits", *small, "--runs", "runs", "--name", "small", "--quiet", cwd=tmp_path)
    run = tmp_path / "runs" / "vision" / "digits" / "small"
    assert json.loads((run / "report" / "report.json").read_text())["metrics"]["test/accuracy"]["n"] > 0
    code = "import pipelines, vision; print(pipelines.__file__); print(vision.__file__)"
    for file in checked(installed / "python", "-c", code, cwd=tmp_path).splitlines():
        assert Path(file).is_relative_to(installed.parent), f"{file} is not of the wheel"
