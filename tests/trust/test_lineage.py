"""Where a run comes from, and the card that hubs of models read."""

import json
import os
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import lineage
from pipelines.trust.signing import Untrusted, digest
from tests import finished_run
from tests.trust.keys import needs_trust, pair

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
    assert found["data"]["description"] == {"file": "croissant.json", "sha256": digest(folder / "croissant.json")}
    assert found["tracked"] is None
    above, = found["parents"]
    assert above["setting"] == "model.weights" and above["run"] == str(parent) and above["parents"] == [] and above["signature"] is None
    (folder / "tracking.json").write_text('{"tracker": "mlflow", "id": "abc"}')
    said = command("lineage", folder).stdout
    assert "tracked      in mlflow, run abc" in said and "croissant.json, sha256" in said
    shown = (environment["data"]["train"], found["settings"]["sha256"], "from         model.weights", f"  run          {parent}", "none")
    assert all(text in said for text in shown)
    by_name = {**settings, "train": {**settings["train"], "teacher": {"run": "vision/digits/parent"}}}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(by_name))
    above, = lineage(RunFolder(folder))["parents"]
    assert above["setting"] == "train.teacher.run" and above["run"] == str(parent)


@needs_trust
def test_signatures_in_it(tmp_path):
    key, public = pair()
    folder = finished_run.copy(tmp_path)
    assert command("sign", folder, "--key", key).exit_code == 0
    unchecked = lineage(RunFolder(folder))["signature"]
    assert unchecked["verified"] is False and unchecked["key"] == digest(public)
    assert lineage(RunFolder(folder), public)["signature"] == {**unchecked, "verified": True}
    assert "not checked" in command("lineage", folder).stdout and "not checked" not in command("lineage", folder, "--key", public).stdout
    with pytest.raises(Untrusted):
        lineage(RunFolder(folder), pair("other")[1])
    (folder / "environment.json").write_text("{")
    done = command("lineage", folder, "--key", public)
    assert done.exit_code == 1 and "environment.json was changed" in done.output


def test_the_card_of_a_run_is_one_that_a_hub_reads():
    folder = finished_run.run()
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    fields = yaml.safe_load(head)
    report = RunFolder(folder).read_report()
    assert fields["library_name"] == "keras" and fields["pipeline_tag"] == "image-classification"
    model, = fields["model-index"]
    results = {one["dataset"]["split"]: {metric["type"]: metric for metric in one["metrics"]} for one in model["results"]}
    stored = report["metrics"]["test/accuracy"]
    assert results["test"]["accuracy"]["value"] == pytest.approx(stored["value"], abs=1e-6)
    assert f"[{stored['low']:.4g}, {stored['high']:.4g}]" in results["test"]["accuracy"]["name"]
    assert body.strip() == (folder / "report" / "model_card.md").read_text(encoding="utf-8").strip()
    if not os.environ.get("QUARTET_REQUIRE_EXTRAS"):
        pytest.importorskip("huggingface_hub")
    import huggingface_hub as hub

    known = hub.ModelCard(text).data
    assert known.pipeline_tag == "image-classification"
    assert any(one.metric_type == "accuracy" and one.metric_value == results["test"]["accuracy"]["value"] for one in known.eval_results)
