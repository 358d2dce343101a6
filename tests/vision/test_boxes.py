"""Detectors: places, assignment, loss, suppression, and COCO's measures as pycocotools has them."""

import contextlib
import io
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.task.units import EXAMPLES
from vision.models import detector, segmenter, tiles, yolox
from vision.outputs import box_errors, box_loss, suppression
from vision.outputs.box_metrics import Judged
from vision.outputs.boxes import Boxes
from vision.settings import BoxEvaluate, BoxLoss, SmallDetector, SmallSegmenter

SIZE, STRIDES = (64, 96), (8, 16, 32)
WHERE = box_loss.Places(*detector.cells(SIZE))


def outputs_for(boxes, classes, count, sure=8.0):
    """What a detector would give whose every place knows the box around it, [1, A, 4 + count]."""
    outputs = np.full((1, len(WHERE.middles), 4 + count), -sure, np.float32)
    outputs[0, :, :4] = np.concatenate([WHERE.middles - 0.7 * WHERE.strides, WHERE.middles + 0.7 * WHERE.strides], 1)
    for box, label in zip(boxes, classes):
        inside = ((WHERE.middles > box[:2]) & (WHERE.middles < box[2:])).all(1)
        outputs[0, inside, :4] = box
        outputs[0, inside, 4 + label] = sure
    return outputs


BOXES = np.array([[4, 6, 40, 38], [50, 20, 90, 60]], np.float32)


def output(**settings):
    facts = {"classes": ["a", "b"], "image_size": list(SIZE)}
    experiment = SimpleNamespace(evaluate=BoxEvaluate(**settings), loss=BoxLoss(), model=None)
    made = Boxes(SimpleNamespace(experiment=experiment, facts=facts, input=SimpleNamespace(image_size=SIZE)))
    return made


def test_places_are_the_middles_of_cells():
    assert len(WHERE.middles) == 8 * 12 + 4 * 6 + 2 * 3
    assert WHERE.middles[:2].tolist() == [[4, 4], [12, 4]] and WHERE.middles[-1].tolist() == [80, 48]


def test_overlaps():
    first, second = tf.constant([[0.0, 0, 10, 10], [0, 0, 2, 2]]), tf.constant([[5.0, 0, 15, 10], [4, 4, 6, 6]])
    np.testing.assert_allclose(box_loss.overlaps(first, second), [1 / 3, 0], atol=1e-6)
    np.testing.assert_allclose(box_loss.generalised_overlaps(first, second), [1 / 3, -(36 - 8) / 36], atol=1e-6)


def test_a_detector_that_knows_has_next_to_no_loss_and_its_own_places_learn_each_box():
    outputs = tf.constant(outputs_for(BOXES, [0, 1], 2))
    classes = tf.constant([[0, 1, -1]])
    boxes = tf.constant(np.concatenate([BOXES, [[1, 1, 90, 60]]])[None].astype(np.float32))
    found = box_loss.assigned(tf.nn.sigmoid(outputs[..., 4:]), outputs[..., :4], boxes, classes, WHERE, 5)
    learns = found.quality.numpy()[0] > 0.5
    inside = [((WHERE.middles > box[:2]) & (WHERE.middles < box[2:])).all(1) for box in BOXES]
    assert learns.sum() >= 10 and not learns[~(inside[0] | inside[1])].any()
    assert (found.class_number.numpy()[0][learns] == np.where(inside[0][learns], 0, 1)).all()
    wrong = tf.constant(outputs_for(BOXES, [1, 0], 2))
    good, bad = (float(box_loss.losses(one, boxes, classes, WHERE, most=5, weight=2.0)[0][0]) for one in (outputs, wrong))
    assert bad > 2 * good


def test_a_box_that_no_place_lies_in_is_learned_by_the_next_one():
    tiny = tf.constant([[[9.0, 9, 11, 11]]])
    raw = detector.DistancesToSides(SIZE)(tf.zeros([1, len(WHERE.middles), 6]))
    found = box_loss.assigned(tf.nn.sigmoid(raw[..., 4:]), raw[..., :4], tiny, tf.constant([[0]]), WHERE, 10)
    assert tf.reduce_sum(tf.cast(found.quality > 0, tf.int32)) >= 1


