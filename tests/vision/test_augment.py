"""Augmentation: against plain numpy, and pure in each example's key."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from pipelines.data import draws, order
from pipelines.outputs.classes import Classes
from vision.data import rand_augment
from vision.data.augment import FLIP, SHIFT, augment
from vision.settings import Augment, RandAugment

MEAN = [100.4, 120.0, 130.0]
PER_EXAMPLE = {
    "flip": Augment(flip=True),
    "alternate": Augment(flip=True, flip_mode="alternate"),
    "shift": Augment(shift=3),
    "erase": Augment(erase=5),
    "moves": Augment(flip=True, shift=2, erase=4),
    "scale": Augment(scale=[0.5, 1.5], flip_vertical=True, colour=0.3),
    "rand": Augment(flip=True, rand_augment=RandAugment(operations=2, magnitude=0.6)),
}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (96, 12, 10, 3)).astype(np.uint8)


def run(images, settings, *, epoch=0, numbers=None, labels=None, step=0, classes=10):
    numbers = tf.range(len(images), dtype=tf.int64) if numbers is None else tf.constant(numbers, tf.int64)
    labels = tf.zeros(len(images), tf.int32) if labels is None else tf.constant(labels, tf.int32)
    epoch = tf.constant(epoch, tf.int64)
    augmented, changes = augment(
        tf.constant(images), settings, keys=order.example_keys(0, epoch, numbers), seed=order.step_seed(0, tf.constant(step)), epoch=epoch,
        mean=MEAN)
    task = SimpleNamespace(experiment=None, input=None, facts={"classes": [str(number) for number in range(classes)]})
    output = Classes(task)
    return augmented, output.targets({"label": labels}, changes)["label"]


def test_nothing_asked_changes_nothing_but_the_type(images):
    result, labels = run(images, Augment(), labels=np.arange(96) % 10)
    assert result.dtype == tf.float32 and np.array_equal(result, images)
    assert np.array_equal(labels, np.arange(96) % 10)


@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_an_image_is_augmented_alike_in_any_batch(images, name):
    settings = PER_EXAMPLE[name]
    whole = run(images, settings, epoch=3)[0].numpy()
    some = np.array([50, 3, 77, 8])
    # resampling sums in an order that depends on the batch's layout, hence not bit for bit where there is any
    close = 1e-3 if name in ("rand", "scale") else 0
    np.testing.assert_allclose(run(images[some], settings, epoch=3, numbers=some)[0].numpy(), whole[some], atol=close)
    again = tf.function(lambda: run(images, settings, epoch=3)[0])()
    np.testing.assert_allclose(again.numpy(), whole, atol=close)
    assert not np.array_equal(run(images, settings, epoch=4)[0].numpy(), whole)  # another epoch, another draw


def test_flip_and_shift_against_numpy(images):
    settings = Augment(flip=True, shift=3)
    keys = order.example_keys(0, tf.constant(1, tf.int64), tf.range(96, dtype=tf.int64))
    mirrored = draws.uniform(keys, FLIP).numpy() < 0.5
    rows, columns = draws.integers(keys, SHIFT, -3, 3, 2).numpy()
    assert 25 < mirrored.sum() < 71 and set(rows) == set(columns) == set(range(-3, 4))
    result = run(images, settings, epoch=1)[0].numpy()
    for number, image in enumerate(images):
        image = np.pad(image, [(3, 3), (3, 3), (0, 0)], mode="reflect")
        top, left = 3 + rows[number], 3 + columns[number]
        image = image[:, ::-1] if mirrored[number] else image
        left = 3 - columns[number] if mirrored[number] else left
        expected = image[top:top + 12, left:left + 10]
        assert np.array_equal(result[number], expected), number


def test_alternate_flips_every_image_every_other_epoch(images):
    even, odd, next_even = (run(images, PER_EXAMPLE["alternate"], epoch=epoch)[0].numpy() for epoch in (0, 1, 2))
    assert np.array_equal(even, next_even)
    assert np.array_equal(even, odd[:, :, ::-1])
    kept = (even == images).all(axis=(1, 2, 3))
    assert 25 < kept.sum() < 71  # about half begin as they are


def test_erase_sets_one_square_to_the_mean(images):
    images = np.maximum(images, 1) // 2 * 2 + 1  # odd, and no value is the fill's
    fill = np.round(MEAN)
    assert all(value % 2 == 0 for value in fill)
    result = run(images, Augment(erase=5))[0].numpy()
    sizes = set()
    for before, after in zip(images, result):
        erased = (after == fill).all(axis=-1)
        assert np.array_equal(after[~erased], before[~erased])
        rows, columns = np.flatnonzero(erased.any(axis=1)), np.flatnonzero(erased.any(axis=0))
        assert erased[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1].all() and erased.sum() == len(rows) * len(columns)
        assert 3 <= len(rows) <= 5 and 3 <= len(columns) <= 5  # cut where the centre is near the border
        sizes.add((len(rows), len(columns)))
    assert (5, 5) in sizes and len(sizes) > 3


def test_float_images_are_erased_to_the_exact_mean(images):
    result = run(images.astype(np.float32), Augment(erase=5))[0].numpy()
    assert np.isclose(result, MEAN, atol=1e-4).all(axis=-1).any()


@pytest.mark.parametrize("settings", [Augment(mixup=0.2), Augment(mixup=1.0), Augment(cutmix=1.0), Augment(mixup=0.4, cutmix=1.0)])
def test_mixing_keeps_targets_a_distribution_and_images_in_proportion(settings):
    labels = np.arange(96) % 10
    images = np.broadcast_to(labels[:, None, None, None] * 20.0, (96, 12, 10, 3)).astype(np.float32)  # the label stands in the pixels
    seen = []
    for epoch in range(8):
        mixed, targets = (value.numpy() for value in run(images, settings, labels=labels, epoch=epoch, step=epoch))
        assert targets.shape == (96, 10) and targets.min() >= 0.0
        np.testing.assert_allclose(targets.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(mixed.mean(axis=(1, 2, 3)), targets @ (np.arange(10) * 20.0), rtol=1e-4, atol=1e-2)
        seen.append(targets)
    assert len({value.tobytes() for value in seen}) == 8  # every epoch draws anew
    assert np.array_equal(run(images, settings, labels=labels)[1].numpy(), seen[0])
    for first in range(0, 96, 24):  # the same where the batch is divided
        part = slice(first, first + 24)
        targets = run(images[part], settings, labels=labels[part], numbers=np.arange(96)[part])[1].numpy()
        np.testing.assert_array_equal(targets, seen[0][part])
    own = np.stack(seen)[:, np.arange(96), labels]
    assert (own < 0.999).mean() > 0.1 and own.std() > 0.1


def test_mixup_weights_follow_the_beta_distribution():
    images, labels = np.zeros((4000, 2, 2, 1), np.float32), np.arange(4000)
    targets = run(images, Augment(mixup=0.4), labels=labels, classes=4000)[1].numpy()
    own = targets[np.arange(4000), labels]
    from scipy import stats
    assert stats.kstest(own[own < 1.0], stats.beta(0.4, 0.4).cdf).pvalue > 1e-3


def test_mixup_and_cutmix_together_take_turns():
    labels = np.arange(96) % 10
    images = np.broadcast_to(labels[:, None, None, None] * 20.0, (96, 12, 10, 3)).astype(np.float32)
    pasted = []
    for step in range(40):
        mixed = run(images, Augment(mixup=1.0, cutmix=1.0), labels=labels, step=step)[0].numpy()
        pasted.append(bool(np.isin(mixed, np.arange(10) * 20.0).all()))
    assert 8 < sum(pasted) < 32


PILLOW = {
    "identity": (1.0, lambda image: image),
    "auto_contrast": (1.0, ImageOps.autocontrast),
    "equalize": (1.0, ImageOps.equalize),
    "solarize": (0.5, lambda image: ImageOps.solarize(image, 128)),
    "posterize": (-0.5, lambda image: ImageOps.posterize(image, 6)),
    "contrast": (0.5, lambda image: ImageEnhance.Contrast(image).enhance(1.45)),
    "brightness": (-0.5, lambda image: ImageEnhance.Brightness(image).enhance(0.55)),
    "colour": (0.5, lambda image: ImageEnhance.Color(image).enhance(1.45)),
    "sharpness": (0.5, lambda image: ImageEnhance.Sharpness(image).enhance(1.45)),
    "rotate": (1.0, lambda image: image.rotate(30, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128))),
}


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    """Smooth images with a full range of values, so that conventions of resampling differ little."""
    y, x = np.mgrid[0:32, 0:32] / 31.0
    waves = [np.stack([np.sin(3 * x + n), np.cos(2 * y + n), np.sin(2 * x + 2 * y + n)], -1) for n in range(6)]
    checks = 12.0 * (np.indices((32, 32)).sum(axis=0) // 2 % 2)[..., None]  # something to sharpen
    return np.round(127.5 + 110.0 * np.stack(waves) + checks).astype(np.float32)


@pytest.mark.parametrize("name", PILLOW)
def test_rand_augment_operations_are_pillows(photographs, name):
    strength, reference = PILLOW[name]
    count = len(photographs)
    result = rand_augment.apply(
        tf.constant(photographs), tf.fill([count], rand_augment.OPERATIONS.index(name)), tf.fill([count], strength)).numpy()
    expected = np.stack([np.asarray(reference(Image.fromarray(image.astype(np.uint8))), np.float32) for image in photographs])
    inner = (slice(None), slice(1, -1), slice(1, -1))  # borders differ by convention
    difference = np.abs(result - expected)[inner]
    assert difference.max() < 2.0 if name != "rotate" else np.median(difference) < 2.0
    if name != "identity":
        assert np.abs(expected - photographs)[inner].mean() > 0.5  # the operation did something


@pytest.mark.parametrize("axis", [1, 2])
def test_rand_augment_translates_and_shears_along_one_axis(axis):
    image = np.zeros((1, 21, 21, 1), np.float32)
    image[0, 10, 10] = 255.0
    name = "y" if axis == 1 else "x"

    def applied(operation: str, strength: float) -> np.ndarray:
        number = rand_augment.OPERATIONS.index(f"{operation}_{name}")
        return rand_augment.apply(tf.constant(image), tf.constant([number]), tf.constant([strength])).numpy()

    moved, expected = applied("translate", 1 / 2.1), np.roll(image, -3, axis=axis)  # 0.3 x 21 px x strength = 3 px
    inner = (slice(None), slice(4, -4), slice(4, -4))
    np.testing.assert_allclose(moved[inner], expected[inner], atol=1e-2)
    sheared = applied("shear", 1.0)
    np.testing.assert_allclose(sheared[0, 10, 10], 255.0, atol=0.1)  # the centre stays


def test_rand_augment_leaves_grey_images_grey_and_in_range():
    images = np.random.default_rng(1).integers(0, 256, (64, 28, 28, 1)).astype(np.uint8)
    result = run(images, Augment(rand_augment=RandAugment(operations=3, magnitude=1.0)))[0].numpy()
    assert result.shape == (64, 28, 28, 1) and result.min() >= 0.0 and result.max() <= 255.0
    assert (np.abs(result - images).mean(axis=(1, 2, 3)) > 1.0).mean() > 0.7
