"""What tracking adds to the lineage of a run, and to the card that hubs of models read."""

import json
import os

import pytest
import yaml
from typer.testing import CliRunner

from pipelines.base.inside import digest
from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from tests import finished_run

pytestmark = pytest.mark.slow


def test_its_lines_of_the_lineage(tmp_path):
    folder = finished_run.copy(tmp_path)
    found = json.loads(CliRunner().invoke(app, ["lineage", str(folder), "--json"]).stdout)
    assert found["data"]["description"] == {"file": "croissant.json", "sha256": digest(folder / "croissant.json")}
    assert found["tracked"] is None
    (folder / "tracking.json").write_text('{"tracker": "mlflow", "id": "abc"}')
    said = CliRunner().invoke(app, ["lineage", str(folder)]).stdout
    assert "tracked      in mlflow, run abc" in said and "croissant.json, sha256" in said


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
