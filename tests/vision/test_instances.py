"""Things with a mask each: how masks are read, drawn by networks of their own, judged as pycocotools does it, and answered."""

import contextlib
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pycocotools import mask as coco_masks

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.config.load import from_text
from vision import new
from vision.check import CHECKS
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.data.instances import things
from vision.data.instances.open import open_instances
from vision.models.detector import cells, count_weights
from vision.outputs import instance_metrics, mask_network
from vision.outputs.instance_metrics import PIXEL, JudgedThings, panoptic_quality, panoptic_sums
from vision.settings import InstanceData
from vision.tasks.instances import InstanceSegmentation

from .boxed_pictures import made, masks, numbered, outlines

SIZE = (64, 96)
TEXT = """
task: vision.instances
data: {{source: masks, path: {path}, validation: 0.2, test: 0.2, image_size: [64, 96]{more}}}
model: {{name: small, widths: [8, 8, 16, 16, 16], width: 8, depth: 1}}
"""


def experiment(path, more=""):
    return from_text(TEXT.format(path=path, more=more)).experiment


# ---- how masks are read


SQUARE = np.array([[2, 2], [12, 2], [12, 10], [2, 10]], np.float32)
INNER = np.array([[4, 4], [8, 4], [8, 8], [4, 8]], np.float32)


def test_of_what_several_claim_the_smallest_has_it():
    for order in ((SQUARE, INNER), (INNER, SQUARE)):
        numbers, wrong = things.draw_numbers([[one] for one in order], (20, 30))
        small, large = (2, 1) if order[0] is SQUARE else (1, 2)
        assert not wrong and (numbers[4:8, 4:8] == small).all() and (numbers == large).sum() == 80 - 16


@pytest.mark.parametrize("written", ["polygon", "numbers", "string"])
def test_polygons_and_runs_are_those_of_pycocotools(written):
    polygon = np.random.default_rng(0).uniform(0, 20, (7, 2)).astype(np.float32)
    coded = coco_masks.merge(coco_masks.frPyObjects([polygon.ravel().tolist()], 20, 30))
    true = coco_masks.decode(coded).astype(bool)
    outline = {"polygon": [polygon], "string": {"size": [20, 30], "counts": coded["counts"].decode()},
               "numbers": {"size": [20, 30], "counts": things.unpack_runs(coded["counts"])}}[written]
    numbers, wrong = things.draw_numbers([outline], (20, 30))
    assert not wrong and true.any()
    np.testing.assert_array_equal(numbers > 0, true)


@pytest.mark.parametrize(("outline", "says"), [
    ([SQUARE[:2]], "three points"), ([], "no outline"), ([SQUARE * np.nan], "no polygon"),
    ({"size": [20, 30], "counts": [10, 20]}, "do not fill 20 x 30"),
    ({"size": [20, 30], "counts": [0, 10**18, -(10**18), 600]}, "do not fill"),
    ({"size": [30, 20], "counts": [600]}, "30 x 20 px, its picture 20 x 30"), ({"size": [20, 30], "counts": "~~~~"}, "no string of COCO"),
    ({"size": [20, 30], "counts": "oooooooooooooooo0"}, "no string of COCO"), ({"size": [20, 30]}, "has no 'counts'")])
def test_an_outline_that_is_none_is_said(outline, says):
    numbers, wrong = things.draw_numbers([outline, [SQUARE]], (20, 30))
    assert says in wrong[0] and list(wrong) == [0] and set(np.unique(numbers)) == {0, 2}


def test_a_polygon_of_a_million_points():
    turn = np.linspace(0, 2 * np.pi, 1_000_000, endpoint=False)
    numbers, wrong = things.draw_numbers([[(10 + 8 * np.stack([np.cos(turn), np.sin(turn)], 1)).astype(np.float32)]], (20, 30))
    assert not wrong and abs((numbers > 0).sum() - np.pi * 64) < 15


@pytest.mark.parametrize("mode", ["L", "I;16", "P", "RGB"])
def test_masks_of_every_kind_number_things(tmp_path, mode):
    own = np.array([[0, 0, 7, 7], [3, 3, 0, 9]])
    wide = own * 50 if mode == "I;16" else own
    values = np.stack([wide, wide * 2, wide], -1) if mode == "RGB" else wide
    image = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.uint8))
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    image.save(tmp_path / "a.png")
    assert things.read_numbers(tmp_path / "a.png", (2, 4), []).tolist() == [[0, 0, 2, 2], [1, 1, 0, 3]]
    void = [[9, 18, 9]] if mode == "RGB" else [9 * (50 if mode == "I;16" else 1)] if mode != "I;16" else []
    if void:
        assert things.read_numbers(tmp_path / "a.png", (2, 4), void).max() == 2