def test_padding_and_the_other_pictures_of_a_batch_change_no_loss():
    raw = tf.constant(np.random.default_rng(0).normal(size=(2, len(WHERE.middles), 6)).astype(np.float32))
    boxes, classes = tf.constant(np.stack([BOXES, BOXES + 2])), tf.constant([[0, 1], [1, 1]])
    whole, _ = box_loss.losses(raw, boxes, classes, WHERE, most=10, weight=2.0)
    wide, _ = box_loss.losses(raw[:1], tf.pad(boxes[:1], [[0, 0], [0, 7], [0, 0]]),
                              tf.pad(classes[:1], [[0, 0], [0, 7]], constant_values=-1), WHERE, most=10, weight=2.0)
    np.testing.assert_allclose(whole[:1], wide, rtol=1e-5)


@pytest.mark.parametrize("last", [detector.DistancesToSides(SIZE), yolox.MiddlesAndSides([(8, 12), (4, 6), (2, 3)])])
def test_the_gradient_is_finite_where_nothing_is_there(last):
    raw = tf.zeros([1, len(WHERE.middles), 7])
    with tf.GradientTape() as tape:
        tape.watch(raw)
        loss, _ = box_loss.losses(last(raw), tf.zeros([1, 3, 4]), tf.fill([1, 3], -1), WHERE, most=10, weight=2.0)
    assert np.isfinite(tape.gradient(loss, raw).numpy()).all() and float(loss[0]) > 0


