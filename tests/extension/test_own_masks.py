"""A task from outside with answers at every pixel keeps the whole contract, and costs little: scores of sums are kept, not masks. Its
sources, models and augmentations are registered as ours are; its data are checked, and proposed for."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow(seconds=40)

FILE = Path(__file__).with_name("my_masks.py")
PROGRAM = """
import sys
from pathlib import Path
from pipelines.config import extensions
from quartet.testing import check_task
if __name__ == "__main__":
    extensions.use([sys.argv[1]])
    check_task({"task": "mine.bright", "data": {"source": "drawn", "validation": 0.2, "test": 0.2},
                "model": {"name": "tiny"}, "augment": {"own": {"name": "mirror"}},
                "train": {"batch_size": 24, "epochs": 4, "learning_rate": {"peak": 0.03}}}, Path(sys.argv[2]))
"""


def quartet(*arguments, cwd):
    return processes.run("-m", "quartet", *arguments, "--use", FILE, cwd=cwd)


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
    worst = report["tables"]["test/worst_mistakes"]
    assert [row["iou"] for row in worst] == sorted(row["iou"] for row in worst) and len(worst) == 2
    text = (place / "run" / "report" / "report.md").read_text()
    assert "figures/worst.png" in text and re.search(r"\| IoU \| [\d.]+ % \[", text) and "| Gain in IoU |" in text
    kept = place / "run" / "report" / "predictions.parquet"
    assert kept.stat().st_size < 10_000  # 24 names: no masks


def test_predict_writes_a_mask_for_each_input_beside_the_table(place):
    rows = np.zeros((2, 12, 12), int)
    rows[0, 3:8, 2:6] = 250
    (place / "pictures.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in rows))
    done = quartet("predict", place / "run", place / "pictures.jsonl", "--output", "found.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    with (place / "found.csv").open() as file:
        first, second = csv.DictReader(file)
    assert json.loads(second["boxes"]) == [] and second["count"] == "0"
    import tensorflow as tf

    mask = tf.io.decode_png(Path(place / first["mask"]).read_bytes()).numpy()[..., 0]
    there = np.argwhere(mask)
    (top, left), (bottom, right) = there.min(0), there.max(0) + 1
    assert json.loads(first["boxes"]) == [[left, top, right, bottom]] and mask[4:7, 3:5].all() and not mask[:2].any()


def test_files_are_proposed_for_checked_and_named_where_one_is_missing(tmp_path):
    import tensorflow as tf

    for kind in ("images", "masks"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(20):
            picture = tf.io.encode_png(np.full((12, 12, 1), number // 2 if kind == "images" and number < 2 else 10 * number, np.uint8))
            (tmp_path / "photos" / kind / f"{number:02d}.png").write_bytes(picture.numpy())
    done = quartet("new", "mine", "--data", "photos", "--minutes", "0", "--no-estimate", "-o", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "path: photos" in (tmp_path / "mine.yaml").read_text()
    (tmp_path / "photos" / "masks" / "07.png").unlink()
    (tmp_path / "photos" / "images" / "11.png").write_bytes(b"no picture")
    done = quartet("check", "mine.yaml", "-o", "found.json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    error, *others = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert sorted(detail.partition(":")[0] for detail in error["details"]) == ["photos/images/07.png", "photos/images/11.png"]
    assert "masks/07.png" in "".join(error["details"])
    assert any("the same content" in other["text"] for other in others)
    done = quartet("train", "mine.yaml", "train.epochs=1", cwd=tmp_path)
    assert done.returncode == 1 and "cannot be read" in done.stderr and ".png" in done.stderr
