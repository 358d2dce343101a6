"""`quartet new`: what is written for real shapes of data is accepted by `load`; the rest is refused with what to do."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from vision.data.headers import Header, image_header
from vision.models import build
from vision.new import training_settings
from vision.settings import ImageClassification


def picture(path: Path, width: int = 32, height: int = 32, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (width, height), (90, 60, 30) if mode == "RGB" else 90).save(path)


def written(data: Path | str) -> ImageClassification:
    text = new("vision", data, file="mine.yaml")
    assert "#   python -m vision.train mine.yaml" in text.splitlines()
    experiment = from_text(text).experiment
    assert isinstance(experiment, ImageClassification)
    return experiment


STORED = [
    *(("PNG", mode) for mode in ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")), *(("JPEG", mode) for mode in ("1", "L", "RGB", "CMYK")),
    *(("BMP", mode) for mode in ("1", "L", "P", "RGB", "RGBA")), *(("GIF", mode) for mode in ("L", "P", "RGB")),
    *(("WEBP", mode) for mode in ("L", "RGB", "RGBA")),
]


@pytest.mark.parametrize(("kind", "mode"), STORED)
def test_header_as_pillow_sees_it(kind: str, mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (37, 21)).save(buffer, kind)
    header = image_header(buffer.getvalue())
    assert header is not None and header[:2] == (37, 21)
    if kind in ("PNG", "JPEG"):
        assert header.channels == (1 if mode in ("L", "LA", "1", "I;16") else 3)


@pytest.mark.parametrize("save", [
    {"format": "JPEG", "progressive": True, "exif": b"Exif\x00\x00" + b"\xff\xd8" * 20_000},
    {"format": "JPEG", "comment": b"\xff\xc0" * 100},
    {"format": "WEBP", "lossless": True}, {"format": "WEBP", "exif": b"Exif\x00\x00MM"},
])
def test_header_behind_other_segments(save: dict) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (300, 123)).save(buffer, **save)
    assert image_header(buffer.getvalue()) == Header(300, 123, 3)


def test_header_of_broken_files() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20)).save(buffer, "JPEG")
    for end in range(0, 160, 7):
        image_header(buffer.getvalue()[:end])
    assert image_header(b"") is None
    assert image_header(b"\xff\xd8" + b"\x00" * 50) is None
    assert image_header(b"<html>") is None


def test_folder_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        picture(tmp_path / f"pets/cat/{number}.JPG", 300 + number, 260)
        picture(tmp_path / f"pets/dog/more/{number}.png", 400, 280)
    (tmp_path / "pets/.cache").mkdir()
    monkeypatch.chdir(tmp_path)
    experiment = written("pets")
    data = experiment.data
    assert (data.source, data.path, data.validation, data.test, data.image_size, data.channels) == ("folder", "pets", 0.1, 0.2, 96, 3)
    assert experiment.model.name == "fast" and experiment.augment.flip and experiment.augment.random_resized_crop


def test_folder_with_splits(tmp_path: Path) -> None:
    for split, count in (("Train", 12), ("val", 3), ("testing", 3), ("unlabelled", 2)):
        for number in range(count):
            picture(tmp_path / f"{split}/0/{number}.png", 28, 28, "L")
            picture(tmp_path / f"{split}/1/{number % 2}.png", 28, 28, "L")
    experiment = written(tmp_path)
    data = experiment.data
    assert (data.validation, data.test, data.image_size, data.channels) == ("val", "testing", 28, 1)
    assert experiment.model.name == "fast" and not experiment.augment.flip  # digits have no mirror images
    assert experiment.loss.class_weights == "none"  # one class has six times the other, which is said
    made = new("vision", tmp_path)
    assert "6 times the smallest" in made and "# Not used: folder unlabelled (4 files)" in made


@pytest.mark.parametrize(("size", "count", "seen", "widths"), [
    ((4, 9), 10, (9, 4), [64]),  # too small for a stage of `fast`
    ((8, 8), 10, 8, [64, 128]),
    ((20, 12), 10, [12, 20], [64, 128, 256]),
    ((100, 100), 10, 64, [64, 128, 256]),
    ((120, 90), 10, [56, 72], [64, 128, 256]),  # as many pixels as 64 x 64, of their own shape
    ((320, 240), 10, [80, 112], [64, 128, 256]),
])
def test_size_and_network_for_it(tmp_path: Path, size: tuple[int, int], count: int, seen: int | list[int], widths: list[int]) -> None:
    for name in ("one", "other"):
        for number in range(count):
            picture(tmp_path / f"{name}/{number}.png", *size, mode="L")
    experiment = written(tmp_path)
    assert (experiment.data.image_size, experiment.data.channels) == (list(seen) if isinstance(seen, tuple) else seen, 1)
    assert experiment.model.widths == widths  # type: ignore[union-attr]
    height, width = (seen, seen) if isinstance(seen, int) else seen
    assert build(experiment.model, image_size=(height, width), channels=1, classes=2, mean=[90.0], std=[9.0]).output_shape == (None, 2)


@pytest.mark.parametrize(("images", "edge", "steps", "seconds"), [
    (100, 32, (200, 1000), 120), (1000, 32, (400, 1500), 120), (5000, 64, (600, 2500), 480), (20_800, 28, (800, 3000), 300),
    (60_000, 32, (1000, 3000), 480), (45_000, 64, (500, 1000), 480), (400_000, 32, (1000, 3000), 480),
])
def test_training_takes_minutes_for_few_and_for_many(images: int, edge: int, steps: tuple[int, int], seconds: int) -> None:
    """`fast` trains on some 1.5 million pixels a second on two cores."""
    settings = {name: value for name, value, _ in training_settings(images, (edge, edge))}
    epochs, batch = settings["epochs"], settings["batch_size"]
    assert steps[0] <= epochs * -(-images // batch) <= steps[1]
    assert epochs * images * edge * edge / 1.5e6 <= seconds


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_table(tmp_path: Path, kind: str) -> None:
    rows = [{"patient": number // 2, "scan file": f"images/{number}.png", "diagnosis": "ab"[number % 2],
             "part": "test" if number > 15 else "train"} for number in range(20)]
    for row in rows:
        picture(tmp_path / row["scan file"], 48, 40)
    path = tmp_path / f"labels.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    data = written(path).data
    assert (data.source, data.image_key, data.label_key) == ("table", "scan file", "diagnosis")
    assert (data.split_key, data.group_by) == ("part", "patient")
    assert (data.validation, data.test, data.image_size) == (0.1, "test", [40, 48])


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    images = np.zeros((30, 8, 8), np.uint8)
    np.savez(path, x_train=images, y_train=np.arange(30) % 3, x_test=images[:6], y_test=np.arange(6) % 3)
    experiment = written(path)
    data = experiment.data
    assert (data.source, data.image_key, data.label_key, data.test, data.image_size, data.channels) == ("npz", "x", "y", "test", 8, 1)
    assert experiment.model.name == "fast" and experiment.model.widths == [64, 128]
    np.savez(path, train_images=images, train_labels=np.ones((30, 1)), val_images=images[:3], val_labels=np.ones((3, 1)))
    data = written(path).data
    assert (data.image_key, data.label_key, data.validation, data.test) == ("images", "labels", "val", 0.2)
    np.savez(path, images=np.full((30, 40, 32, 3), [0.2, 0.4, 0.9]), kinds=np.array(["a", "b", "c"] * 10))
    data = written(path).data
    assert (data.image_key, data.label_key, data.test, data.image_size, data.channels) == ("images", "kinds", 0.2, [40, 32], 3)


def one_folder(path: Path) -> Path:
    for name in "ab":
        picture(path / f"unpacked/{name}/1.png")
    return path


def loose(path: Path) -> Path:
    picture(path / "1.png")
    return path


def one_class(path: Path) -> Path:
    picture(path / "only/1.png")
    return path


def empty_class(path: Path) -> Path:
    (path / "c").mkdir()
    return few(path)


def stray(path: Path) -> Path:
    picture(path / "stray.png")
    return few(path)


def few(path: Path) -> Path:
    picture(path / "a/1.png")
    picture(path / "b/1.png")
    return path


def text(name: str, content: str) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        picture(path / "1.png")
        (path / name).write_text(content, encoding="utf-8")
        return path / name

    return make


def pickled(path: Path) -> Path:
    np.savez(path / "x.npz", x=np.array([{}], object))
    return path / "x.npz"


def shapeless(path: Path) -> Path:
    np.savez(path / "x.npz", a=np.zeros((9, 8, 8)), b=np.zeros((9, 8, 8)), n=np.zeros(9))
    return path / "x.npz"


def nameless(path: Path) -> Path:
    (path / "a").mkdir()
    (path / "b").mkdir()
    for name in ("a", "b"):
        (path / name / "1.jpg").write_bytes(b"<html>")
    return path


@pytest.mark.parametrize(("make", "says"), [
    (lambda path: path / "pats", "does not exist"),
    (loose, "1 images lie in it with no folder for each class; move each class into a folder of its name"),
    (lambda path: path, "there are no images (.jpg, "),
    (one_class, "needs two or more folders with images, one for each class; there is only only"),
    (one_folder, "did you mean "),
    (empty_class, "c: holds no images; fill or remove it, because each folder is a class"),
    (stray, "stray.png: lies beside the class folders"),
    (few, "2 images are too few to train on"),
    (nameless, "1.jpg: is no JPEG, PNG, BMP, GIF or WebP"),
    (text("a.zip", ""), "is an archive; unpack it and name the folder"),
    (text("a.png", ""), "is one image; name the folder that holds a folder for each class"),
    (text("a.docx", ""), "not understood; give a folder with a folder for each class, a table (.csv, "),
    (text("a.csv", "name,label\nx,y\n"), "no column names image files (.jpg, "),
    (text("a.csv", "file;label\n1.png;y\n"), "column label has one value only"),
    (text("a.csv", "file,label\n1.png,cat\n2.png,dog\n"), "2.png, which is not there; files are looked for from the table's folder"),
    (text("a.csv", "file,label\n1.png,cat\n1.png,cat\n"), "column label has one value only"),
    (text("a.csv", "file,u,v\n" + "1.png,0,0\n1.png,1,1\n" * 3), "the class is not clear (it may be u or v); name it with --label"),
    (text("a.jsonl", "{"), "a.jsonl:1: not JSON"),
    (text("a.parquet", "x"), "a.parquet cannot be read"),
    (text("a.csv", ""), "a.csv is empty"),
    (text("a.npz", "x"), "is not an .npz file"),
    (pickled, "array x holds Python objects, which are not read"),
    (shapeless, "needs one array of images [n, height, width]"),
])
def test_refused(make: Callable[[Path], Path], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        new("vision", make(tmp_path))
    assert says in str(caught.value)


def test_grey_pictures_that_are_stored_with_colours_are_grey(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for kind, end in (("grey", "jpg"), ("grey2", "png"), ("colour", "jpg")):
        for name in ("a", "b"):
            (tmp_path / kind / name).mkdir(parents=True)
            for number in range(6):
                pixels = np.repeat(noise.integers(0, 255, [28, 28, 1], np.uint8), 3, -1)
                pixels[..., 0] //= 2 if kind == "colour" and number % 2 else 1
                Image.fromarray(pixels).save(tmp_path / kind / name / f"{number}.{end}")
        assert written(tmp_path / kind).data.channels == (3 if kind == "colour" else 1)
    images = np.repeat(noise.random([20, 9, 9, 1]), 3, -1)
    np.savez(tmp_path / "grey.npz", x=images, y=np.arange(20) % 2)
    np.savez(tmp_path / "colour.npz", x=images * [1.0, 0.5, 1.0], y=np.arange(20) % 2)
    assert [written(tmp_path / f"{kind}.npz").data.channels for kind in ("grey", "colour")] == [1, 3]


def test_a_table_without_header(tmp_path: Path) -> None:
    for number in range(12):
        picture(tmp_path / f"{number}.png")
    (tmp_path / "a.csv").write_text("".join(f"{number}.png;{'cat' if number % 2 else 'dog'}\n" for number in range(12)))
    data = written(tmp_path / "a.csv").data
    assert (data.columns, data.image_key, data.label_key) == (["file", "label"], "file", "label")


@pytest.mark.parametrize("digits", [1, 3])
def test_a_table_in_a_folder_and_files_beside_it(tmp_path: Path, digits: int) -> None:
    for number in range(32):
        picture(tmp_path / f"photos/{number:0{digits}}.jpg")
    rows = [f"{number:0{digits}},{'ab'[number % 2]},{number % 4}\n" for number in range(32)]
    (tmp_path / "train.csv").write_text("id_code,breed,fold\n" + "".join(rows))
    data = written(tmp_path).data
    assert data.path == str(tmp_path / "train.csv") and data.file_pattern == "photos/{}.jpg" and data.label_key == "breed"
    assert (data.split_key, data.validation, data.test) == ("fold", 0.1, "3")


def test_images_that_lie_elsewhere_than_their_table(tmp_path: Path) -> None:
    for number in range(20):
        picture(tmp_path / "data" / "images" / f"{number}.png")
    (tmp_path / "data" / "labels").mkdir()
    (tmp_path / "data" / "labels" / "t.csv").write_text("image,kind\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20)))
    assert written(tmp_path / "data").data.file_pattern == written(tmp_path / "data/labels/t.csv").data.file_pattern == "../images/{}.png"
    (tmp_path / "data" / "images").rename(tmp_path / "far")
    (tmp_path / "data" / "labels" / "t.csv").write_text("image,kind\n" + "".join(f"{n}.png,{'ab'[n % 2]}\n" for n in range(20)))
    with pytest.raises(DataError, match="--files PATTERN says where they lie"):
        new("vision", tmp_path / "data/labels/t.csv")
    made = new("vision", tmp_path / "data/labels/t.csv", columns={"files": "../../far/{}"})
    assert "file_pattern: ../../far/{}" in made or "file_pattern: '../../far/{}'" in made


def test_classes_and_people_in_names(tmp_path: Path) -> None:
    for number in range(40):
        picture(tmp_path / f"flat/{'cat' if number % 2 else 'dog'}.{number}.jpg")
        picture(tmp_path / f"signs/{number % 2}/{['anna', 'ben'][number // 2 % 2]}_{number}.jpg")
    data = written(tmp_path / "flat").data
    assert data.source == "folder" and data.label_pattern and data.group_by is None
    data = written(tmp_path / "signs").data
    assert data.group_by == "name" and data.group_pattern


def test_sizes_are_of_all_images(tmp_path: Path) -> None:
    for number in range(300):
        picture(tmp_path / f"{'ab'[number % 2]}/{number}.png", 400 if number == 201 else 32, 32)
    assert "32 x 32 to 400 x 32 px, 2 sizes; " in new("vision", tmp_path)


def test_columns_that_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "x.png")
    (tmp_path / "a.csv").write_text("file,kind,shade\n" + "".join(f"x.png,{number % 2},{number % 3}\n" for number in range(12)))
    assert "label_key: shade" in new("vision", tmp_path / "a.csv", columns={"label": "shade"})
    with pytest.raises(DataError, match=r"--label: .* has no column 'shad'.*did you mean shade"):
        new("vision", tmp_path / "a.csv", columns={"label": "shad"})
    with pytest.raises(ConfigError, match="--user: vision does not ask for it"):
        new("vision", tmp_path / "a.csv", columns={"user": "kind"})
    with pytest.raises(ConfigError, match="--task: vision has no task 'ranking'"):
        new("vision", tmp_path / "a.csv", task="ranking")


def test_domains() -> None:
    with pytest.raises(ConfigError, match="did you mean vision"):
        new("visoin", ".")
