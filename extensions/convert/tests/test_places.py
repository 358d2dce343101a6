"""Boxes and masks in other forms: the same things as the run finds, to 1e-3 of their pixels; the same class of each pixel."""

import importlib.util
import io
import os

import numpy as np
import pytest
from PIL import Image

from extensions.convert.conversion import LITERT
from extensions.convert.export import FORMATS, export_converted
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving.forms import open_run
from pipelines.serving.load import load_run, task_class
from pipelines.serving.predict import Predictor
from tests.vision import boxed_pictures, masked_pictures

EXTRAS = ("ai_edge_litert", "onnxruntime", "tf2onnx")
pytestmark = [pytest.mark.slow(seconds=60), pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in EXTRAS) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extras `mobile` and `onnx`: what it tests is not tested here")]
TEXT = """
task: vision.instances
data: {{source: masks, path: {path}, validation: 0.3, test: null, image_size: [64, 96]}}
model: {{name: small, widths: [8, 8, 16, 16, 16], width: 8, depth: 1}}
train: {{epochs: 10, batch_size: 8, learning_rate: {{peak: 0.02}}, precision: float32, devices: cpu}}
evaluate: {{boxes: 20, bootstrap: 100}}
"""
PIXELS = """
task: vision.segmentation
data: {source: folder, path: ".", image_size: [40, 48]}
model: {name: small}
train: {epochs: 6, batch_size: 8, learning_rate: {peak: 0.01}, precision: float32, devices: cpu}
evaluate: {bootstrap: 100}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = boxed_pictures.masks(boxed_pictures.made(40), tmp_path_factory.mktemp("things"))
    known, place = from_text(TEXT.format(path=folder)), RunFolder(tmp_path_factory.mktemp("runs") / "things" / "one")
    train(known.experiment, place, Call("things", task_class(known.experiment.task), quiet=True))
    return load_run(place, where="cpu")


def answers(run, files):
    return [one.values for one in Predictor(run).together([(str(file), {"image": file.read_bytes()}) for file in files])]


@pytest.mark.parametrize("form", ["onnx", "litert"])
def test_the_same_things_are_found(run, tmp_path, monkeypatch, form):
    if form == "litert":
        monkeypatch.setitem(FORMATS, "cpu", [LITERT])
    manifest = export_converted(run, tmp_path / form, made_for="onnx" if form == "onnx" else "cpu")
    assert manifest.largest <= 1e-4 and manifest.metric == "ap" and manifest.export.score.value == pytest.approx(
        manifest.model.score.value, abs=1e-3)
    assert manifest.model.score.value > 0.1
    folder = boxed_pictures.masks(boxed_pictures.made(8, size=(60, 80), seed=5), tmp_path / "new")
    files = sorted((folder / "images").iterdir())
    found = 0
    for mine, other in zip(answers(run, files), answers(open_run(RunFolder(tmp_path / form)), files)):
        assert mine["count"] == other["count"] and list(mine["labels"]) == list(other["labels"])
        np.testing.assert_allclose(mine["boxes"], other["boxes"], atol=1e-3)
        masks = [np.asarray(Image.open(io.BytesIO(one["mask"]))) for one in (mine, other)]
        assert masks[0].shape == (60, 80) and (masks[0] != masks[1]).mean() <= 1e-4
        found += mine["count"]
    assert found >= 2


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    known, place = from_text(PIXELS, masked_pictures.small(folder)), RunFolder(tmp_path_factory.mktemp("runs") / "pixels" / "one")
    train(known.experiment, place, Call("pixels", task_class(known.experiment.task), quiet=True))
    return load_run(place, where="cpu")


@pytest.mark.parametrize("form", ["onnx", "litert"])
def test_pixels_have_the_same_classes(segmenter, tmp_path, monkeypatch, form):
    if form == "litert":
        monkeypatch.setitem(FORMATS, "cpu", [LITERT])
    manifest = export_converted(segmenter, tmp_path / form, made_for="onnx" if form == "onnx" else "cpu")
    assert manifest.metric == "miou" and manifest.model.score.value > 0.4
    assert manifest.export.score.value == pytest.approx(manifest.model.score.value, abs=1e-3)
    masked_pictures.write(tmp_path / "new", range(50, 54))
    files = sorted((tmp_path / "new/images").iterdir())
    for mine, other in zip(answers(segmenter, files), answers(open_run(RunFolder(tmp_path / form)), files)):
        masks = [np.asarray(Image.open(io.BytesIO(one["mask"]))) for one in (mine, other)]
        assert masks[0].shape == (40, 48) and len(np.unique(masks[0])) > 1 and (masks[0] != masks[1]).mean() <= 2e-3
