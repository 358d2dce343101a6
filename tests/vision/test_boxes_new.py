"""`quartet new` and `quartet check` on pictures with boxes."""

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.config.draft import look
from pipelines.config.load import from_text
from tests.vision import boxed_pictures
from tests.vision.boxed_pictures import made
from vision.check import CHECKS
from vision.new_boxes import picture_size


def drafted(path, **asked):
    text = look("vision", str(path), file="experiment.yaml", encoder="none", **asked).text()
    return text, from_text(text, file="experiment.yaml").experiment


@pytest.mark.parametrize("form", ["voc", "coco", "yolo", "labelme", "cvat", "table"])
def test_the_form_of_boxes_is_found(form, tmp_path):
    getattr(boxed_pictures, form)(made(24), tmp_path)
    text, experiment = drafted(tmp_path)
    assert experiment.task == "vision.detection" and experiment.data.source == form and experiment.model.name == "small"
    assert experiment.data.image_size == [64, 96] and experiment.data.on_bad_example == "stop" and "2 classes: " in text
    assert experiment.data.resize == "squash" and (experiment.data.validation, experiment.data.test) == (0.15, 0.2)


def test_bad_boxes_are_said_and_left_out(tmp_path):
    path = boxed_pictures.table(made(24), tmp_path)
    path.write_text(path.read_text() + "001.png,7,7,7,20,dark\n")
    text, experiment = drafted(path)
    assert experiment.data.on_bad_example == "skip" and "Boxes left out: 1 of" in text and "empty" in text


def test_the_data_s_own_splits_are_taken(tmp_path):
    boxed_pictures.voc(made(24), tmp_path, train=slice(0, 12), val=slice(12, 18), test=slice(18, 24))
    _, experiment = drafted(tmp_path)
    assert (experiment.data.validation, experiment.data.test) == ("val", "test")


def test_detection_is_asked_for_where_there_are_no_boxes(tmp_path):
    boxed_pictures.draw(made(1)[0], tmp_path / "a" / "a.png")
    with pytest.raises(DataError, match="holds no boxes"):
        drafted(tmp_path, task="detection")


def test_classes_are_asked_for_where_there_are_boxes(tmp_path):
    boxed_pictures.voc(made(12), tmp_path)
    with pytest.raises(DataError, match="--task detection finds such things"):
        drafted(tmp_path, task="classification")


def test_sizes_that_a_detector_sees():
    same = np.full((10, 2), (480.0, 640.0))
    assert picture_size(same, 60.0) == ((320, 416), True)
    small, _ = picture_size(same, 12.0)
    assert small[0] * small[1] > 2 * 320 * 416  # small things need more pixels, though never more than there are
    assert small <= (480, 640)
    assert picture_size(np.array([(480.0, 640.0), (640.0, 480.0)]), 60.0)[1] is False


def checked(path, **data):
    lines = [f"  {name}: {value}" for name, value in {"source": "table", "path": path, "image_size": "[64, 96]", **data}.items()]
    text = "\n".join(["task: vision.detection", "data:", *lines, "model: {name: small}"])
    return CHECKS["vision.detection"](from_text(text, file="a.yaml").experiment)


def test_check_names_bad_boxes_and_counts_the_rest(tmp_path):
    path = boxed_pictures.table(made(24), tmp_path)
    rows = len(path.read_text().splitlines())
    path.write_text(path.read_text() + "001.png,7,7,7,20,dark\n002.png,30,7,7,20,dark\n003.png,,,,,\n")
    result = checked(path)
    assert result.failed
    [finding] = [one for one in result.findings if one.level == "error"]
    assert finding.text.startswith("2 boxes or pictures cannot be used")
    assert f"line {rows + 1}" in finding.details[0] and "empty" in finding.details[0] and "flipped" in finding.details[1]
    again = checked(path, on_bad_example="skip")
    assert not again.failed and any(one.level == "warning" and "left out" in one.text for one in again.findings)
    counted = sum(sum(split["classes"].values()) for split in again.splits.values())
    assert counted == sum(len(one.boxes) for one in made(24))