def test_boxes_are_those_of_the_pixels():
    numbers = things.draw_numbers([[SQUARE], [INNER]], (20, 30))[0]
    assert things.boxes_of(numbers).tolist() == [[2, 2, 12, 10], [4, 4, 8, 8]]
    assert things.boxes_of(things.keep_things(numbers, np.array([False, True]))).tolist() == [[4, 4, 8, 8]]


def opened(source, path, **more):
    return open_instances(InstanceData(source=source, path=str(path), image_size=list(SIZE), **more))


@pytest.mark.parametrize("source", ["masks", "coco", "yolo", "labelme"])
def test_every_form_gives_the_same_things(tmp_path, source):
    pictures = made(6)
    folder = masks(pictures, tmp_path) if source == "masks" else outlines(pictures, tmp_path, source)
    found = opened(source, folder)
    split = found.load("all")
    for number, one in enumerate(pictures):
        assert split.name(number).endswith(one.name)
        stored = np.asarray(Image.open(io.BytesIO(split.fields[THINGS][number])))
        boxes = split.fields[BOXES][number][split.fields[CLASSES][number] >= 0]
        np.testing.assert_array_equal(stored > 0, numbered(one) > 0)
        np.testing.assert_allclose(boxes, things.boxes_of(stored), atol=0.01)
    assert found.classes == (["thing"] if source == "masks" else ["bright", "dark"])
    raw = {name: value[0] for name, value in split.gather(tf.constant([0], tf.int64)).items()}
    assert raw[THINGS].dtype == tf.string and split.fingerprint() == opened(source, folder).load("all").fingerprint()


def test_a_file_for_each_thing(tmp_path):
    pictures = made(6)
    masks(pictures, tmp_path / "all")
    for one in pictures:
        folder = tmp_path / "each" / one.name[:3]
        (folder / "images").mkdir(parents=True)
        (folder / "masks").mkdir()
        (tmp_path / "all" / "images" / one.name).rename(folder / "images" / one.name)
        for number in range(1, len(one.boxes) + 1):
            Image.fromarray(np.where(numbered(one) == number, 255, 0).astype(np.uint8)).save(folder / "masks" / f"{number}.png")
    split = opened("masks", tmp_path / "each").load("all")
    for number, one in enumerate(pictures):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(split.fields[THINGS][number]))), numbered(one))
    assert "task: vision.instances" in new.draft(tmp_path / "each", Asked(encoder="none")).body


def test_a_mask_that_cannot_be_used(tmp_path):
    masks(made(6), tmp_path)
    Image.new("L", (5, 5)).save(tmp_path / "masks" / "002.png")
    with pytest.raises(DataError, match=r"002\.png: the mask has 5 x 5 px, its picture 64 x 96"):
        opened("masks", tmp_path)
    found = opened("masks", tmp_path, on_bad_example="skip", most_skipped=0.9)
    things_left = int((found.load("all").fields[CLASSES] >= 0).sum())
    assert len(found.load("all")) == 5 and f"left out: 1 of {1 + things_left}, such as" in " ".join(found.notes)


def test_an_annotation_without_an_outline(tmp_path):
    outlines(made(6), tmp_path, "coco")
    file = tmp_path / "instances_all.json"
    content = json.loads(file.read_text())
    content["annotations"][3].pop("segmentation")
    content["annotations"][3]["bbox"] = [1, 1, 5, 5]
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="id 4: has no segmentation"):
        opened("coco", tmp_path)


# ---- drawing


