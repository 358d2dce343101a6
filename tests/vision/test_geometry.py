"""Where things lie follows what is done to a picture: decoding, augmentation, and back in the answer."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.runs.folder import RunFolder
from pipelines.serving.answers import respond
from pipelines.serving.load import LoadedRun
from pipelines.task.contract import Answers, Output
from pipelines.training.evaluation import Evaluator
from pipelines.training.session import assemble
from vision.data import augment, geometry
from vision.data.decode import decode_placed
from vision.settings import Augment
from vision.tasks.classification import Classification, ImageClasses
from vision.tasks.images import Images

SPOTS = [(8.0, 6.0), (30.0, 20.0), (41.0, 9.0), (25.0, 31.0)]  # x and y of the middle of bright squares of 4 x 4 px


def spot(x, y, height=40, width=52):
    picture = np.zeros([height, width, 1], np.uint8)
    picture[int(y) - 2:int(y) + 2, int(x) - 2:int(x) + 2] = 255
    return picture


def middle(image):
    """x and y of the middle of what is bright."""
    weights = np.asarray(image, np.float64)[..., 0]
    rows, columns = np.indices(weights.shape) + 0.5
    return np.array([(columns * weights).sum(), (rows * weights).sum()]) / weights.sum()


@pytest.mark.parametrize("resize", ["crop", "pad", "squash"])
@pytest.mark.parametrize("size", [(20, 26), (48, 24), (40, 52)])
def test_decoding(resize, size):
    for x, y in SPOTS:
        image, sent, place = decode_placed(tf.constant(spot(x, y)), size, 1, resize)
        assert sent.numpy().tolist() == [40, 52]
        expected = geometry.move_points(tf.constant([[[x, y]]]), place[None])[0, 0].numpy()
        if (expected > 3).all() and (expected < np.array(size[::-1]) - 3).all():
            np.testing.assert_allclose(middle(image), expected, atol=0.3)


def test_a_random_part_of_an_upright_picture():
    seen = 0
    for number in range(40):
        x, y = SPOTS[number % 4]
        encoded = tf.io.encode_png(spot(x, y))
        image, _, place = decode_placed(encoded, (40, 40), 1, crop_key=tf.constant([number, 1]), area=(0.3, 0.9))
        expected = geometry.move_points(tf.constant([[[x, y]]]), place[None])[0, 0].numpy()
        if (expected > 8).all() and (expected < 32).all():
            seen += 1
            np.testing.assert_allclose(middle(image), expected, atol=0.3)
    assert seen > 10


@pytest.mark.parametrize("settings", [{"flip": True}, {"shift": 5}, {"flip": True, "shift": 5}, {"flip": True, "flip_mode": "alternate"}])
def test_augmentation(settings):
    settings = Augment(**settings)
    pictures = np.stack([spot(20.0 + number % 7, 14.0 + number % 9) for number in range(32)])
    keys, epoch = tf.stack([tf.range(32), tf.fill([32], 5)], 1), tf.constant(3, tf.int64)
    moved = augment.move_and_erase(tf.constant(pictures), settings, keys, epoch, [0.0])
    maps = augment.moves(tf.constant(pictures), settings, keys, epoch)
    points = np.stack([middle(picture) for picture in pictures])[:, None].astype(np.float32)
    expected = geometry.move_points(tf.constant(points), maps)[:, 0].numpy()
    np.testing.assert_allclose([middle(picture) for picture in moved.numpy()], expected, atol=1e-4)
    assert np.abs(expected - points[:, 0]).max() > 1
    masks = geometry.move_masks(tf.constant(pictures[..., 0]), maps, (40, 52), 0)
    assert (masks.numpy() == moved.numpy()[..., 0]).all()  # a mask goes where its picture goes; the spots are far from the border


@pytest.mark.parametrize("settings", [
    {"flip_vertical": True}, {"scale": [0.6, 1.6]}, {"flip": True, "scale": [0.6, 1.6], "flip_vertical": True}])
def test_scaled_pictures(settings):
    settings = Augment(**settings)
    pictures = np.stack([spot(20.0 + number % 7, 14.0 + number % 9) for number in range(32)])
    keys, epoch = tf.stack([tf.range(32), tf.fill([32], 5)], 1), tf.constant(3, tf.int64)
    moved, _ = augment.augment(tf.constant(pictures), settings, keys=keys, seed=keys[0], epoch=epoch, mean=[0.0])
    maps = augment.moves(tf.constant(pictures), settings, keys, epoch)
    points = np.stack([middle(picture) for picture in pictures])[:, None].astype(np.float32)
    expected = geometry.move_points(tf.constant(points), maps)[:, 0].numpy()
    whole = ((expected > 4) & (expected < [48, 36])).all(1)
    assert whole.sum() > 8
    np.testing.assert_allclose([middle(picture) for picture in moved.numpy()[whole]], expected[whole], atol=0.3)
    assert np.abs(expected - points[:, 0]).max() > 3


def test_what_lies_beyond_the_border_of_a_scaled_picture_has_the_given_colour():
    pictures = tf.fill([1, 8, 8, 3], 200.0)
    half = augment.moved_by(pictures, tf.constant([[[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]]), [10.0, 20.0, 30.0]).numpy()
    assert np.allclose(half[0, :3, :3], 200) and np.allclose(half[0, 5:], [10, 20, 30])


def test_boxes_and_the_way_back():
    maps = tf.constant([[[-2.0, 0.0, 40.0], [0.0, 0.5, 3.0]], [[1.0, 0.0, -4.0], [0.0, 1.0, 0.0]]])
    boxes = tf.constant([[[2.0, 4.0, 10.0, 8.0]], [[2.0, 4.0, 10.0, 8.0]]])
    moved = geometry.move_boxes(boxes, maps)
    np.testing.assert_allclose(moved, [[[20.0, 5.0, 36.0, 7.0]], [[-2.0, 4.0, 6.0, 8.0]]])
    np.testing.assert_allclose(geometry.move_boxes(moved, geometry.inverse(maps)), boxes, atol=1e-5)
    both = geometry.then(maps, geometry.inverse(maps))
    np.testing.assert_allclose(both, np.tile(np.eye(2, 3), (2, 1, 1)), atol=1e-6)
    cut, left = geometry.clip_boxes(moved, tf.constant([0.0, 0.0, 30.0, 6.0]))
    np.testing.assert_allclose(cut, [[[20.0, 5.0, 30.0, 6.0]], [[0.0, 4.0, 6.0, 6.0]]])
    np.testing.assert_allclose(left, [[10 / 32], [12 / 32]])


class Placed(Images):
    places = True


class Corner(ImageClasses):
    """Besides the class, the place in the picture as sent of the upper left corner of what the model sees."""

    answers = Answers(beside=("sent", "place"))

    def respond(self, answers):
        corner = geometry.move_points(tf.zeros([1, 1, 2]), geometry.inverse(answers["place"]))[:, 0]
        return {**super().respond(answers), "corner": corner, "sent": answers["sent"]}


class PlacedClasses(Classification):
    def __init__(self, experiment, facts=None):
        super().__init__(experiment, facts)
        self.input, self.output = Placed(self), Corner(self)
        self.output.input = self.input


def digits(*overrides):
    settings = ("data.limit=40", "data.image_size=8", "train.devices=cpu", "train.precision=float32", "model.widths=[4, 4]", *overrides)
    return load("vision/digits", settings).experiment


def test_what_passes_by_the_model_reaches_the_answer():
    session = assemble(digits("augment.shift=1"), PlacedClasses)
    _, carry = session.step(session.feed.iterator(0, 1), 0, 1, session.step.fresh())
    assert bool(carry.finite)
    answers, _ = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine).answers()
    assert (answers["sent"] == 8).all() and np.allclose(answers["place"], np.eye(2, 3))
    run = LoadedRun(session.task, session.model, session.task.experiment, RunFolder(Path("placed")), session.machine, "float32", "placed")
    sent = session.task.input.receive({"image": tf.stack([tf.io.encode_png(np.zeros([24, 32, 1], np.uint8)),
                                                          tf.io.encode_png(np.zeros([16, 8, 1], np.uint8))])})
    given = tf.function(lambda examples: respond(run, examples), autograph=False)(sent)
    assert given["sent"].numpy().tolist() == [[24, 32], [16, 8]]
    np.testing.assert_allclose(given["corner"], [[4.0, 0.0], [0.0, 4.0]], atol=1e-5)  # both are cut to squares


def test_what_passes_by_is_no_output_of_the_model():
    class Two(Output):
        watch, answers = ("outputs", "max"), Answers(beside=("sent",))

        def scores(self, outputs, targets):
            return {"outputs": np.full(2, len(outputs), np.float32)}

    two = Two(SimpleNamespace(experiment=None, input=None))
    kept, _ = two.condense({"a": np.zeros(2), "b": np.zeros(2), "sent": np.ones((2, 2), np.int32)}, {"label": np.zeros(2)})
    assert (kept["score/outputs"] == 2).all() and (kept["sent"] == 1).all()


def test_what_places_do_not_follow_is_refused():
    with pytest.raises(ConfigError, match=r"augment\.mixup: what lies in the pictures does not follow it"):
        PlacedClasses(digits("augment.mixup=0.2")).splits()
