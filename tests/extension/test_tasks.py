"""A task in a file of one's own, in six definitions: trained, judged and exported like ours, with defaults for the rest."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.task.contract import Input, Output, PreparedForm, Requests, Task
from tests import processes

pytestmark = pytest.mark.slow

FILE = Path(__file__).with_name("my_tasks.py")
EXPERIMENT = """\
task: mine.regression
train: {epochs: 15, batch_size: 32, learning_rate: {peak: 0.03}, precision: float32, devices: cpu}
evaluate: {bootstrap: 100, baseline: false}
"""


def quartet(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return processes.run("-m", "quartet", *arguments, "--use", FILE, cwd=cwd)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """The folder in which the small task was trained."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "rows.yaml").write_text(EXPERIMENT, encoding="utf-8")
    done = quartet("train", "rows.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_small_task_needs_few_definitions():
    assert Task.__abstractmethods__ == {"model"} and Input.__abstractmethods__ == {"splits", "raw_spec"}


@pytest.mark.parametrize("part", [Task, Input, Output, Requests, PreparedForm])
def test_no_part_of_the_contract_is_large(part):
    """What is inherited is counted where it is defined."""
    own = {name for name in {**vars(part), **vars(part).get("__annotations__", {})} if not name.startswith("_")}
    assert len(own) <= 20, sorted(own)


def test_it_is_judged_with_intervals(place):
    report = json.loads((place / "runs/mine/rows/default/report/report.json").read_text())
    error = report["metrics"]["test/absolute_error"]
    assert error["low"] < error["value"] < error["high"] and error["value"] < 1.0 and error["n"] == 80
    assert report["data"]["examples"] == {"train": 288, "validation": 32, "test": 80}


def test_the_answer_to_each_example_stands_beside_the_report(place):
    import pyarrow.parquet as pq

    table = pq.read_table(place / "runs/mine/rows/default/report/predictions.parquet")
    assert set(table.column_names) == {"example", "y", "answer", "absolute_error"} and table.num_rows == 80
    off = np.abs(np.array(table["y"].to_pylist()) - np.array(table["answer"].to_pylist()))
    np.testing.assert_allclose(off, table["absolute_error"].to_pylist(), rtol=1e-5, atol=1e-6)


def test_it_predicts_what_it_is_given_as_json(place):
    (place / "rows.jsonl").write_text('[1, 0, 0, 0]\n{"x": [0, 1, 0, 0]}\n[1, 2]\n', encoding="utf-8")
    done = quartet("predict", "mine/rows/default", "rows.jsonl", "[0, 0, 1, 0]", "nonsense", "--format", "jsonl", cwd=place)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    values = [np.ravel(one["answer"])[0] for one in found if "answer" in one and one.get("error") is None]
    assert len(values) == 3 and np.allclose(values, [6, 3, 8], atol=2.0)
    assert "rows.jsonl:3" in done.stderr and "[4] is asked for" in done.stderr and "is no JSON" in done.stderr


def test_it_is_judged_again_and_exported(place):
    done = quartet("evaluate", "mine/rows/default", "--split", "validation", cwd=place)
    assert done.returncode == 0 and "Absolute error" in done.stdout, done.stderr
    done = quartet("export", "mine/rows/default", cwd=place)
    assert done.returncode == 0, done.stderr
    code = ("import sys, tensorflow as tf; model = tf.saved_model.load('runs/mine/rows/default/export'); "
            "print(float(model.signatures['serving_default'](x=tf.zeros([1, 4]))['answer'][0, 0]))")
    done = processes.run("-c", code, cwd=place, check=True)
    assert abs(float(done.stdout) - 5.0) < 2.0


def test_its_settings_are_checked_as_ours_are(place):
    done = quartet("train", "rows.yaml", "hiden=3", cwd=place)
    assert done.returncode == 2 and "no such setting; did you mean hidden?" in done.stderr
    done = quartet("schema", "mine.regression", cwd=place)
    assert json.loads(done.stdout)["properties"]["hidden"]["description"] == "units of the hidden layer"
