"""Promises 1 and 2 with tiny random encoders, on the kernels that CPUs train with where `train.deterministic` is not set."""

import importlib.util
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.encoders import tiny
from tests.training.runs import checkpoint, rows

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow(seconds=50), pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]

TRAIN = "epochs: 2, optimizer: {name: sgd, momentum: 0.9}, ema: 0.9, learning_rate: {peak: 0.02}"
WORDS = ("the", "room", "taxi", "please", "book", "cancel")  # of texts of one or, now and then, four
# dropout, texts of several lengths and an epoch's short last batch; batch norm in widening convolutions
CASES = {
    "texts": (tiny.bert, f"""
task: nlp.classification
data: {{source: table, path: FOLDER/texts.tsv, validation: 0.1, test: null, cache: memory}}
model: {{name: pretrained, preset: PRESET, limit: 16, words: 0, finetune: {{name: whole, learning_rate: 0.02, head: new}}}}
train: {{batch_size: 12, micro_batch_size: 3, {TRAIN}, devices: DEVICES}}
"""),
    "images": (tiny.efficientnet, f"""
task: vision.classification
data: {{source: digits, validation: 0.1, test: null, limit: 40, cache: memory}}
model: {{name: pretrained, preset: PRESET, image_size: 32, finetune: {{name: whole, learning_rate: 0.002, head: new}}}}
augment: {{shift: 1}}
train: {{batch_size: 16, micro_batch_size: 4, {TRAIN}, devices: DEVICES}}
""")}
KILLED = {"texts": 3, "images": 4}  # after this step


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Folders of runs: of each case `1` and `2`, on so many devices, and `killed`, on one, killed and resumed."""
    root = tmp_path_factory.mktemp("trained")
    texts = [" ".join(WORDS[(number * 5 + place) % 6] for place in range(1 if number % 7 else 4)) for number in range(44)]
    (root / "texts.tsv").write_text("\n".join(["text\tlabel", *(f"{text}\t{number % 2}" for number, text in enumerate(texts))]) + "\n")

    def asked(name: str, run: str, **more: int) -> dict:
        preset = root / "presets" / name
        if not preset.exists():
            CASES[name][0](preset)
        text = CASES[name][1].replace("PRESET", str(preset)).replace("FOLDER", str(root)).replace("DEVICES", run if run.isdigit() else "1")
        return {"folder": str(root / name / run), "text": text, **more}

    def train(*runs: dict, status: int = 0) -> None:
        done = processes.run("-m", "tests.encoders.trained", json.dumps(runs))
        assert done.returncode == status, done.stderr[-3000:]

    for devices in "12":
        train(*(asked(name, devices) for name in CASES))
    before: list[dict] = []
    for name, step in KILLED.items():  # what one process leaves the next one resumes
        train(*before, asked(name, "killed", kill=step), status=-signal.SIGKILL)
        before = [asked(name, "killed")]
    train(*before)
    return root


@pytest.mark.parametrize("name", CASES)
def test_two_devices_train_as_one(trained, name):
    (one, about), (other, _) = checkpoint(trained / name / "1"), checkpoint(trained / name / "2")
    assert about["step"] >= 6 and one.keys() == other.keys()
    for key, value in one.items():
        if value.dtype.kind == "f" and value.size and "optimizer" not in key:
            np.testing.assert_allclose(other[key], value, atol=1e-5, rtol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_killed_and_resumed_it_ends_bit_identical(trained, name):
    (one, about), (other, theirs) = checkpoint(trained / name / "1"), checkpoint(trained / name / "killed")
    assert about == theirs and one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)
    assert rows(trained / name / "1") == rows(trained / name / "killed")
