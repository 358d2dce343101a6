"""Quartet and a package of somebody's own, each built as a wheel and installed beside each other: found by its entry point alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.finished_run import ROOT, environment

pytestmark = pytest.mark.slow

SAMPLE = ROOT / "tests" / "sample_extension"
EXPERIMENT = """\
task: vision.classification
data: {source: digits}
model: {name: linear}
train: {epochs: 1, precision: float32, devices: cpu}
evaluate: {bootstrap: 100, baseline: false, metrics: [{name: label_probability}]}
monitor: {tensorboard: false}
"""


def built(source: Path, wheels: Path) -> Path:
    before = set(wheels.glob("*.whl"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = set(wheels.glob("*.whl")) - before
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with both packages, apart from this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    wheels = folder / "wheels"
    wheels.mkdir()
    for source in (ROOT, SAMPLE):
        wheel = built(source, wheels)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder / "packages")]
        subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    (folder / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return folder


def quartet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "quartet", *arguments], cwd=folder, capture_output=True, encoding="utf-8",
                          timeout=600, check=False, env={**environment(), "PYTHONPATH": str(folder / "packages")})


def test_its_model_is_trained_and_its_metric_judged_by_name_alone(installed):
    done = quartet(installed, "train", "mine.yaml", "model.scal=3")
    assert "no such setting of linear, which has scale; did you mean model.scale?" in done.stderr, done.stderr
    done = quartet(installed, "train", "mine.yaml", "monitor.ends=ends.txt", "--name", "default")
    assert done.returncode == 0, done.stderr
    (used,) = json.loads((installed / "runs/vision/mine/default/environment.json").read_text())["extensions"]
    assert (used["name"], used["version"], used["registers"]) == (
        "sample-extension", "1.2", ["metric label_probability", "model linear", "settings ends"])
    assert len(used["sha256"]) == 64
    metrics = json.loads((installed / "runs/vision/mine/default/report/report.json").read_text())["metrics"]
    assert 0 < metrics["test/label_probability"]["low"] < metrics["test/label_probability"]["high"] < 1


def test_its_hook_heard_how_the_run_ended_and_its_command_is_there(installed):
    assert (installed / "ends.txt").read_text() == "vision/mine finished\n"
    assert quartet(installed, "ends", "ends.txt", "--aloud").stdout == "1 run\nit is done\n"
    done = quartet(installed, "ends", "missing.txt")
    assert done.returncode == 2 and done.stderr.strip() == "missing.txt: is not there"


def test_its_protocol_fulfils_the_contract():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import sample_extension; from quartet.testing import check_protocol; "
            "from sample_extension.protocols import Counting; check_protocol(Counting)")
    processes.run("-c", code, SAMPLE, check=True)


def test_its_form_is_exported_judged_and_nothing_without_it(installed):
    run = installed / "runs/vision/mine/default"
    done = quartet(installed, "export", str(run), "--halves")
    assert done.returncode == 0 and "export-halves" in done.stdout, done.stderr
    done = quartet(installed, "evaluate", str(run / "export-halves"), "--split", "validation")
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr
    (run / "export-halves" / "manifest.json").write_text('{"made_for": "thirds"}')
    done = quartet(installed, "evaluate", str(run / "export-halves"))
    assert done.returncode == 2 and "is exported for thirds, and no extension" in done.stderr, done.stderr


def test_its_launcher_trains_and_its_transform_has_a_say_in_the_update(installed):
    done = quartet(installed, "train", "mine.yaml", "train.smooth=0.5", "--name", "smooth", "--apart")
    assert done.returncode == 0 and done.stderr.startswith("trained apart"), done.stderr
    (used,) = json.loads((installed / "runs/vision/mine/smooth/environment.json").read_text())["extensions"]
    assert used["registers"] == ["metric label_probability", "model linear", "settings smooth"]
    losses = [json.loads((installed / f"runs/vision/mine/{name}/report/report.json").read_text())["metrics"]["test/log_loss"]["value"]
              for name in ("default", "smooth")]
    assert losses[0] != losses[1]


def test_it_runs_outside_of_the_checkout(installed):
    code = "import quartet, vision, sample_extension; print(quartet.__file__, vision.__file__, sample_extension.__file__, sep='\\n')"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=installed, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(installed / "packages")})
    assert all(Path(line).is_relative_to(installed) for line in done.stdout.splitlines())


def test_without_the_package_the_run_says_what_to_install(installed):
    folder = installed / "packages"
    hidden = {path: path.with_name(f"_{path.name}") for path in folder.glob("sample_extension*")}
    for path, away in hidden.items():
        path.rename(away)
    try:
        done = quartet(installed, "evaluate", "vision/mine/default")
        assert done.returncode == 2 and "model linear, settings ends of sample-extension" in done.stderr, done.stderr
        assert "install sample-extension 1.2" in done.stderr
    finally:
        for path, away in hidden.items():
            away.rename(path)


def test_a_domain_of_an_installed_package_is_found_by_its_entry_point(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "settings.py").write_text(
        "from typing import Literal\n\nfrom pipelines.config.registry import register_task\n"
        "from pipelines.config.schema import Experiment\n\n"
        "@register_task('shop.tasks:Prices')\nclass Prices(Experiment):\n    'A price.'\n    task: Literal['shop.prices']\n"
        "QUICK_START = 'shop/prices'\n", encoding="utf-8")
    information = tmp_path / "shop-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 0.1\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[quartet.domains]\nshop = shop\ngone = gone\n", encoding="utf-8")
    code = ("from pipelines.config.registry import domains, experiment_class, quick_start\n"
            "print(*domains()); print(experiment_class('shop.prices').__name__, quick_start('shop'))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"})
    assert done.stdout.splitlines() == ["vision speech nlp recsys shop", "Prices shop/prices"]
