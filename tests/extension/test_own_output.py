"""An output from outside keeps the whole contract with the inputs of two domains."""

import json

import numpy as np
import pytest

from tests import processes
from tests.finished_run import ROOT

pytestmark = pytest.mark.slow(seconds=60)

PROGRAM = """
import json
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pipelines.config import extensions
from quartet.testing import check_task
if __name__ == "__main__":
    extensions.use(["sample_extension.tasks"])
    check_task(json.loads(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
"""
IMAGES = {"task": "sample.graded_images", "data": {"source": "npz", "validation": 0.2, "test": 0.2},
          "model": {"name": "gradients"}, "train": {"batch_size": 32, "epochs": 2}}
TEXTS = {"task": "sample.graded_texts", "data": {"source": "table", "validation": 0.2, "test": 0.2},
         "model": {"name": "bag", "width": 8}, "train": {"batch_size": 32, "epochs": 2}}


def test_with_images(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 150)
    images = np.clip(rng.normal(60 + 60 * labels[:, None, None, None], 20, (150, 8, 8, 1)), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "data.npz", image=images, label=labels)
    check({**IMAGES, "data": {**IMAGES["data"], "path": str(tmp_path / "data.npz")}}, tmp_path, [])


def test_with_texts(tmp_path):
    rows = [f"{'very ' * (number % 3)}good {number},{('1 ok', '2 fine', '3 best')[number % 3]}" for number in range(150)]
    (tmp_path / "data.csv").write_text("text,label\n" + "\n".join(rows))
    check({**TEXTS, "data": {**TEXTS["data"], "path": str(tmp_path / "data.csv")}}, tmp_path, ["very good", "good \U0001f600"])


def check(experiment, folder, inputs):
    (folder / "runs").mkdir()
    done = processes.run("-c", PROGRAM, ROOT / "tests" / "sample_extension", json.dumps(experiment), folder / "runs", json.dumps(inputs),
                         cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((folder / "runs" / "run" / "report" / "report.json").read_text())
    model, middle = report["tables"]["test/baselines"]
    assert middle["model"] == "the class in the middle" and middle["off_by"] > 0
    assert middle["gain_in_off_by"] == pytest.approx(middle["off_by"] - model["off_by"])  # less is better


