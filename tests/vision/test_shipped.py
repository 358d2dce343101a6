"""Every shipped image experiment is valid, opens with its command, fits a screen; one of each model builds."""

from pathlib import Path

import pytest
import yaml

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from tests.encoders import tiny
from vision import models
from vision.models import pretrained
from vision.settings import DETECTORS, INSTANCES, SEGMENTERS, Pretrained

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "configs" / "vision"
SHIPPED = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SHAPES = {"cifar10": (32, 3, 10), "fashion_mnist": (28, 1, 10), "digits": (8, 1, 10), "imagenet": (224, 3, 1000), "folder": (128, 3, 5),
          "numbers": (128, 3, 1), "labels": (128, 3, 3)}
BUILT = {yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))["model"]["name"]: name for name in SHIPPED}.values()
OWN_DATA = ("detection", "folder", "instances", "labels", "numbers", "segmentation")  # whose path is the user's


def test_the_experiments_of_the_design_are_there():
    wanted = "digits fashion_mnist_cnn fashion_mnist_best cifar10_cnn cifar10_fast cifar10_lite0 imagenet_resnet50 folder"
    assert set(wanted.split()) <= set(SHIPPED)


def test_the_shipped_detector(tmp_path):
    given = [f"data.path={tmp_path}", f"model.preset={tiny.pyramid(tmp_path / 'tiny')}"]
    experiment = load("vision/detection", given).experiment
    size = (experiment.data.image_size[0], experiment.data.image_size[1])
    model = DETECTORS.build(experiment.model, image_size=size, channels=3, classes=2, mean=[127.0] * 3, std=[60.0] * 3,
                            facts=pretrained.learn(experiment.model))
    assert model.output_shape == (None, sum(size[0] * size[1] // stride**2 for stride in (8, 16, 32)), 4 + 2)


def test_the_shipped_model_of_instances(tmp_path):
    given = [f"data.path={tmp_path}", f"model.preset={tiny.pyramid(tmp_path / 'tiny')}"]
    experiment = load("vision/instances", given).experiment
    model = INSTANCES.build(experiment.model, image_size=(256, 256), channels=3, classes=1, mean=[127.0] * 3, std=[60.0] * 3,
                            facts=pretrained.learn(experiment.model))
    places = sum((256 // stride) ** 2 for stride in (8, 16, 32))
    assert {name: one.shape for name, one in model.output.items()} == {
        "places": (None, places, 5), "controls": (None, places, 169), "features": (None, 64, 64, 8)}


def test_the_shipped_experiment_that_is_used_as_it_is():
    experiment = load("vision/yolox").experiment
    assert experiment.untrained and experiment.data.source == "none"


def test_the_shipped_segmenter(tmp_path):
    given = [f"data.path={tmp_path}", f"model.preset={tiny.pyramid(tmp_path / 'tiny')}"]
    experiment = load("vision/segmentation", given).experiment
    model = SEGMENTERS.build(experiment.model, image_size=(90, 122), channels=3, classes=4, mean=[127.0] * 3, std=[60.0] * 3,
                             facts=pretrained.learn(experiment.model))
    assert model.output_shape == (None, 90, 122, 4)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in ("detection", "instances", "segmentation", "yolox")])
def test_a_shipped_experiment(name, tmp_path):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert text.startswith("# ") and f"\n#   python -m vision.train vision/{name}" in text
    given = [f"data.path={tmp_path}"] if name in OWN_DATA else []
    experiment = load(f"vision/{name}", given).experiment
    size, channels, classes = next(shape for prefix, shape in SHAPES.items() if name.startswith(prefix))
    assert experiment.data.image_size in (None, size)
    if name not in BUILT:
        return
    facts = {}
    if isinstance(experiment.model, Pretrained):
        experiment = load(f"vision/{name}", [*given, f"model.preset={tiny.efficientnet(tmp_path / 'tiny')}"]).experiment
        facts = pretrained.learn(experiment.model)
    model = models.build(experiment.model, image_size=(size, size), channels=channels, classes=classes, mean=[127.0] * channels,
                         std=[60.0] * channels, facts=facts)
    assert model.output_shape == (None, classes)


def test_folder_asks_for_its_path():
    with pytest.raises(ConfigError, match=r"data\.path"):
        load("vision/folder")