def test_a_network_draws_each_pixel_as_three_layers_would():
    draw = np.random.default_rng(0)
    features, controls = draw.normal(size=(2, 3, 4, 5)).astype(np.float32), draw.normal(size=(2, 6, count_weights(5))).astype(np.float32)
    middles, strides = draw.uniform(0, 16, (2, 6, 2)).astype(np.float32), np.full((2, 6, 1), 8, np.float32)
    given = mask_network.logits(*map(tf.constant, (features, controls, middles, strides)), 4).numpy()
    first, bias, second, bias2, third, bias3 = np.split(controls[1, 2], np.cumsum([35, 5, 25, 5, 5]))
    for row, column in ((0, 0), (2, 3)):
        place = (np.array([column, row]) + 0.5) * 4
        x = np.concatenate([features[1, row, column], (place - middles[1, 2]) / (mask_network.REACH * 8)])
        x = np.maximum(x @ first.reshape(7, 5) + bias, 0)
        x = np.maximum(x @ second.reshape(5, 5) + bias2, 0)
        assert given[1, 2, row, column] == pytest.approx(float(x @ third + bias3[0]), abs=1e-5)


def test_masks_are_enlarged_as_tensorflow_enlarges_pictures():
    given = np.random.default_rng(0).normal(size=(2, 3, 5, 7)).astype(np.float32)
    for size in ((10, 14), (20, 21), (5, 7)):
        known = tf.image.resize(given.reshape(6, 5, 7, 1), size).numpy().reshape(2, 3, *size)
        np.testing.assert_allclose(mask_network.enlarge(tf.constant(given), size), known, atol=1e-5)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("instances")
    masks(made(28), folder)
    known = experiment(folder)
    splits = InstanceSegmentation(known).splits()
    return InstanceSegmentation(known, splits.facts), splits


def batch_of(task, count=4):
    made_task, splits = task
    raw = splits.train.gather(tf.range(count, dtype=tf.int64))
    each = [made_task.input.decode({name: value[number] for name, value in raw.items()}) for number in range(count)]
    return {name: tf.stack([one[name] for one in each]) for name in each[0]}


def test_masks_move_with_their_picture(task):
    made_task, _ = task
    batch = batch_of(task)
    keys = tf.constant(np.random.default_rng(0).integers(0, 2**31, (4, 2)), tf.int32)
    known = from_text(TEXT.format(path=made_task.experiment.data.path, more="") + "augment: {flip: true, scale: [0.7, 1.4]}\n").experiment
    augmented = InstanceSegmentation(known, made_task.facts)
    _, targets = augmented.prepare(batch, keys=keys, seed=tf.constant([1, 2]), epoch=tf.constant(0, tf.int64))
    for boxes, classes, map_ in zip(*(targets[name].numpy() for name in (BOXES, CLASSES, THINGS))):
        for number in np.flatnonzero(classes >= 0):
            rows, columns = np.nonzero(map_ == number + 1)
            around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(around, boxes[number], atol=1.01)


def test_four_pictures_in_one_with_what_lies_in_them(task):
    made_task, _ = task
    text = TEXT.format(path=made_task.experiment.data.path, more="") + "augment: {mosaic: 0.7, flip: true, scale: [0.8, 1.4]}\n"
    augmented, batch = InstanceSegmentation(from_text(text).experiment, made_task.facts), batch_of(task, 16)
    keys = tf.constant(np.random.default_rng(3).integers(0, 2**31, (16, 2)), tf.int32)
    how = {"seed": tf.constant([1, 2]), "epoch": tf.constant(0, tf.int64)}
    images, targets = augmented.prepare(batch, keys=keys, **how)
    mixed = 0
    for image, boxes, classes, map_ in zip(images.numpy(), *(targets[name].numpy() for name in (BOXES, CLASSES, THINGS))):
        there = np.flatnonzero(classes >= 0)
        mixed += there.max() >= len(classes) // 4
        for number in there:
            rows, columns = np.nonzero(map_ == number + 1)
            np.testing.assert_allclose([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], boxes[number], atol=1.01)
            inner = map_ == number + 1
            assert abs(image[inner].mean() - 128) > 60  # bright or dark, on a grey ground
    assert 5 <= mixed <= 15  # the others stand alone
    for part in (slice(0, 8), slice(8, 16)):  # as the parts of two devices
        mine, _ = augmented.prepare({name: value[part] for name, value in batch.items()}, keys=keys[part], **how)
        np.testing.assert_array_equal(mine, images[part])


