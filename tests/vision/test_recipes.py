"""Shipped experiments for data that are not here, on made data, and one on the real, from training to prediction."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.load import load
from pipelines.data.records import tfds_source
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.serving.export import export
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
from tests.data.prepared import need, prepare
from tests.vision.synthetic_images import folder

pytestmark = pytest.mark.slow(seconds=50)

SHORT = ["train.epochs=1", "train.precision=float32", "train.devices=cpu", "evaluate.bootstrap=100", "evaluate.worst=4",
         "monitor.tensorboard=false"]


def trained(name, runs, overrides):
    """(report, the run) of a shipped experiment with some settings changed."""
    experiment = load(name, [*SHORT, *overrides]).experiment
    run = RunFolder(runs / name)
    call = Call(name=name, task_class=task_class(experiment.task), quiet=True)
    return train(experiment, run, call), run


def answered(run, inputs):
    found = list(Predictor(load_run(run, where="cpu")).predict([str(path) for path in inputs]))
    assert not any(one.error for one in found)
    assert all(np.isclose(one.values["probabilities"].sum(), 1.0, atol=1e-4) for one in found)
    return found


def test_a_folder_of_images_with_its_own_splits(tmp_path):
    for part, count in (("train", 12), ("val", 4), ("test", 4)):
        folder(tmp_path / "photos" / part, {"cat": count, "dog": count}, seed=ord(part[0]))
    report, run = trained("vision/folder", tmp_path, [
        f"data.path={tmp_path / 'photos'}", "data.image_size=64", "train.batch_size=12", "monitor.tensorboard=true", "monitor.samples=2"])
    assert report["data"]["examples"] == {"train": 24, "validation": 8, "test": 8}
    assert report["timing"]["steps"] == 2 and report["metrics"]["test/accuracy"]["n"] == 8
    assert (run.report / "report.html").exists()
    found = answered(run, [tmp_path / "photos" / "test"])
    assert len(found) == 8 and {one.values["label"] for one in found} <= {"cat", "dog"}


def test_imagenet_streamed_with_random_crops(tmp_path):
    place = prepare(tmp_path / "tfds", sizes=True, count=20)
    report, run = trained("vision/imagenet_resnet50", tmp_path, [
        "data.name=made", f"data.data_dir={place}", "data.validation=0.2", "data.test=test", "data.image_size=64", "train.batch_size=8",
        "model={name: residual, depth: 1, widths: [8]}"])  # ResNet-50 is built in test_shipped.py
    assert report["data"]["examples"] == {"train": 16, "validation": 4, "test": 10}
    assert report["timing"]["steps"] == 2 and report["metrics"]["test/accuracy"]["n"] == 10
    assert any("streamed" in note for note in report["notes"])
    images = folder(tmp_path / "new", {"x": 2})
    assert {one.values["label"] for one in answered(run, [images])} <= {"a", "b"}


@pytest.mark.realdata
def test_cifar10_exported_and_predicting(tmp_path):
    need("cifar10")
    report, run = trained("vision/cifar10_cnn", tmp_path, [
        "data.limit=6000", "data.validation=0.02", "data.test=null", "train.learning_rate.warmup=0.1", "evaluate.baseline=false"])
    assert report["timing"]["steps"] == 47
    accuracy = report["metrics"]["validation/accuracy"]
    assert accuracy["n"] == 1000 and accuracy["value"] > 0.3

    loaded = load_run(run, where="cpu")
    source = tfds_source("cifar10", "test[:200]", fields={"image": "image", "label": "label"}, label="label")
    images = source.gather(tf.range(200, dtype=tf.int64))["image"]
    (tmp_path / "images").mkdir()
    for number, image in enumerate(images.numpy()):
        (tmp_path / "images" / f"{number:03d}.png").write_bytes(image)
    found = answered(run, [tmp_path / "images"])
    names = loaded.task.facts["classes"]
    right = np.mean([one.values["label"] == names[label] for one, label in zip(found, source.labels)])
    assert abs(right - accuracy["value"]) < 0.15  # of 200 examples
    model = tf.saved_model.load(str(export(loaded, tmp_path / "export")))
    answer = model.signatures["serving_default"](image=images)
    np.testing.assert_allclose(answer["probabilities"], [one.values["probabilities"] for one in found], atol=1e-5)
