"""An output from outside keeps the whole contract with the inputs of two domains."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.finished_run import ROOT

pytestmark = pytest.mark.slow(seconds=45)

PROGRAM = """
import json
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pipelines.config import extensions
from quartet.testing import check_task
if __name__ == "__main__":
    extensions.use(["sample_extension.tasks"])
    for experiment, folder, inputs in json.loads(sys.argv[2]):
        check_task(experiment, Path(folder), inputs)
"""
SPLIT = {"validation": 0.2, "test": 0.2}
IMAGES = {"task": "sample.graded_images", "data": {"source": "npz", "path": "images.npz", **SPLIT},
          "model": {"name": "gradients"}, "train": {"batch_size": 32, "epochs": 2}}
TEXTS = {"task": "sample.graded_texts", "data": {"source": "table", "path": "texts.csv", **SPLIT},
         "tokens": {"name": "hashed", "buckets": 1024}, "model": {"name": "bag", "width": 8}, "train": {"batch_size": 32, "epochs": 2}}


def test_with_images_and_with_texts(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 150)
    images = np.clip(rng.normal(60 + 60 * labels[:, None, None, None], 20, (150, 8, 8, 1)), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "images.npz", image=images, label=labels)
    rows = [f"{'very ' * (number % 3)}good {number},{('1 ok', '2 fine', '3 best')[number % 3]}" for number in range(150)]
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(rows))
    asked = [(IMAGES, str(tmp_path / "images"), []), (TEXTS, str(tmp_path / "texts"), ["very good", "good \U0001f600"])]
    for _, folder, _ in asked:
        Path(folder).mkdir()
    processes.run("-c", PROGRAM, ROOT / "tests" / "sample_extension", json.dumps(asked), cwd=tmp_path, check=True)
    for _, folder, _ in asked:
        model, middle = json.loads(Path(folder, "run", "report", "report.json").read_text())["tables"]["test/baselines"]
        assert middle["model"] == "the class in the middle" and middle["off_by"] > 0
        assert middle["gain_in_off_by"] == pytest.approx(middle["off_by"] - model["off_by"])  # less is better