def known_outputs(task, batch):
    """What a model would give whose places know their boxes and masks: features are the numbers of things as one of eight."""
    made_task, _ = task
    targets = made_task.output.targets(batch)
    middles, _ = cells(SIZE)
    places = np.full((len(batch["image"]), len(middles), 5), -8.0, np.float32)
    places[..., :4] = np.concatenate([middles - 5, middles + 5], 1)
    controls = np.zeros((*places.shape[:2], count_weights(8)), np.float32)
    for picture, (boxes, classes) in enumerate(zip(targets[BOXES].numpy(), targets[CLASSES].numpy())):
        for number in np.flatnonzero(classes >= 0):
            inside = ((middles > boxes[number, :2]) & (middles < boxes[number, 2:])).all(1)
            places[picture, inside, :4], places[picture, inside, 4] = boxes[number], 8.0
            weights = np.zeros((10, 8), np.float32)
            weights[number, 0] = 1.0  # the first channel is this thing's
            second = np.zeros((8, 8), np.float32)
            second[0, 0] = 1.0
            third = np.zeros(8, np.float32)
            third[0] = 20.0
            controls[picture, inside] = np.concatenate([weights.ravel(), np.zeros(8), second.ravel(), np.zeros(8), third, [-10.0]])
    numbers = tf.one_hot(targets[THINGS] - 1, 8)
    return {"places": tf.constant(places), "controls": tf.constant(controls), "features": tf.nn.avg_pool2d(numbers, 4, 4, "VALID")}, targets


def test_who_knows_has_little_loss_and_answers_what_is_there(task):
    made_task, _ = task
    batch = batch_of(task)
    outputs, targets = known_outputs(task, batch)
    good, count = made_task.output.loss(outputs, targets, True)
    other = {**outputs, "controls": -outputs["controls"]}
    bad, _ = made_task.output.loss(other, targets, True)
    assert (bad > good + 1.5 * count).numpy().all()  # of each thing nearly 1 of Dice, times the weight
    given = made_task.output.answer(lambda _: outputs, batch["image"])
    true = targets[THINGS].numpy()
    assert ((given[THINGS].numpy() > 0) == (true > 0)).mean() > 0.97
    answers, kept = made_task.output.condense({**{name: value.numpy() for name, value in given.items()}, "place": batch["place"].numpy()},
                                              {name: value.numpy() for name, value in targets.items()})
    found = made_task.output.judged(answers, kept).metrics()
    assert found["ap50"] == pytest.approx(1.0) and found["ap"] > 0.6


