"""`quartet check`: all data read once; the findings in the terminal and as JSON; status 1 where training would stop."""

import json

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from pipelines.commands import main
from pipelines.commands.check import check
from pipelines.config.load import from_dict


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            image = rng.integers(0, 256, (8, 8, 1), np.uint8)
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(tf.io.encode_png(image).numpy())
    data = f"{{source: folder, path: {tmp_path / 'photos'}, test: 0.2, validation: 0.2}}"
    (tmp_path / "mine.yaml").write_text(f"task: vision.classification\ndata: {data}\nmodel: {{name: cnn}}\n")
    return tmp_path


def call(folder, *arguments):
    return CliRunner().invoke(main.app, ["check", str(folder / "mine.yaml"), *arguments, "--runs", str(folder / "runs")])


def test_good_data(folder):
    done = call(folder)
    assert done.exit_code == 0, done.stderr
    found = json.loads((folder / "runs/vision/mine/check.json").read_text())
    assert found["failed"] is False and sum(split["examples"] for split in found["splits"].values()) == 24
    assert "cat" in done.stdout and "check.json" in done.stdout


def test_a_broken_image_fails_unless_it_is_skipped(folder):
    (folder / "photos/cat/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    done = call(folder, "-o", str(folder / "found.json"))
    assert done.exit_code == 1 and "broken.png" in done.stdout
    assert json.loads((folder / "found.json").read_text())["failed"] is True
    assert call(folder, "data.on_bad_example=skip").exit_code == 0


def test_of_a_task_without_a_check_of_its_own_examples_are_compared_as_they_are_stored(monkeypatch, tmp_path):
    monkeypatch.setattr("vision.check.CHECKS", {})
    images = np.random.default_rng(0).integers(0, 255, (60, 8, 8), np.uint8)
    images[1] = images[0]
    np.savez(tmp_path / "data.npz", image=images, label=np.arange(60) % 2)
    checked = check(from_dict({"task": "vision.classification", "data": {"source": "npz", "path": str(tmp_path / "data.npz")},
                               "model": {"name": "cnn"}, "train": {"devices": "cpu"}}))
    assert not checked.failed and sum(split["examples"] for split in checked.splits.values()) == 60
    assert checked.splits["train"]["classes"].keys() == {"0", "1"}
    assert any(finding.text.startswith("the same content with different labels, 1 times") for finding in checked.findings)
