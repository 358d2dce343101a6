"""The core without its extensions: in a copy of the project that has none, settings are checked, data read, a run trained and judged."""

import shutil
import subprocess
import sys

import pytest

from tests.finished_run import ROOT, environment

pytestmark = pytest.mark.slow(seconds=40)

CORE = ("quartet", "pipelines", "vision", "speech", "nlp", "recsys", "configs", "tests", "docs", "conftest.py", "pyproject.toml",
        "README.md")
TESTS = ("test_architecture.py", "config/test_load.py", "config/test_wrong.py", "data/test_tables.py", "cli/test_check.py",
         "cli/test_train.py", "api/test_api.py", "serving/test_predict.py", "serving/test_observed.py", "serving/test_models.py")


def test_the_fast_tests_pass_where_there_are_no_extensions(tmp_path):
    for name in CORE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    surroundings = {**environment(), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *(f"tests/{name}" for name in TESTS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=surroundings)
    assert done.returncode == 0 and "[100%]" in done.stdout, done.stdout[-5000:] + done.stderr[-2000:]
    asked = subprocess.run([sys.executable, "-m", "quartet", "register"], cwd=tmp_path, capture_output=True, text=True, check=False,
                           env=surroundings)
    assert asked.returncode == 2 and "No such command 'register'" in asked.stderr