def test_answers_are_suppressed_within_a_class_and_given_in_pixels_as_sent():
    made = output(boxes=7)
    made.facts["thresholds"] = [0.5, 0.9999]
    both = outputs_for(BOXES, [0, 1], 2)
    given = made.answer(lambda images: tf.constant(both), tf.zeros([1, *SIZE, 3]))
    assert given["scores"].shape == (1, 7) and (given["scores"].numpy()[0] > 0.1).sum() == 2
    given |= {"sent": tf.constant([[128, 192]]), "place": tf.constant([[[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]])}
    said = {name: value.numpy()[0] for name, value in made.respond(given).items()}
    assert said["count"] == 1 and said["labels"].tolist() == [b"a"] + [b""] * 6  # the other class is not sure enough
    np.testing.assert_allclose(said["boxes"][0], BOXES[0] * 2, atol=0.1)
    assert not said["boxes"][1:].any() and not said["scores"][1:].any()


def test_the_mirror_image_is_answered_with_boxes_turned_back():
    both = outputs_for(BOXES, [0, 1], 2)
    mirrored = BOXES.copy()
    mirrored[:, [0, 2]] = SIZE[1] - BOXES[:, [2, 0]]
    views = iter([outputs_for([], [], 2), outputs_for(mirrored, [0, 1], 2)])  # only the mirror image is understood
    plain, turned = output().answer(lambda _: tf.constant(both), tf.zeros([1, *SIZE, 3])), output(flip=True).answer(
        lambda _: tf.constant(next(views)), tf.zeros([1, *SIZE, 3]))
    np.testing.assert_allclose(plain["boxes"][0, :2], turned["boxes"][0, :2], atol=0.1)


def test_boxes_that_augmentation_cuts_away_are_not_to_be_found():
    made = output()
    examples = {"boxes": tf.constant([[[0.0, 0, 20, 20], [80, 0, 96, 20], [0, 0, 0, 0]]]), "classes": tf.constant([[0, 1, -1]]),
                "place": tf.constant([[[1.0, 0, 0], [0, 1, 0]]])}
    moved = made.targets(examples, {"place": tf.constant([[[1.0, 0, 14], [0, 1, 0]]])})
    assert moved["classes"].numpy().tolist() == [[0, -1, -1]] and moved["boxes"][0, 0].numpy().tolist() == [14, 0, 34, 20]
    judged = made.targets(examples)
    assert judged["classes"].numpy().tolist() == [[0, 1, -1]]


def random_answers(pictures=40, most=30, count=3, seed=0):
    draw = np.random.default_rng(seed)
    true = draw.uniform(0, 300, (pictures, 8, 2))
    true = np.concatenate([true, true + draw.uniform(10, 150, (pictures, 8, 2))], -1)
    classes = draw.integers(-1, count, (pictures, 8))
    found = np.repeat(true, 4, 1)[:, :most] + draw.normal(0, 12, (pictures, most, 4))
    found = np.concatenate([found[..., :2], np.maximum(found[..., 2:], found[..., :2] + 1)], -1)
    scores = draw.uniform(0.01, 1, (pictures, most)) * (draw.random((pictures, most)) < 0.8)
    labels = np.where(draw.random((pictures, most)) < 0.8, np.repeat(classes, 4, 1)[:, :most], draw.integers(0, count, (pictures, most)))
    answers = {"boxes": found.astype(np.float32), "scores": scores.astype(np.float32), "classes": np.maximum(labels, 0)}
    return answers, {"boxes": true.astype(np.float32), "classes": classes}


def summary(answers, targets, names):
    """pycocotools' own summary of files written as its users write them."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    corners = lambda box: [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]  # noqa: E731
    annotations = [{"image_id": picture, "category_id": int(targets["classes"][picture, place]) + 1, "bbox": corners(box), "iscrowd": 0,
                    "area": float((box[2] - box[0]) * (box[3] - box[1]))}
                   for picture in range(len(targets["boxes"])) for place, box in enumerate(targets["boxes"][picture])
                   if targets["classes"][picture, place] >= 0]
    rows = [{"image_id": picture, "category_id": int(answers["classes"][picture, place]) + 1, "bbox": corners(box),
             "score": float(answers["scores"][picture, place])}
            for picture in range(len(answers["boxes"])) for place, box in enumerate(answers["boxes"][picture])
            if answers["scores"][picture, place] > 0]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"info": {}, "images": [{"id": number} for number in range(len(targets["boxes"]))],
                         "annotations": [{**one, "id": number} for number, one in enumerate(annotations, 1)],
                         "categories": [{"id": number, "name": name} for number, name in enumerate(names, 1)]}
        truth.createIndex()
        judged = COCOeval(truth, truth.loadRes(rows), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return judged.stats[:6]


def test_the_measures_are_those_of_pycocotools():
    answers, targets = random_answers()
    found = Judged(answers, targets, ["a", "b", "c"]).metrics()
    np.testing.assert_allclose(list(found.values()), summary(answers, targets, "abc"), atol=1e-6)
    assert 0.05 < found["ap"] < found["ap50"] < 0.95


def test_measures_of_some_pictures_are_those_of_these_alone():
    answers, targets = random_answers()
    some = np.array([3, 3, 17, 5, 30])
    chosen = ({name: value[some] for name, value in side.items()} for side in (answers, targets))
    alone = Judged(*chosen, ["a", "b", "c"]).metrics(sizes=False)
    of_all = Judged(answers, targets, ["a", "b", "c"]).metrics(some, sizes=False)
    assert alone == pytest.approx(of_all)


def test_intervals_thresholds_and_classes():
    answers, targets = random_answers()
    judged = Judged(answers, targets, ["a", "b", "c"])
    metrics = judged.with_intervals(100, EXAMPLES)
    assert metrics["ap"].low < metrics["ap"].value < metrics["ap"].high and metrics["ap"].n == 40
    limits = judged.thresholds()
    rows = judged.by_class(limits)
    f1 = lambda row: 2 * row["precision"] * row["recall"] / (row["precision"] + row["recall"])  # noqa: E731
    for label, row in enumerate(rows):
        assert row["boxes"] == (targets["classes"] == label).sum()
        others = [f1(judged.by_class([*limits[:label], other, *limits[label + 1:]])[label]) for other in (0.2, 0.5, 0.8)]
        assert f1(row) >= max(others)


def test_pictures_without_anything():
    empty = {"boxes": np.zeros((3, 5, 4), np.float32), "scores": np.zeros((3, 5), np.float32), "classes": np.zeros((3, 5), int)}
    answers, targets = random_answers(3)
    nothing = Judged(empty, targets, ["a", "b", "c"])
    assert nothing.metrics(sizes=False) == {"ap": 0, "ap50": 0, "ap75": 0} and nothing.thresholds() == [0.5] * 3
    none = Judged(answers, {**targets, "classes": np.full_like(targets["classes"], -1)}, ["a", "b", "c"])
    assert np.isnan(none.metrics(sizes=False)["ap"]) and none.by_picture([2.0] * 3).tolist() == pytest.approx([np.nan] * 3, nan_ok=True)


def test_a_detector_has_a_place_for_each_cell_and_says_which_sizes_it_takes():
    settings = SmallDetector(name="small", widths=[4, 4, 8, 8, 8], width=8, depth=1)
    common = {"channels": 3, "classes": 2, "mean": [120.0] * 3, "std": [60.0] * 3}
    model = detector.small(settings, image_size=SIZE, **common)
    found = model(tf.zeros([2, *SIZE, 3]))
    assert found.shape == (2, len(WHERE.middles), 6)
    assert float(tf.reduce_max(tf.nn.sigmoid(found[..., 4:]))) < 0.05
    with pytest.raises(ConfigError, match=r"set \[64, 96\]"):
        detector.small(settings, image_size=(60, 96), **common)


def test_mistakes_have_their_kinds_and_costs():
    true = {"boxes": np.array([[[0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60], [80, 0, 90, 10]]], np.float32),
            "classes": np.array([[0, 1, 0, 1]])}
    given = {"boxes": np.array([[[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [53, 53, 63, 63], [70, 70, 75, 75]]], np.float32),
             "classes": np.array([[0, 0, 0, 0, 1]]), "scores": np.array([[0.9, 0.8, 0.7, 0.6, 0.3]])}
    rows = {row["kind"]: row for row in box_errors.mistakes(given, true, [0.1, 0.5])}
    assert {kind: row["count"] for kind, row in rows.items()} == {
        "class": 1, "place": 1, "class and place": 0, "copy": 1, "ground": 0, "missed": 1}  # the ground's score is below its threshold
    # the first class has two true boxes, of which one is found first: 51 of 101 recalls have precision 1; the second has none
    assert rows["place"]["costs_ap50"] == pytest.approx(50 / 101 * (2 / 4) / 2)
    assert rows["class"]["costs_ap50"] == pytest.approx(51 / 101 / 2)
    assert rows["copy"]["costs_ap50"] == rows["ground"]["costs_ap50"] == 0.0 and rows["missed"]["costs_ap50"] == pytest.approx(0.0)


def test_the_precision_behind_the_costs_is_that_of_pycocotools():
    answers, targets = random_answers()
    judged = Judged(answers, targets, ["a", "b", "c"])
    kinds = [box_errors._sort_mistakes(answers, targets, picture, box_errors.overlaps_of_boxes(answers, targets, picture))
             for picture in range(40)]
    scores, labels = (np.concatenate([row[part] for row in kinds]) for part in (1, 2))
    right = np.concatenate([row[0] for row in kinds]) == ""
    true = np.bincount(targets["classes"][targets["classes"] >= 0], minlength=3)
    assert box_errors._mean_ap(scores, right, labels, true) == pytest.approx(judged.metrics(sizes=False)["ap50"], abs=2e-3)
    rows = box_errors.mistakes(answers, targets, judged.thresholds())
    assert all(row["costs_ap50"] >= -1e-9 for row in rows) and sum(row["count"] for row in rows) > 40


def test_suppression_leaves_what_tensorflow_leaves():
    draw = np.random.default_rng(1)
    middles, sides = draw.uniform(0, 60, (3, 200, 2)), draw.uniform(5, 40, (3, 200, 2))
    boxes = tf.constant(np.concatenate([middles, middles + sides], -1).astype(np.float32))
    chances = tf.constant(draw.uniform(0, 0.6, (3, 200, 4)).astype(np.float32) ** 2)
    known = tf.image.combined_non_max_suppression(boxes[:, :, None], chances, 40, 40, iou_threshold=0.5, score_threshold=0.01,
                                                  clip_boxes=False)
    for compiled in (False, True):
        kept = tf.function(lambda: suppression.suppress(boxes, chances, most=40, overlap=0.5, least=0.01), jit_compile=compiled)()
        np.testing.assert_allclose(kept.scores, known.nmsed_scores)
        np.testing.assert_array_equal(kept.classes, known.nmsed_classes)
        np.testing.assert_allclose(tf.gather(boxes, kept.places, batch_dims=1), known.nmsed_boxes)


def test_few_places_are_padded_and_what_is_too_unsure_is_none():
    kept = suppression.suppress(tf.constant([[[0.0, 0, 5, 5], [20, 20, 30, 30]]]), tf.constant([[[0.4], [0.005]]]), most=5, overlap=0.5,
                                least=0.01)
    assert kept.scores.numpy().tolist() == [[pytest.approx(0.4), 0, 0, 0, 0]] and kept.places.numpy().tolist() == [[0] * 5]


# ---- tiles


def tiled(kind=SmallDetector, **more):
    return kind(name="small", widths=[4, 4, 8, 8, 8], tile=[64, 96], tile_overlap=0.25, **more)


def test_tiles_lie_from_border_to_border():
    assert tiles.corners((64, 96), (64, 96), 0.2) == [(0, 0)]
    found = tiles.corners((150, 200), (64, 96), 0.25)
    assert [top for top, _ in found[::3]] == [0, 43, 86] and [left for _, left in found[:3]] == [0, 52, 104]
    assert all(later - before <= 0.75 * 64 for before, later in ((0, 43), (43, 86)))


def test_what_is_found_in_tiles_is_found_in_the_picture():
    settings, whole = tiled(width=8, depth=1), (128, 160)
    how = {"channels": 3, "classes": 2, "mean": [127.0] * 3, "std": [60.0] * 3}
    over = detector.small(settings, image_size=whole, **how)
    alone = detector.small(SmallDetector(**{**settings.model_dump(), "tile": None}), image_size=(64, 96), **how)
    alone.set_weights(over.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (2, *whole, 3)).astype(np.float32)
    found, begins = over(images).numpy(), tiles.corners(whole, (64, 96), 0.25)
    middles, strides = detector.places_of(whole, settings)
    assert found.shape[1] == len(middles) == len(strides) == len(begins) * len(WHERE.middles)
    for number, (top, left) in enumerate(begins):
        part = slice(number * len(WHERE.middles), (number + 1) * len(WHERE.middles))
        mine = alone(images[:, top:top + 64, left:left + 96]).numpy()
        mine[..., :4] += [left, top, left, top]
        np.testing.assert_allclose(found[:, part], mine, rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(middles[part] - WHERE.middles, np.broadcast_to([left, top], WHERE.middles.shape))


def test_pixels_that_tiles_share_have_their_mean():
    settings = tiled(SmallSegmenter, decoder=[4, 4, 4, 4], dropout=0.0)
    model = segmenter.small(settings, image_size=(100, 150), channels=3, classes=2, mean=[127.0] * 3, std=[60.0] * 3)
    assert model.output_shape == (None, 100, 150, 2)
    join = tiles.JoinPixels((100, 150), (64, 96), 0.25)
    same = tf.fill([len(join.corners), 64, 96, 1], 3.0)
    np.testing.assert_allclose(join(same), np.full((1, 100, 150, 1), 3.0), rtol=1e-5)
    with pytest.raises(ConfigError, match=r"model\.tile: 64 x 96 px are more than pictures have, which are of 50 x 150"):
        segmenter.small(settings, image_size=(50, 150), channels=3, classes=2, mean=[127.0] * 3, std=[60.0] * 3)
    with pytest.raises(ConfigError, match=r"model\.tile: a detector needs sides that 32 divides, and they are 60 x 96"):
        detector.check_size((100, 150), SmallDetector(name="small", tile=[60, 96]))


@pytest.mark.slow
def test_a_detector_learns_in_tiles(tmp_path):
    from pipelines.config.load import from_text
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run, task_class
    from pipelines.serving.predict import Predictor

    from . import boxed_pictures

    table = boxed_pictures.table(boxed_pictures.made(24, size=(128, 160), most=6), tmp_path / "data")
    known = from_text(f"""
task: vision.detection
data: {{source: table, path: {table}, validation: 0.25, test: null, image_size: [128, 160]}}
model: {{name: small, widths: [8, 8, 16, 16, 16], width: 8, depth: 1, tile: [64, 96]}}
train: {{epochs: 12, batch_size: 4, learning_rate: {{peak: 0.02}}, precision: float32, devices: cpu}}
augment: {{flip: true}}
evaluate: {{bootstrap: 100}}
""")
    folder = RunFolder(tmp_path / "runs" / "one")
    report = train(known.experiment, folder, Call("tiles", task_class(known.experiment.task), quiet=True))
    assert report["metrics"]["validation/ap50"]["value"] > 0.3
    (answer,) = Predictor(load_run(folder, where="cpu")).predict([str(tmp_path / "data" / "000.png")])
    assert answer.values["count"] == len(answer.values["boxes"])
