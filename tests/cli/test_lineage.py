"""Where a run comes from."""

import json
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from pipelines.base.inside import digest
from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import lineage
from tests import finished_run

pytestmark = pytest.mark.slow


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_data_code_settings_and_parents(tmp_path):
    """A run whose settings name a file of another run comes from that run, too, and a circle ends."""
    folder = finished_run.copy(tmp_path)
    parent = folder.with_name("parent")
    shutil.copytree(folder, parent)
    settings = yaml.safe_load((folder / "experiment.yaml").read_text())
    (folder / "experiment.yaml").write_text(yaml.safe_dump({**settings, "model": {"weights": str(parent / "model" / "model.keras")}}))
    (parent / "experiment.yaml").write_text(yaml.safe_dump({**settings, "model": {"weights": str(folder / "model" / "model.keras")}}))
    found = json.loads(command("lineage", folder, "--json").stdout)
    environment = RunFolder(folder).read_environment()
    assert found["data"]["fingerprints"] == environment["data"] and found["data"]["settings"]["source"] == "digits"
    assert found["settings"]["sha256"] == digest(folder / "experiment.yaml")
    assert found["code"]["source"] == environment["source"] and found["code"]["versions"]["keras"] == environment["keras"]
    above, = found["parents"]
    assert above["setting"] == "model.weights" and above["run"] == str(parent) and above["parents"] == []
    said = command("lineage", folder).stdout
    shown = (environment["data"]["train"], found["settings"]["sha256"], "from         model.weights", f"  run          {parent}")
    assert all(text in said for text in shown)
    by_name = {**settings, "train": {**settings["train"], "teacher": {"run": "vision/digits/parent"}}}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(by_name))
    above, = lineage(RunFolder(folder))["parents"]
    assert above["setting"] == "train.teacher.run" and above["run"] == str(parent)
