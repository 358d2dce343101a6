"""YOLOX-Nano with the weights that it learned on COCO: what the original gives, used as it is, and trained further."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import quartet
from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving.export import export
from pipelines.serving.exported import ExportedModel
from pipelines.serving.load import load_run, task_class
from pipelines.serving.predict import Predictor
from tests.data.prepared import require_preset
from tests.vision import boxed_pictures
from vision.models import yolox
from vision.models.detector import cells
from vision.settings import Yolox

pytestmark = pytest.mark.slow

AS_IT_IS = """task: vision.detection
data: {source: none}
model: {name: yolox, preset: PRESET, trains: nothing}
train: {epochs: 1, batch_size: 1, precision: float32, devices: cpu}
evaluate: {overlap: 0.45}
"""


def preset():
    return require_preset("yolox_nano", file="weights.npz", extra=False)


@pytest.fixture(scope="module")
def reference():
    return np.load(Path(preset()) / "reference.npz")


def trained(text, folder):
    known = from_text(text, [], file="test")
    report = train(known.experiment, RunFolder(folder / "runs" / "small"), Call("test", task_class(known.experiment.task), quiet=True))
    return load_run(RunFolder(folder / "runs" / "small"), where="cpu"), report


def compared(model, reference):
    """The largest differences from the original's raw outputs: of middles and sides in strides, and of probabilities."""
    (middles, strides), names, worst = cells(yolox.SIZE), ("camvid", "bccd"), [0.0, 0.0]
    images = np.stack([reference[f"{name}_image"][..., ::-1] for name in names]).astype(np.float32)
    for name, found in zip(names, model(images).numpy()):
        rows, theirs = reference[f"{name}_rows"], reference[f"{name}_output"]
        boxes, stride = found[rows, :4], strides[rows]
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2 - (middles[rows] - stride / 2)
        own = np.concatenate([middle / stride, np.log((boxes[:, 2:] - boxes[:, :2]) / stride)], 1)
        chances = tf.nn.sigmoid(found[rows, 4:]).numpy()
        worst = np.maximum(worst, [np.abs(own - theirs[:, :4]).max(), np.abs(chances - theirs[:, 4:5] * theirs[:, 5:]).max()])
    return worst


def test_it_gives_what_the_original_gives(reference):
    model = yolox.build(Yolox(name="yolox", preset=preset()), image_size=yolox.SIZE, channels=3, classes=80,
                        facts={"classes": reference["classes"].tolist()})
    assert (compared(model, reference) <= 1e-3).all()
    kernels = [variable for variable in model.trainable_variables if variable.path.endswith("kernel")]
    for kernel in (kernels[0], kernels[len(kernels) // 2], kernels[-1]):  # one of its weights another, and it is not the original
        known = kernel.numpy()
        kernel.assign(known * 1.02)
        assert (compared(model, reference) > 1e-3).any()
        kernel.assign(known)
    assert (compared(model, reference) <= 1e-3).all()


def test_it_answers_as_it_is(reference, tmp_path):
    run, report = trained(AS_IT_IS.replace("PRESET", preset()), tmp_path)
    Image.fromarray(reference["camvid_image"][..., ::-1]).save(tmp_path / "street.png")
    (answer,) = Predictor(run).predict([str(tmp_path / "street.png")])
    sure = reference["camvid_scores"] >= 0.5
    theirs = reference["camvid_boxes"][sure] * (416 / 240)  # they are those of the picture, which is 240 px wide
    order = np.argsort(-reference["camvid_scores"][sure], kind="stable")
    np.testing.assert_allclose(answer.values["boxes"], np.clip(theirs[order], 0, 416), atol=0.1)
    np.testing.assert_allclose(answer.values["scores"], reference["camvid_scores"][sure][order], atol=1e-3)
    assert list(answer.values["labels"]) == reference["classes"][reference["camvid_classes"][sure][order]].tolist()
    assert "not judged" in json.dumps(report["notes"]) and len(run.task.facts["encoder"]["checksum"]) == 64
    (drawn,) = quartet.load(run.folder.path).draw(tmp_path / "street.png")
    street = np.asarray(Image.open(tmp_path / "street.png")).repeat(2, 0).repeat(2, 1)
    assert drawn.size == (832, 832) and 0.01 < (np.asarray(drawn) != street).any(-1).mean() < 0.5
    (again,) = ExportedModel(export(run, tmp_path / "export")).together([("street", {"image": (tmp_path / "street.png").read_bytes()})])
    np.testing.assert_allclose(again.values["boxes"], answer.values["boxes"], atol=1e-3)
    assert list(again.values["labels"]) == list(answer.values["labels"])


def test_it_learns_classes_of_ones_own_and_a_finished_run_needs_no_preset(tmp_path):
    shutil.copytree(preset(), tmp_path / "preset")
    table = boxed_pictures.table(boxed_pictures.made(24, size=(64, 96)), tmp_path / "data")
    changed = {"PRESET": str(tmp_path / "preset"), "source: none": f"source: table, path: {table}, validation: 0.25, test: 0.25",
               "trains: nothing": "trains: whole", "epochs: 1, batch_size: 1": "epochs: 3, batch_size: 4"}
    text = AS_IT_IS
    for old, new in changed.items():
        text = text.replace(old, new)
    run, _ = trained(text, tmp_path)
    losses = [json.loads(line)["validation/loss"] for line in run.folder.metrics.read_text().splitlines() if "validation/loss" in line]
    assert len(losses) == 3 and losses[-1] < losses[0]
    shutil.rmtree(tmp_path / "preset")
    again = load_run(run.folder, where="cpu")
    assert len(list(Predictor(again).predict([str(tmp_path / "data" / "000.png")]))) == 1


def test_what_is_wrong_with_a_preset_is_said(tmp_path):
    def built(folder, classes=("person", "dog"), trains="whole"):
        settings = Yolox(name="yolox", preset=str(folder), trains=trains)
        return yolox.build(settings, image_size=(64, 64), channels=3, classes=len(classes), facts={"classes": list(classes)})

    with pytest.raises(ConfigError, match=r"weights\.npz"):
        built(tmp_path)
    (tmp_path / "classes.txt").write_text("person\ndog\n")
    (tmp_path / "weights.npz").write_bytes(b"PK\3\4 nothing")
    with pytest.raises(ConfigError, match="copy the preset again"):
        built(tmp_path)
    np.savez(tmp_path / "weights.npz", one=np.zeros(3, np.float32))
    with pytest.raises(ConfigError, match="no weights of YOLOX-Nano"):
        built(tmp_path)
    with pytest.raises(ConfigError, match="does not know 'cell'"):
        built(preset(), ("person", "cell"), "nothing")
