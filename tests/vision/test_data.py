"""load_images from every source: splits, facts learned from train alone, and what is refused or skipped."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.base.errors import DataError
from pipelines.base.files import finite
from pipelines.config.load import from_dict
from pipelines.config.load import load as shipped_experiment
from pipelines.data.arrays import to_uint8
from pipelines.data.files import FileSource
from pipelines.data.stream import StreamSource
from tests.data.prepared import need, prepare
from tests.vision.synthetic_images import encoded, folder, picture
from vision.data import splits as image_splits
from vision.data.decode import decode_image
from vision.data.sources import stored_header
from vision.data.splits import find_bad, load_images
from vision.settings import ImageClassification

pytestmark = pytest.mark.slow


def load(**data):
    return load_images(ImageClassification.model_validate({"task": "vision.classification", "data": data, "model": {"name": "cnn"}}))


def sizes(splits):
    return [None if part is None else len(part) for part in (splits.train, splits.validation, splits.test)]


def names(source):
    return [source.name(number) for number in range(len(source))]


# --- digits ---


def test_digits():
    splits = load(source="digits", test=0.2)
    facts = splits.facts
    assert sizes(splits) == [1294, 144, 359] and facts["classes"] == list("0123456789")
    assert facts["image_size"] == [8, 8] and facts["channels"] == 1 and sum(facts["class_counts"]) == 1294
    images = splits.train.arrays["image"]
    assert images.dtype == np.uint8 and images.max() == 255 and set(np.unique(images)) <= {round(level * 255 / 16) for level in range(17)}
    assert facts["mean"] == pytest.approx([images.mean()]) and facts["std"] == pytest.approx([images.std()])
    assert json.loads(json.dumps(finite(facts))) == facts
    assert facts["splits"]["test"]["examples"] == 359 and sum(facts["splits"]["test"]["classes"].values()) == 359
    assert "stratified" in splits.notes[0]


def test_mean_and_deviation_see_train_alone(tmp_path):
    rng = np.random.default_rng(0)
    dark, bright = rng.integers(0, 50, (20, 6, 6, 3), dtype=np.uint8), rng.integers(200, 255, (20, 6, 6, 3), dtype=np.uint8)
    labels = np.arange(20) % 2
    np.savez(tmp_path / "d.npz", x_train=dark, y_train=labels, x_test=bright, y_test=labels)
    facts = load(source="npz", path=str(tmp_path / "d.npz"), validation=0.0).facts
    assert facts["mean"] == pytest.approx(dark.mean((0, 1, 2)).tolist()) and facts["std"] == pytest.approx(dark.std((0, 1, 2)).tolist())


# --- folders ---


def test_a_folder_in_one_piece(tmp_path):
    splits = load(source="folder", path=str(folder(tmp_path, {"cat": 20, "dog": 10})), test=0.2, validation=0.25)
    assert sizes(splits) == [18, 6, 6] and splits.facts["classes"] == ["cat", "dog"] and splits.facts["class_counts"] == [12, 6]
    assert splits.facts["image_size"] == [24, 36] and splits.facts["channels"] == 3
    assert not {*names(splits.train)} & {*names(splits.test)}
    raw = splits.train.gather(tf.constant([0], tf.int64))
    assert raw["image"].dtype == tf.string and raw["label"].dtype == tf.int64
    decoded = np.stack([decode_image(raw, (24, 36), 3).numpy()
                        for raw in splits.train.gather(tf.range(18, dtype=tf.int64))["image"]]).astype(float)
    assert splits.facts["mean"] == pytest.approx(decoded.mean((0, 1, 2)).tolist())
    assert splits.facts["std"] == pytest.approx(decoded.std((0, 1, 2)).tolist())


def test_splits_do_not_depend_on_the_order_of_creation(tmp_path):
    roots = [folder(tmp_path / str(reverse), {"cat": 20, "dog": 10}, reverse=reverse) for reverse in (False, True)]
    held = [[os.path.relpath(name, root) for name in names(load(source="folder", path=str(root), test=0.2).test)] for root in roots]
    assert held[0] == held[1] and len(held[0]) == 6


def test_split_seed_alone_decides(tmp_path):
    root = folder(tmp_path, {"cat": 20, "dog": 10})
    experiment = {"task": "vision.classification", "model": {"name": "cnn"}, "data": {"source": "folder", "path": str(root), "test": 0.2}}
    first = load_images(ImageClassification.model_validate({**experiment, "train": {"seed": 1}}))
    second = load_images(ImageClassification.model_validate({**experiment, "train": {"seed": 2}}))
    other = load_images(ImageClassification.model_validate({**experiment, "data": {**experiment["data"], "split_seed": 1}}))
    assert first.facts == second.facts and first.facts["splits"] != other.facts["splits"]


def test_folders_for_the_splits(tmp_path):
    for part, count in (("train", 6), ("val", 3), ("test", 2)):
        folder(tmp_path / part, {"cat": count, "dog": count}, seed=ord(part[0]))
    shipped = shipped_experiment("vision/folder", [f"data.path={tmp_path}"]).experiment
    for splits in (load(source="folder", path=str(tmp_path)), load_images(shipped)):
        assert sizes(splits) == [12, 6, 4] and all("val" in name for name in names(splits.validation))
    splits = load(source="folder", path=str(tmp_path), validation=0.0, test=None)
    assert sizes(splits) == [12, None, None] and "not used" in splits.notes[0]


def test_every_format_in_one_folder(tmp_path):
    image = Image.fromarray(picture())
    wide = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) << 8)
    writes = {"a.JPG": ("JPEG", image), "b.jpeg": ("JPEG", image.convert("CMYK")), "c.png": ("PNG", image.quantize(16)),
              "d.BMP": ("BMP", image), "e.gif": ("GIF", image.quantize(16)), "f.webp": ("WEBP", image),
              "g é ü.png": ("PNG", image.convert("L")), "h.jpg": ("PNG", image), "no ending": ("PNG", image), "wide 16.png": ("PNG", wide)}
    for title in ("x", "y"):
        (tmp_path / title).mkdir()
        for name, (kind, content) in writes.items():
            (tmp_path / title / name).write_bytes(encoded(content, kind))
    splits = load(source="folder", path=str(tmp_path), test=None, validation=0.0)
    assert sizes(splits) == [20, None, None] and splits.facts["image_size"] == [24, 36] and splits.facts["channels"] == 3
    assert find_bad(splits.train) == []


def test_grey_folders_have_one_channel_and_sizes_count_the_orientation(tmp_path):
    grey = Image.fromarray(picture()).convert("L")
    exif = Image.Exif()
    exif[0x0112] = 6
    for title in ("x", "y"):
        (tmp_path / title).mkdir()
        (tmp_path / title / "upright.jpg").write_bytes(encoded(grey.transpose(Image.Transpose.ROTATE_90), "JPEG"))
        (tmp_path / title / "turned.jpg").write_bytes(encoded(grey, "JPEG", exif=exif.tobytes()))
    facts = load(source="folder", path=str(tmp_path), test=None, validation=0.0).facts
    assert facts["image_size"] == [36, 24] and facts["channels"] == 1
    assert load(source="folder", path=str(tmp_path), test=None, validation=0.0, channels=3, image_size=16).facts["image_size"] == [16, 16]


def test_stored_headers_agree_with_pillow():
    image = Image.fromarray(picture())
    for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP"):
        assert stored_header(encoded(image, kind)) == (24, 36, 3), kind
    assert stored_header(encoded(image.convert("L"), "PNG")) == (24, 36, 1)
    assert stored_header(b"nothing") is None and stored_header(b"") is None


def test_different_sizes_need_image_size(tmp_path):
    folder(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "b" / "odd.png").write_bytes(encoded(picture(0, 10, 10), "PNG"))
    with pytest.raises(DataError, match=r"the images differ in size \(.*000.png is 24 x 36 px, .*odd.png 10 x 10\); set data.image_size"):
        load(source="folder", path=str(tmp_path), test=None, validation=0.0)
    assert load(source="folder", path=str(tmp_path), test=None, validation=0.0, image_size=[12, 20]).facts["image_size"] == [12, 20]


def test_a_class_that_only_test_has(tmp_path):
    folder(tmp_path / "train", {"a": 3, "b": 3})
    folder(tmp_path / "test", {"a": 1, "zebra": 1})
    with pytest.raises(DataError, match=r"test has classes of which train has no example: zebra \(such as .*zebra.000.png\)"):
        load(source="folder", path=str(tmp_path))


def test_one_class_is_too_few(tmp_path):
    with pytest.raises(DataError, match=r"has one class only \(a\); classification needs two or more"):
        load(source="folder", path=str(folder(tmp_path, {"a": 5})))


def test_groups_by_parent_folder(tmp_path):
    for title in ("a", "b"):
        for patient in range(8):
            folder(tmp_path / title, {f"p{patient}": 3}, seed=patient * 31 + ord(title))
    splits = load(source="folder", path=str(tmp_path), test=0.25, validation=0.2, group_by="folder")
    parts = [set(part.groups) for part in (splits.train, splits.validation, splits.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2]) and len(set.union(*parts)) == 8


# --- bad examples ---


@pytest.fixture
def with_bad(tmp_path):
    root = folder(tmp_path / "data", {"a": 8, "b": 8})
    whole = encoded(picture(0, 24, 36), "JPEG")
    moving = encoded(Image.fromarray(picture()), "WEBP", save_all=True, append_images=[Image.fromarray(picture(1))])
    contents = {"cut.jpg": whole[:len(whole) // 2], "empty.png": b"", "scan.TIFF": encoded(picture(), "TIFF"),
                "page.png": b"<!DOCTYPE html>", "moving.webp": moving}
    for name, content in contents.items():
        (root / "a" / name).write_bytes(content)
    return root


REASONS = {
    "cut.jpg": "a broken or truncated JPEG image, or a kind of JPEG that TensorFlow cannot read",
    "empty.png": "the file is empty",
    "moving.webp": "an animated WebP image, which TensorFlow cannot read; save its first frame",
    "page.png": "an HTML page, not a JPEG, PNG, BMP, GIF or WebP image",
    "scan.TIFF": "a TIFF image, not a JPEG, PNG, BMP, GIF or WebP image",
}


def test_bad_examples_are_found_with_their_reasons(with_bad):
    source = load(source="folder", path=str(with_bad), test=None, validation=0.0, image_size=24, on_bad_example="skip", most_skipped=0.5,
                  cache_folder=str(with_bad.parent / "cache"))
    assert sizes(source) == [16, None, None] and len(source.skipped) == 5
    for line, (name, why) in zip(source.skipped, REASONS.items()):
        assert line.startswith(f"{with_bad / 'a' / name}: {why}"), line


def test_skipped_examples_are_remembered_for_the_same_data(with_bad, monkeypatch):
    cache = str(with_bad.parent / "cache")
    first = load(source="folder", path=str(with_bad), image_size=24, on_bad_example="skip", most_skipped=0.5, cache_folder=cache)
    monkeypatch.setattr("vision.data.splits.find_bad", lambda *_: pytest.fail("decoded again"))
    again = load(source="folder", path=str(with_bad), image_size=24, on_bad_example="skip", most_skipped=0.5, cache_folder=cache)
    assert again.skipped == first.skipped and again.facts == first.facts


def test_files_that_could_not_be_read_are_tried_again(with_bad, monkeypatch):
    """They are not remembered as bad: size and time do not change when a permission or a network comes back."""
    settings = {"source": "folder", "path": str(with_bad), "image_size": 24, "on_bad_example": "skip", "most_skipped": 0.5,
                "test": None, "validation": 0.0,
                "cache_folder": str(with_bad.parent / "cache")}
    away, source_gather = str(with_bad / "b" / "003.png"), FileSource.gather

    def gather(self, numbers):
        if numbers.shape[0] != 1:
            return source_gather(self, numbers)

        def read(number):
            if self.paths[int(number[0])] == away:
                raise OSError("the network is away")
            return number

        return source_gather(self, tf.ensure_shape(tf.py_function(read, [numbers], tf.int64), [1]))

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "gather", gather)
        first = load(**settings)
    assert len(first.skipped) == 6 and any(line.startswith(f"{away}: ") for line in first.skipped) and sizes(first)[0] == 15
    again = load(**settings)
    assert len(again.skipped) == 5 and sizes(again)[0] == 16


def test_stop_names_the_file_and_why(with_bad):
    message = r"cut.jpg: a broken or truncated JPEG image.* \(and 4 more\). Repair or remove it, or set data.on_bad_example: skip"
    with pytest.raises(DataError, match=message):
        load(source="folder", path=str(with_bad), test=None, validation=0.0, image_size=24)


def test_arrays_have_no_bad_examples():
    assert find_bad(load(source="digits").train) == []


# --- tables ---


def table(root, rows, name="labels.csv"):
    path = root / name
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = [",".join(rows[0]), *(",".join(str(value) for value in each.values()) for each in rows)]
        path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    folder(tmp_path / "my images", {"x": 12})
    return [f"my images/x/{number:03d}.png" for number in range(12)]


@pytest.mark.parametrize("name", ["labels.csv", "labels.parquet"])
def test_a_table_with_splits_and_groups(tmp_path, files, name):
    parts = ["train", "train", "val", "test"]
    rows = [{"image": file, "kind": ["10", "9"][number % 2], "part": parts[number // 3], "who": f"p{number // 3}"}
            for number, file in enumerate(files)]
    path = table(tmp_path, rows, name)
    splits = load(source="table", path=path, label_key="kind", split_key="part", validation="validation", group_by="who")
    assert sizes(splits) == [6, 3, 3] and splits.facts["classes"] == ["9", "10"]
    assert splits.test.groups.tolist() == ["p3"] * 3 and names(splits.test)[0].endswith("my images/x/009.png")
    assert splits.train.labels.tolist() == [1, 0, 1, 0, 1, 0]


def test_a_table_with_absolute_paths_and_text_labels(tmp_path, files):
    rows = [{"image": str(tmp_path / file), "label": ["007", "NA"][number % 2]} for number, file in enumerate(files)]
    assert load(source="table", path=table(tmp_path, rows), test=None, validation=0.25).facts["classes"] == ["007", "NA"]


def test_a_row_whose_file_is_not_there(tmp_path, files):
    rows = [{"image": file, "label": number % 2} for number, file in enumerate([*files, "gone.png", "lost.png"])]
    path = table(tmp_path, rows)
    message = r"labels.csv:14: .*gone.png is not there \(1 more rows name missing files\); relative paths start at the table's folder"
    with pytest.raises(DataError, match=message):
        load(source="table", path=path)
    splits = load(source="table", path=path, on_bad_example="skip", most_skipped=0.5, test=None, validation=0.0,
                  cache_folder=str(tmp_path / "cache"))
    assert sizes(splits) == [12, None, None]
    assert splits.skipped == (f"{tmp_path / 'gone.png'}: not there (labels.csv, row 13)",
                              f"{tmp_path / 'lost.png'}: not there (labels.csv, row 14)")


def test_a_table_without_the_column(tmp_path, files):
    path = table(tmp_path, [{"image": file, "class": "a"} for file in files])
    with pytest.raises(DataError, match=r"labels.csv has no column 'label' \(data.label_key\); there are image and class"):
        load(source="table", path=path)


def test_images_within_a_parquet_table(tmp_path):
    rows = [{"image": {"bytes": encoded(picture(number), "PNG"), "path": None}, "label": number % 2} for number in range(20)]
    splits = load(source="table", path=table(tmp_path, rows, "d.parquet"), test=0.2, validation=0.0)
    assert sizes(splits) == [16, None, 4] and splits.facts["image_size"] == [24, 36]
    assert names(splits.train)[0].startswith(f"{tmp_path / 'd.parquet'} all[")


# --- arrays ---


@pytest.mark.parametrize(("images", "expected", "note"), [
    (np.array([[[0, 255]]], np.uint8), [0, 255], None),
    (np.array([[[0, 65535]]], np.uint16), [0, 255], "the upper 8 of 16 bits are used"),
    (np.array([[[0.0, 1.0]]], np.float32), [0, 255], "floats read as 0..1"),
    (np.array([[[0.0, 254.6]]], np.float64), [0, 255], "floats read as 0..255"),
    (np.array([[[False, True]]]), [0, 255], "read as 0 and 255"),
    (np.array([[[0, 200]]], np.int64), [0, 200], None),
])
def test_stored_pixels_become_8_bits(images, expected, note):
    got, said = to_uint8(images, "x")
    assert got.dtype == np.uint8 and got.shape == (1, 1, 2, 1) and got.ravel().tolist() == expected
    assert said is None if note is None else note in said


@pytest.mark.parametrize(("images", "message"), [
    (np.zeros((2, 3, 8, 8)), r"shape \[2, 3, 8, 8\]; .* it looks channels-first"),
    (np.zeros((2, 8)), r"shape \[2, 8\]; images are \[n, h, w\]"),
    (np.full((1, 2, 2), -1.0), "values from -1 to -1; floats are read as 0..1 or 0..255"),
    (np.full((1, 2, 2), np.nan), "NaN or infinite"),
    (np.full((1, 2, 2), 300), "whole numbers from 300 to 300"),
    (np.full((1, 2, 2), "a"), "pixels are uint8, uint16 or floats"),
])
def test_what_is_no_pixels(images, message):
    with pytest.raises(DataError, match=message):
        to_uint8(images, "x")


def test_npz_with_text_labels_column_labels_and_grey_images(tmp_path):
    labels = np.array([["b"], ["a"]] * 10)
    np.savez(tmp_path / "d.npz", image=np.random.default_rng(0).integers(0, 255, (20, 5, 7), dtype=np.uint8), label=labels)
    splits = load(source="npz", path=str(tmp_path / "d.npz"), test=0.2)
    assert splits.facts["classes"] == ["a", "b"] and splits.facts["image_size"] == [5, 7] and splits.facts["channels"] == 1
    assert sizes(splits) == [14, 2, 4] and splits.train.name(0).startswith(f"{tmp_path / 'd.npz'}:image[")


@pytest.mark.parametrize(("labels", "message"), [
    (np.linspace(0, 1, 4), "array 'label' holds fractions or NaN"),
    (np.zeros((4, 10)), r"array 'label' has shape \[4, 10\]; labels are one value for each example"),
])
def test_labels_that_are_none(tmp_path, labels, message):
    np.savez(tmp_path / "d.npz", image=np.zeros((4, 5, 5), np.uint8), label=labels)
    with pytest.raises(DataError, match=message):
        load(source="npz", path=str(tmp_path / "d.npz"))


# --- TFDS ---


def test_tfds_of_one_size_is_held_decoded(tmp_path):
    splits = load(source="tfds", name="made", data_dir=str(prepare(tmp_path)))
    assert sizes(splits) == [54, 6, 10] and splits.facts["classes"] == ["b", "a"]
    assert splits.train.spec["image"].shape == [8, 8, 3] and splits.train.spec["image"].dtype == tf.uint8
    images, labels = splits.test.arrays["image"], splits.test.labels
    assert np.all(images == images[:, :1, :1, :1]) and np.array_equal(images[:, 0, 0, 0] % 2, labels)
    assert splits.train.name(0).startswith("made/train[")


def test_tfds_of_many_sizes_stays_encoded(tmp_path):
    prepare(tmp_path, sizes=True)
    with pytest.raises(DataError, match=r"the images differ in size .* set data.image_size"):
        load(source="tfds", name="made", data_dir=str(tmp_path))
    splits = load(source="tfds", name="made", data_dir=str(tmp_path), image_size=8, group_by="who", test=0.2)
    assert splits.train.spec["image"].dtype == tf.string and splits.facts["image_size"] == [8, 8]
    assert not set(splits.train.groups) & set(splits.test.groups)


def test_tfds_without_labels_in_test(tmp_path):
    prepare(tmp_path, negative=True)
    with pytest.raises(DataError, match=r"made/test\[0\] has no label \(-1\): split test of made/1.0.0 cannot be evaluated; set data.test"):
        load(source="tfds", name="made", data_dir=str(tmp_path))
    assert load(source="tfds", name="made", data_dir=str(tmp_path), test=0.2).facts["classes"] == ["0", "1"]


def test_tfds_streamed_without_labels_in_test(tmp_path):
    """Refused before training, though labels of a stream are not read ahead."""
    prepare(tmp_path, negative=True)
    with pytest.raises(DataError, match=r"made/test has no labels: one of its examples .* has -1; .*data.test: null"):
        load(source="tfds", name="made", data_dir=str(tmp_path), streaming=True)
    assert load(source="tfds", name="made", data_dir=str(tmp_path), streaming=True, test=0.2).facts["classes"] == ["0", "1"]


def test_tfds_streamed(tmp_path):
    prepare(tmp_path)
    splits = load(source="tfds", name="made", data_dir=str(tmp_path), streaming=True)
    assert isinstance(splits.train, StreamSource) and sizes(splits) == [54, 6, 10] and splits.facts["class_counts"] is None
    labels = [int(each["label"]) for each in splits.train.dataset(0, 0)]
    assert len(labels) == 54 and set(labels) == {0, 1} and splits.facts["statistics_of"] == 54
    everything = sum(len(list(part.dataset(None))) for part in (splits.train, splits.validation))
    assert everything == 60 and any("not stratified" in note for note in splits.notes)
    with pytest.raises(DataError, match=r"data.limit needs data read by number"):
        load(source="tfds", name="made", data_dir=str(tmp_path), streaming=True, limit=5)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "shape", "mean"), [
    ("fashion_mnist", (28, 28, 1), [72.94]), ("cifar10", (32, 32, 3), [125.3, 122.95, 113.87])])
def test_real_data(name, shape, mean):
    need(name)
    splits = load(source="tfds", name=name)
    assert splits.train.spec["image"].shape == shape and len(splits.facts["classes"]) == 10
    assert splits.facts["mean"] == pytest.approx(mean, abs=1.5)
    assert len(set(splits.facts["class_counts"])) == 1 and sizes(splits)[2] == 10_000


def test_images_are_looked_at_once(tmp_path, monkeypatch):
    root = tmp_path / "photos"
    for number in range(12):
        path = root / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(np.full((6, 6, 3), number, np.uint8)).numpy())
    settings = {"task": "vision.classification", "model": {"name": "cnn"},
                "data": {"source": "folder", "path": str(root), "cache_folder": str(tmp_path / "cache")}}
    first = load_images(from_dict(settings))
    monkeypatch.setattr(image_splits, "file_header", lambda path: pytest.fail("a header was read again"))
    monkeypatch.setattr(image_splits, "statistics", lambda *_: pytest.fail("statistics were computed again"))
    assert load_images(from_dict(settings)).facts == first.facts
    monkeypatch.undo()
    for path in root.rglob("*.png"):
        path.write_bytes(tf.io.encode_png(np.full((6, 6, 3), 200, np.uint8)).numpy())
    assert load_images(from_dict(settings)).facts["mean"] != first.facts["mean"]
