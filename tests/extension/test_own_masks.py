"""A task from outside with answers at every pixel keeps the whole contract, and costs little: scores of sums are kept, not masks."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow(seconds=60)

FILE = Path(__file__).with_name("my_masks.py")
PROGRAM = """
import sys
from pathlib import Path
from pipelines.config import extensions
from quartet.testing import check_task
if __name__ == "__main__":
    extensions.use([sys.argv[1]])
    check_task({"task": "mine.bright", "data": {"validation": 0.2, "test": 0.2},
                "train": {"batch_size": 24, "epochs": 4, "learning_rate": {"peak": 0.03}}}, Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    done = processes.run("-c", PROGRAM, FILE, folder, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_its_report_has_the_metric_of_sums_beside_that_of_a_baseline_which_answers(place):
    report = json.loads((place / "run" / "report" / "report.json").read_text())
    model, grey = report["tables"]["test/baselines"]
    iou = report["metrics"]["test/iou"]
    assert iou["low"] < iou["value"] < iou["high"] and model["iou"] == pytest.approx(iou["value"])
    assert grey["model"] == "brighter than grey" and 0.3 < grey["iou"] < 0.95
    assert grey["gain_in_iou"] == pytest.approx(model["iou"] - grey["iou"])
    kept = place / "run" / "report" / "predictions.parquet"
    assert kept.stat().st_size < 10_000  # 24 names: no masks


def test_predict_writes_a_mask_for_each_input_beside_the_table(place):
    rows = np.zeros((2, 12, 12), int)
    rows[0, 3:8, 2:6] = 250
    (place / "pictures.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in rows))
    done = processes.run("-m", "quartet", "predict", place / "run", place / "pictures.jsonl", "--output", "found.csv", "--use", FILE,
                         cwd=place)
    assert done.returncode == 0, done.stderr
    with (place / "found.csv").open() as file:
        first, second = csv.DictReader(file)
    assert json.loads(second["boxes"]) == [] and second["count"] == "0"
    import tensorflow as tf

    mask = tf.io.decode_png(Path(place / first["mask"]).read_bytes()).numpy()[..., 0]
    there = np.argwhere(mask)
    (top, left), (bottom, right) = there.min(0), there.max(0) + 1
    assert json.loads(first["boxes"]) == [[left, top, right, bottom]] and mask[4:7, 3:5].all() and not mask[:2].any()
