"""Boxes that were found, as files that others read: what this project's own readers find in them again, and what is drawn."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.vision.boxed_pictures import NAMES, draw, made
from vision.data.boxes import coco, yolo
from vision.outputs import answer_files


@pytest.fixture
def answered(tmp_path):
    """A folder with `images`, (file, answer) of each, and the pictures; the last has nothing."""
    pictures = made(5, most=3)
    pictures[-1].boxes, pictures[-1].labels = [], []
    answers = []
    for one in pictures:
        file = tmp_path / "images" / one.name
        draw(one, file)
        answers.append((str(file), {"boxes": np.array(one.boxes, np.float32).reshape(-1, 4), "labels": one.labels,
                                    "scores": np.linspace(0.9, 0.5, len(one.boxes))}))
    return tmp_path, answers, pictures


def test_coco(answered):
    folder, answers, pictures = answered
    ((_, content),) = answer_files.coco(answers, NAMES)
    (folder / "instances_all.json").write_bytes(content)
    written = json.loads(content)
    assert [image["id"] for image in written["images"]] == [0, 1, 2, 3, 4]  # their names are numbers
    assert written["images"][0]["width"] == 96 and written["annotations"][0]["score"] == 0.9
    _same(coco.read(folder), pictures)


def test_yolo(answered):
    folder, answers, pictures = answered
    (folder / "labels").mkdir()
    for name, content in answer_files.yolo(answers, NAMES):
        (folder / ("labels" if name != "classes.txt" else "") / name).write_bytes(
            content if name == "classes.txt" else _without_scores(content))
    assert (folder / "labels" / "004.txt").read_bytes() == b""  # looked at, and nothing there
    _same(yolo.read(folder), pictures)


def _without_scores(content: bytes) -> bytes:
    return b"".join(line.rsplit(b" ", 1)[0] + b"\n" for line in content.splitlines())


def _same(found, pictures):
    (all_of_them,) = found.splits.values()
    read = {Path(one.file).name: one for one in all_of_them}
    assert set(read) == {one.name for one in pictures}
    for one in pictures:
        there, (height, width) = read[one.name], one.size
        assert there.labels == one.labels
        boxes = there.boxes * (width, height, width, height) if there.relative else there.boxes
        np.testing.assert_allclose(boxes, np.array(one.boxes, np.float64).reshape(-1, 4), atol=0.01)


def test_boxes_are_drawn_in_the_picture_upright(tmp_path):
    file = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right
    Image.new("RGB", (640, 320), "white").save(file, exif=exif)
    found = {"boxes": [[40, 160, 240, 480]], "labels": ["dark"], "scores": [0.5]}
    image = Image.open(io.BytesIO(answer_files.draw_boxes(str(file), found, NAMES)))
    pixels = np.asarray(image.convert("RGB")).astype(int)
    assert image.size == (320, 640) and image.format == "PNG"
    colour = pixels[479, 80]
    assert np.ptp(colour) > 50  # a tint, on white
    assert (pixels[479, 45:235] == colour).all() and (pixels[200:479, 239] == colour).all() and (pixels[320, 60:220] > 240).all()
    Image.new("RGB", (100, 50), "white").save(file)
    assert Image.open(io.BytesIO(answer_files.draw_boxes(str(file), found, NAMES))).size == (600, 300)  # six times as large

