"""Runs on one page, the model card, and `quartet report` for runs and searches."""

import json
import shutil

import pytest

from pipelines.reports.blocks import markdown
from pipelines.reports.report import card
from pipelines.runs.comparing import curves, write_comparison
from pipelines.runs.folder import RunFolder
from tests.finished_run import copy, quartet

pytestmark = pytest.mark.figures


@pytest.mark.slow
def test_one_page_for_several_runs(tmp_path):
    one = copy(tmp_path)
    other = one.with_name("other")
    shutil.copytree(one, other)
    text = (other / "experiment.yaml").read_text().replace("batch_size: 64", "batch_size: 32")
    (other / "experiment.yaml").write_text(text)
    done = quartet("report", "vision/digits/small", "vision/digits/other", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "runs" / "compared.html").read_text()
    assert "train.batch_size" in page and "more than chance" in page and page.count("data:image/png") == 1
    assert "http" not in page.replace("http-equiv", "")
    found = write_comparison([RunFolder(one), RunFolder(other)], tmp_path / "page.html")
    assert found.names == ["small", "other"]


def test_curves_of_runs_of_which_one_was_not_validated():
    rows = [{"step": 5, "epoch": 1, "validation/accuracy": 0.5}, {"step": 10, "epoch": 2, "validation/accuracy": 0.6}]
    figure = curves([("one", rows), ("other", [{"step": 5, "epoch": 1, "train/loss": 1.0}])])
    assert [line.get_label() for axis in figure.axes for line in axis.get_lines()] == ["one"]
    assert curves([("one", [{"step": 1, "epoch": 1}])]) is None


@pytest.mark.slow
def test_the_card_says_data_results_and_limits(tmp_path):
    folder = copy(tmp_path)
    text = (folder / "report" / "model_card.md").read_text()
    content = json.loads((folder / "report" / "report.json").read_text())
    assert text.startswith("# Model card: vision/digits") and "10 classes: 0, 1, 2" in text and "examples: train 1,294" in text
    assert f"| {content['metrics']['test/accuracy']['n']:,} |" in text and "Weakest class on test:" in text
    assert "What is it for" in text
    bare = {**content, "metrics": {}, "data": {}, "notes": [], "tables": {}, "timing": {}, "environment": {}, "settings": {}}
    assert "Nothing was judged." in markdown(card(bare, "runs/x"))


@pytest.mark.slow
def test_wrong_calls(tmp_path):
    folder = copy(tmp_path)
    alone = quartet("report", str(folder), "--output", str(tmp_path / "x.html"))
    assert alone.returncode == 2 and "--output: is for several runs" in alone.stderr
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search.yaml").write_text("tune: {}\n")
    unfinished = quartet("report", str(tmp_path / "search"))
    assert unfinished.returncode == 2 and "the search is not finished; the command that began it resumes it" in unfinished.stderr
