"""Pictures with masks: where they lie, what their values mean, how they move with the picture, and how they are judged."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from vision.check import check_masks
from vision.data.masks import layout, values
from vision.data.masks.splits import load_masks
from vision.data.masks.values import VOID
from vision.outputs import mask_metrics
from vision.outputs.masks import Masks
from vision.settings import MaskLoss
from vision.tasks.segmentation import Segmentation

from .masked_pictures import NAMES, drawn, write

PALETTE = [0, 0, 0, 128, 0, 0, 0, 128, 0]


def experiment(path, more="", model="{name: small}"):
    text = f"task: vision.segmentation\ndata: {{source: folder, path: {path}, validation: 0.2, test: 0.2{more}}}\nmodel: {model}\n"
    return from_text(text).experiment


def task(path, more="", augment=""):
    known = from_text(f"task: vision.segmentation\ndata: {{source: folder, path: {path}, validation: 0.2, test: 0.2{more}}}\n"
                      f"model: {{name: small}}\naugment: {{{augment}}}\n").experiment
    splits = load_masks(known)
    return Segmentation(known, splits.facts), splits


def first(source, number=0):
    return {name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()}


# ---- where they lie


def voc(root):
    write(root, range(12), pictures="JPEGImages", masks="SegmentationClass", palette=PALETTE)
    (root / "SegmentationObject").mkdir()
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{number:02}\n" for number in range(8)))
    (lists / "val.txt").write_text("08\n09\n")


def splits_above(root):
    write(root / "train", range(8))
    write(root / "val", range(8, 12))


def splits_below(root):
    for part, numbers in (("train", range(8)), ("val", range(8, 10))):
        write(root, numbers, pictures=f"images/{part}", masks=f"labels/{part}", ending="_mask")


@pytest.mark.parametrize(("make", "counts"), [
    (lambda root: write(root, range(6), ending="_L"), {"all": 6}), (splits_above, {"train": 8, "val": 4}),
    (splits_below, {"train": 8, "val": 2}), (voc, {"train": 8, "val": 2}),
])
def test_pictures_and_masks_are_found(tmp_path, make, counts):
    make(tmp_path)
    parts = layout.find(tmp_path)
    assert {name: len(part.images) for name, part in parts.items()} == counts
    assert all(mask.stem.startswith(image.stem) for part in parts.values() for image, mask in zip(part.images, part.masks))


def a_file_for_each_class(root, how):
    """The same masks, of which `square` claims what `disc` does, too."""
    write(root, range(20))
    for file in sorted((root / "masks").iterdir()):
        mask = np.asarray(Image.open(file))
        file.unlink()
        for number, name in ((1, "disc"), (2, "square")):
            claimed = Image.fromarray(np.where(mask >= number if name == "disc" else mask == number, 255, 0).astype(np.uint8))
            place = root / "masks" / (f"{name}/{file.name}" if how == "folders" else f"{file.stem}_{name}.png")
            place.parent.mkdir(exist_ok=True)
            claimed.convert("RGB" if how == "folders" else "L").save(place)


@pytest.mark.parametrize("how", ["folders", "endings"])
def test_a_file_for_each_class(tmp_path, how):
    a_file_for_each_class(tmp_path, how)
    made, splits = task(tmp_path)
    assert splits.facts["classes"] == ["background", "disc", "square"]
    number = int(splits.train.name(0)[-6:-4])
    np.testing.assert_array_equal(made.input.decode(first(splits.train))["mask"], drawn(number)[1])
    _, other = task(tmp_path, ", classes: [square, disc, ground]")
    assert other.facts["classes"] == ["square", "disc", "ground"] and other.facts["class_counts"] == splits.facts["class_counts"][::-1]
    assert "classes: [background, disc, square]" in new("vision", tmp_path, encoder="none")
    result = check_masks(experiment(tmp_path))
    assert not result.failed and result.pictures["examples.png"]
    with pytest.raises(DataError, match=r"masks of class 'disc', which data\.classes does not name"):
        task(tmp_path, ", classes: [square, ground]")


def test_a_file_for_each_class_that_cannot_be_joined(tmp_path):
    a_file_for_each_class(tmp_path, "folders")
    Image.new("L", (9, 9)).save(tmp_path / "masks" / "disc" / "03.png")
    with pytest.raises(DataError, match=r"03\.png: its masks have several sizes: 9 x 9 px, 40 x 48 px"):
        task(tmp_path)
    left = task(tmp_path, ", on_bad_example: skip, most_skipped: 0.5")[1]
    assert len(left.train) + len(left.validation) + len(left.test) == 19 and len(left.skipped) == 1


def test_masks_of_other_names(tmp_path):
    write(tmp_path, range(4))
    for number, file in enumerate(sorted((tmp_path / "masks").iterdir())):
        file.rename(file.with_name(f"x{number}.png"))
    with pytest.raises(DataError, match=r"none is called as a picture of"):
        layout.find(tmp_path)


def test_a_table_names_both(tmp_path):
    write(tmp_path, range(20))
    rows = [f"{number:02},{number:02}.png,{'train' if number < 12 else 'test' if number < 16 else 'val'}" for number in range(20)]
    (tmp_path / "t.csv").write_text("file,mask,part\n" + "\n".join(rows))
    found = load_masks(from_text(
        f"task: vision.segmentation\ndata: {{source: table, path: {tmp_path / 't.csv'}, image_key: file, file_pattern: 'images/{{}}.png', "
        "mask_pattern: 'masks/{}', split_key: part, validation: val, test: test}\nmodel: {name: small}\n").experiment)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [12, 4, 4] and found.facts["classes"] == ["0", "1", "2"]


# ---- what their values mean


def stored(mask, mode="grey"):
    image = Image.fromarray(np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)[mask] if mode == "colour" else mask)
    if mode == "palette":
        image.putpalette(PALETTE)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("mode", "own"), [("grey", [0, 1, 2]), ("palette", [0, 1, 2]), ("colour", [[0, 0, 0], [128, 0, 0], [0, 128, 0]])])
def test_each_kind_of_mask_is_read_and_answered(tmp_path, mode, own):
    write(tmp_path, range(20))
    for number in range(20):
        (tmp_path / f"masks/{number:02}.png").write_bytes(stored(drawn(number)[1], mode))
    made, splits = task(tmp_path, f", classes: [a, b, c], values: {own}")
    assert splits.facts["coding"]["kind"] == mode
    raw = first(splits.train)
    number = int(splits.train.name(0)[-6:-4])
    decoded = made.input.decode(raw)
    np.testing.assert_array_equal(decoded["mask"], drawn(number)[1])
    answer = made.output.respond({"mask": decoded["mask"][None], "confidence": tf.ones([1]), "sent": decoded["sent"][None],
                                  "place": decoded["place"][None]})
    written = np.asarray(Image.open(io.BytesIO(answer["mask"].numpy()[0])))
    np.testing.assert_array_equal(written, np.array(own, np.uint8)[drawn(number)[1]])
    assert np.asarray(Image.open(io.BytesIO(answer["overlay"].numpy()[0]))).shape == (40, 48, 4)
    np.testing.assert_allclose(answer["shares"], [np.bincount(drawn(number)[1].ravel(), minlength=3) / (40 * 48)], atol=1e-6)


def spoil(number, change):
    def make(root):
        write(root, range(20))
        file = root / f"masks/{number:02}.png"
        change(file)
    return make


def larger(file):
    Image.open(file).resize((20, 20)).save(file)


def jpeg(file):
    Image.open(file).save(file, "JPEG")


def strange(file):
    Image.fromarray(np.full((40, 48), 77, np.uint8)).save(file)


@pytest.mark.parametrize(("make", "more", "says"), [
    (spoil(3, larger), "", "masks/03.png: the mask has 20 x 20 px, its picture 40 x 48"),
    (spoil(3, jpeg), "", "masks are PNG files"),
    (spoil(3, lambda file: file.write_bytes(b"\x89PNG\r\n\x1a\nxx")), "", "cannot be read as PNG"),
    (spoil(3, lambda file: file.unlink()), "", "has no mask"),
    (spoil(3, strange), ", classes: [a, b, c]", "1,920 pixels of value 77, which is no class"),
    (lambda root: write(root, range(20)), ", classes: [a, b]", "is no class; add it to data.values"),
    (lambda root: write(root, range(20)), ", values: [[0, 0, 0], [1, 1, 1]]", "is no class"),
])
def test_bad_masks_are_named(tmp_path, make, more, says):
    make(tmp_path)
    with pytest.raises(DataError) as refused:
        load_masks(experiment(tmp_path, more))
    assert says.removeprefix("masks/03.png: ") in str(refused.value) and str(tmp_path) in str(refused.value)


def test_bad_masks_are_left_out_where_asked(tmp_path):
    spoil(3, larger)(tmp_path)
    found = load_masks(experiment(tmp_path, ", on_bad_example: skip, most_skipped: 0.5"))
    assert len(found.train) + len(found.validation) + len(found.test) == 19 and "its picture 40 x 48" in found.skipped[0]


def test_masks_that_are_photos(tmp_path):
    write(tmp_path, range(10))
    for number in range(10):
        Image.fromarray(drawn(number)[0]).save(tmp_path / f"masks/{number:02}.png")
    with pytest.raises(DataError, match=r"different values, such as .*: a class has one"):
        load_masks(experiment(tmp_path))


def test_masks_that_count_things(tmp_path):
    write(tmp_path, range(20))
    for number in range(20):
        mask = np.zeros((40, 48), np.uint8)
        mask[:number % 9 + 1, :] = np.arange(1, number % 9 + 2)[:, None]
        Image.fromarray(mask).save(tmp_path / f"masks/{number:02}.png")
    with pytest.raises(DataError, match=r"numbers of things, each of its own .*task: vision\.instances"):
        load_masks(experiment(tmp_path))
    assert "task: vision.instances" in new("vision", tmp_path, encoder="none")


def test_one_palette_for_all(tmp_path):
    write(tmp_path, range(20), palette=PALETTE)
    write(tmp_path, range(1), palette=[0, 0, 0, 1, 1, 1, 2, 2, 2])
    with pytest.raises(DataError, match="palettes differ: index 1"):
        load_masks(experiment(tmp_path))


def test_settings_that_contradict_each_other():
    with pytest.raises(ConfigError, match="3 for 2 classes"):
        experiment("x", ", classes: [a, b], values: [0, 1, 2]")
    with pytest.raises(ConfigError, match=r"evaluate\.shift"):
        from_text("task: vision.segmentation\ndata: {source: folder, path: x}\nmodel: {name: small}\nevaluate: {shift: 1}\n")


# ---- they move with the picture


def test_masks_go_with_their_pictures(tmp_path):
    write(tmp_path, range(20))
    for number in range(20):  # the picture says itself which class a pixel is
        Image.fromarray(drawn(number)[1] * 100).save(tmp_path / f"images/{number:02}.png")
    made, splits = task(tmp_path, ", image_size: [60, 72]", "flip: true, flip_vertical: true, scale: [0.7, 1.4]")
    rows = [made.input.decode(first(splits.train, number)) for number in range(8)]
    batch = {name: tf.stack([row[name] for row in rows]) for name in rows[0]}
    keys = tf.constant(np.random.default_rng(0).integers(0, 1 << 30, (8, 2)), tf.int32)
    images, targets = made.prepare(batch, keys=keys, seed=tf.constant([1, 2]), epoch=tf.constant(1, tf.int64))
    seen = np.rint(images.numpy()[..., 0] / 100).astype(int)
    known = targets.numpy() != VOID
    assert known.mean() > 0.6 and (seen == targets.numpy())[known].mean() > 0.97
    assert not (tf.reduce_all(targets == batch["mask"]).numpy())


# ---- how they are judged


def test_scores_are_those_of_counting():
    draw = np.random.default_rng(0)
    true, given = draw.integers(0, 4, (5, 20, 30)), draw.integers(0, 3, (5, 20, 30))
    true[true == 3] = VOID
    table = mask_metrics.confusion(tf.constant(given), tf.constant(true), 3).numpy().sum(0)
    counts = np.array([[((true == one) & (given == other)).sum() for other in range(3)] for one in range(3)])
    np.testing.assert_array_equal(table, counts)
    sums = np.concatenate([np.diag(counts), counts.sum(0), counts.sum(1)])[None]
    ious = np.diag(counts) / (counts.sum(0) + counts.sum(1) - np.diag(counts))
    np.testing.assert_allclose(mask_metrics.mean_iou(sums), ious.mean())
    np.testing.assert_allclose(mask_metrics.mean_dice(sums), (2 * ious / (1 + ious)).mean())
    absent = np.array([[3.0, 0, 3, 0, 3, 0]])  # a class that is neither there nor given is left out
    assert mask_metrics.mean_iou(absent) == 1.0


def test_boundaries():
    masks = np.stack([drawn(number)[1] for number in range(4)])
    same = mask_metrics.boundary_f1(tf.constant(masks), tf.constant(masks), 3).numpy()
    near = mask_metrics.boundary_f1(tf.constant(np.roll(masks, 1, 1)), tf.constant(masks), 3).numpy()
    far = mask_metrics.boundary_f1(tf.constant(np.roll(masks, 9, 1)), tf.constant(masks), 3).numpy()
    assert (same == 1.0).all() and (near > 0.9).all() and (far < near).all() and far.mean() < 0.6
    assert mask_metrics.tolerance(180, 240) == 2


def output(**settings):
    facts = {"classes": NAMES, "class_counts": [900, 90, 10]}
    return Masks(SimpleNamespace(experiment=SimpleNamespace(loss=MaskLoss(**settings)), facts=facts, input=None))


def test_void_pixels_and_weights_in_the_loss():
    draw = np.random.default_rng(0)
    logits, mask = draw.normal(size=(2, 4, 5, 3)).astype(np.float32), draw.integers(0, 3, (2, 4, 5)).astype(np.uint8)
    mask[0, :2] = VOID
    losses = -np.log(np.take_along_axis(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), np.minimum(mask, 2)[..., None].astype(int),
                                        -1))[..., 0] * (mask != VOID)
    total, count = output().loss(tf.constant(logits), tf.constant(mask), True)
    np.testing.assert_allclose(total, losses.sum((1, 2)), rtol=1e-5)
    assert count.numpy().tolist() == [10, 20]
    weights = np.array(output(class_weights="balanced")._weights())
    np.testing.assert_allclose((weights * [0.9, 0.09, 0.01]).sum(), 1.0)
    assert weights[2] > weights[1] > weights[0]
    total, count = output(class_weights="balanced").loss(tf.constant(logits), tf.constant(mask), True)
    np.testing.assert_allclose(count, (weights[np.minimum(mask, 2)] * (mask != VOID)).sum((1, 2)), rtol=1e-5)
    with pytest.raises(ConfigError, match="no class 'sea'"):
        output(class_weights={"sea": 2.0})._weights()


# ---- a new user


def test_new_writes_an_experiment_and_check_looks_at_it(tmp_path):
    write(tmp_path, range(30))
    (tmp_path / "classes.txt").write_text("\n".join(NAMES))
    made = from_text(new("vision", tmp_path, encoder="none")).experiment
    assert made.task == "vision.segmentation" and made.data.classes == NAMES and made.data.image_size == [40, 48]
    found = check_masks(made)
    assert not found.failed and found.pictures["examples.png"].startswith(b"\x89PNG")
    strange(tmp_path / "masks/03.png")
    found = check_masks(made)
    assert found.failed and any("value 77, which is no class" in detail for one in found.findings for detail in one.details)
    assert sum(found.splits["train"]["classes"].values()) > 2 * found.splits["train"]["examples"]


def test_new_knows_what_is_not_judged_and_names_beside(tmp_path):
    write(tmp_path, range(30))
    for number in range(30):
        mask = drawn(number)[1]
        mask[:2] = 255
        Image.fromarray(mask).save(tmp_path / f"masks/{number:02}.png")
    (tmp_path / "labelmap.txt").write_text("# name:value\nnothing:0\nring:1\nbox:2\n")
    text = new("vision", tmp_path, encoder="none")
    made = from_text(text).experiment
    assert made.data.void == [255] and made.data.classes == ["nothing", "ring", "box"] and "taken for what is not judged" in text
    assert values.value_of(values.code_of([1, 2, 3]), "colour") == [1, 2, 3]