def test_things_that_are_not_given_are_not_in_the_picture_either(task):
    made_task, _ = task
    numbers = np.zeros((1, *SIZE), np.int32)
    numbers[0, :20, :20], numbers[0, 30:50, 30:60] = 1, 2
    scores = np.zeros((1, 100), np.float32)
    scores[0, :2] = 0.4, 0.3
    boxes = np.zeros((1, 100, 4), np.float32)
    boxes[0, :2] = [0, 0, 20, 20], [30, 30, 60, 50]
    made_task.facts["thresholds"] = [0.35]
    place = tf.constant([[[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]])
    try:
        said = made_task.output.respond({BOXES: tf.constant(boxes), "scores": tf.constant(scores), CLASSES: tf.zeros([1, 100], tf.int32),
                                         THINGS: tf.constant(numbers), "sent": tf.constant([[128, 192]]), "place": place})
    finally:
        del made_task.facts["thresholds"]
    mask = np.asarray(Image.open(io.BytesIO(said["mask"].numpy()[0])))
    assert said["count"].numpy() == [1] and mask.shape == (128, 192)
    assert (mask[:40, :40] == 1).all() and mask.sum() == 1600
    assert np.asarray(Image.open(io.BytesIO(said["overlay"].numpy()[0])))[..., 3].astype(bool).sum() == 1600


# ---- judging


def random_things(pictures=12, size=(40, 50), seed=0):
    draw = np.random.default_rng(seed)

    def side(shift):
        maps, classes = np.zeros((pictures, *size), np.uint16), np.full((pictures, 6), -1)
        for picture in range(pictures):
            own = np.random.default_rng(picture)
            for number in range(own.integers(1, 7)):
                row, column, tall, wide = own.integers(0, 30), own.integers(0, 40), own.integers(4, 14), own.integers(4, 14)
                row, column = np.maximum(0, np.array([row, column]) + draw.integers(-shift, shift + 1, 2))
                maps[picture, row:row + tall, column:column + wide] = number + 1
                classes[picture, number] = own.integers(0, 2)
        return maps, classes

    true, given = side(0), side(2)
    empty = {BOXES: np.zeros((pictures, 6, 4), np.float32)}
    scores = np.where(given[1] >= 0, draw.uniform(0.1, 1, given[1].shape), 0)
    answers = {**empty, THINGS: given[0], CLASSES: np.maximum(given[1], 0), "scores": scores, PIXEL: np.ones(pictures)}
    return answers, {**empty, THINGS: true[0], CLASSES: true[1]}


def summary(answers, targets):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def coded(map_, number):
        return coco_masks.encode(np.asfortranarray((map_ == number + 1).astype(np.uint8)))

    rows = [{"image_id": picture, "category_id": int(targets[CLASSES][picture, number]) + 1, "iscrowd": 0,
             "segmentation": coded(map_, number), "area": float((map_ == number + 1).sum()), "bbox": [0, 0, 1, 1]}
            for picture, map_ in enumerate(targets[THINGS]) for number in np.flatnonzero(targets[CLASSES][picture] >= 0)]
    found = [{"image_id": picture, "category_id": int(answers[CLASSES][picture, number]) + 1, "segmentation": coded(map_, number),
              "score": float(answers["scores"][picture, number])}
             for picture, map_ in enumerate(answers[THINGS]) for number in np.flatnonzero(answers["scores"][picture] > 0)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"info": {}, "images": [{"id": number, "height": 40, "width": 50} for number in range(len(targets[THINGS]))],
                         "annotations": [{**one, "id": number} for number, one in enumerate(rows, 1)],
                         "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}
        truth.createIndex()
        judged = COCOeval(truth, truth.loadRes(found), "segm")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return judged.stats[:3]


def test_the_measures_are_those_of_pycocotools():
    answers, targets = random_things()
    found = JudgedThings(answers, targets, ["a", "b"]).metrics()
    np.testing.assert_allclose([found[name] for name in ("ap", "ap50", "ap75")], summary(answers, targets), atol=1e-6)
    assert 0.1 < found["ap"] < found["ap50"] < 0.98


def test_runs_are_those_of_each_thing_alone():
    map_ = random_things()[0][THINGS][3]
    for number, counts in instance_metrics.runs(map_).items():
        filled = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(map_.T.shape).T
        np.testing.assert_array_equal(filled, map_ == number)


def test_panoptic_quality_by_hand():
    true, given = np.zeros((1, 10, 10), np.uint16), np.zeros((1, 10, 10), np.uint16)
    true[0, :4, :4], true[0, 6:, 6:] = 1, 2
    given[0, :4, :5], given[0, 6:, 6:], given[0, :2, 8:] = 1, 2, 3
    answers = {THINGS: given, CLASSES: np.array([[0, 1, 0]]), "scores": np.array([[0.9, 0.9, 0.2]])}
    targets = {THINGS: true, CLASSES: np.array([[0, 0, -1]])}
    sums = panoptic_sums(answers, targets, [0.1, 0.1])
    assert sums[0].tolist() == [[0.8, 1, 1, 1], [0, 0, 1, 0]]
    assert panoptic_quality(sums.reshape(1, -1), 2).tolist() == [pytest.approx((0.8 / 2 + 0) / 2)]
    assert panoptic_sums(answers, targets, [0.5, 0.1])[0, 0].tolist() == [0.8, 1, 0, 1]  # the third is not given then


# ---- from data to an experiment


@pytest.mark.parametrize("source", ["masks", "coco"])
def test_new_and_check(tmp_path, source):
    pictures = made(12)
    folder = masks(pictures, tmp_path) if source == "masks" else outlines(pictures, tmp_path, source)
    asked = Asked(task="instances" if source == "coco" else None, encoder="none")
    drafted = new.draft(folder, asked)
    known = from_text(drafted.body).experiment
    assert known.task == "vision.instances" and known.data.source == source
    assert sum(len(one.boxes) for one in pictures) == int(drafted.found[0].split(": ")[2].split()[0])
    result = CHECKS["vision.instances"](known)
    assert not result.failed and result.pictures["examples.png"]


def test_boxes_alone_are_no_instances(tmp_path):
    from .boxed_pictures import voc

    with pytest.raises(DataError, match="no outlines; --task detection"):
        new.draft(voc(made(6), tmp_path), Asked(task="instances", encoder="none"))


