"""croissant.json: valid for mlcroissant, which reads the examples by it where Croissant has words for them."""

import csv
import json

import mlcroissant
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from extensions.tracking.croissant import FILE, croissant
from pipelines.commands.main import app
from pipelines.config.load import from_dict
from pipelines.config.registry import task_class
from pipelines.data.source import ArraySource
from pipelines.runs.folder import RunFolder
from tests import finished_run
from tests.speech.synthetic_recordings import class_folders

pytestmark = [pytest.mark.slow(seconds=6), pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")]

IMAGES = {"task": "vision.classification", "model": {"name": "cnn"}}
TEXTS = {"task": "nlp.classification", "model": {"name": "bag"}}


def described(settings, name="vision/mine"):
    experiment = from_dict(settings)
    splits = task_class(experiment.task)(experiment).splits()
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return croissant(experiment.data, parts, name=name, task=experiment.task, classes=splits.facts.get("classes") or (), notes=splits.notes)


def checked(found, folder):
    """The description as mlcroissant understands it, from a file in the data's folder."""
    (folder / FILE).write_text(json.dumps(found), encoding="utf-8")
    dataset = mlcroissant.Dataset(jsonld=str(folder / FILE))
    assert not dataset.metadata.ctx.issues.errors
    return dataset


def records(found, title):
    """The records that stand in the description itself."""
    one, = (each for each in found["recordSet"] if each["name"] == title)
    return [{name.partition("/")[2]: value for name, value in record.items()} for record in one["data"]]


def png(number):
    return tf.io.encode_png(np.full((6, 6, 3), number, np.uint8)).numpy()


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    for number in range(24):
        file = root / ("test" if number < 6 else "train") / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(number))
    return root


def test_a_folder_of_classes(photos):
    found = described({**IMAGES, "data": {"source": "folder", "path": str(photos), "validation": 0.25}})
    dataset = checked(found, photos)
    assert found["name"] == "photos" and str(photos) not in json.dumps(found)
    read = list(dataset.records("examples"))
    assert len(read) == 24 and {one["examples/label"] for one in read} == {b"cat", b"dog"}
    assert read[0]["examples/file"].size == (6, 6)
    splits = {one["name"]: one for one in records(found, "splits")}
    assert sum(one["examples"] for one in splits.values()) == 24 and splits["test"]["examples"] == 6
    assert len(splits["test"]["fingerprint"]) == 16
    classes = {one.pop("name"): one for one in records(found, "classes")}
    assert set(classes) == {"cat", "dog"} and classes["cat"]["test"] == 3
    assert sum(sum(one.values()) for one in classes.values()) == 24


def test_classes_in_names(photos, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for file in photos.rglob("*.png"):
        (flat / f"{file.parent.name}.{file.name}").write_bytes(file.read_bytes())
    found = described({**IMAGES, "data": {"source": "folder", "path": str(flat), "label_pattern": r"([a-z]+)\.\d+\.png$", "test": 0.25}})
    assert {one["examples/label"] for one in checked(found, flat).records("examples")} == {b"cat", b"dog"}


def test_tables_of_texts(tmp_path):
    rows = [(f"request number {number}, please", ("room", "bill")[number % 2]) for number in range(40)]
    for name, delimiter in (("comma.csv", ","), ("semicolon.csv", ";"), ("tabs.tsv", "\t")):
        with open(tmp_path / name, "w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *rows])
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    for name in ("comma.csv", "tabs.tsv", "lines.jsonl", "semicolon.csv"):
        found = described({**TEXTS, "data": {"source": "table", "path": str(tmp_path / name), "test": 0.2}})
        dataset = checked(found, tmp_path)
        file, = found["distribution"]
        assert file["contentUrl"] == name and len(file["sha256"]) == 64
        assert ("Fields are separated by ';'." in file.get("description", "")) == (name == "semicolon.csv")
        if name == "semicolon.csv":
            continue
        read = list(dataset.records("examples"))
        assert [(one["examples/text"].decode(), one["examples/label"].decode()) for one in read] == rows
    (tmp_path / "comma.csv").write_text("\n".join(f"{label},{text[:7]}" for text, label in rows))
    keys = {"text_key": 1, "label_key": 0}
    found = described({**TEXTS, "data": {"source": "table", "path": str(tmp_path / "comma.csv"), **keys, "test": 0.2}})
    checked(found, tmp_path)
    assert "has no header row" in found["description"]


def test_tables_of_images(photos, tmp_path):
    files = sorted(photos.rglob("*.png"))
    table = photos / "list.csv"
    table.write_text("file,kind\n" + "".join(f"{file.relative_to(photos)},{file.parent.name}\n" for file in files))
    keys = {"image_key": "file", "label_key": "kind"}
    found = described({**IMAGES, "data": {"source": "table", "path": str(table), **keys, "test": 0.25}})
    dataset = checked(found, photos)
    assert [one["includes"] for one in found["distribution"][1:]] == [["**/*.png"]]
    assert [one["examples/file"].decode() for one in dataset.records("examples")] == [str(file.relative_to(photos)) for file in files]
    inside = tmp_path / "inside.parquet"
    for images in ([file.read_bytes() for file in files], [{"bytes": file.read_bytes(), "path": None} for file in files]):
        pa.parquet.write_table(pa.table({"file": images, "kind": [file.parent.name for file in files]}), inside)
        found = described({**IMAGES, "data": {"source": "table", "path": str(inside), **keys, "test": 0.25}})
        read = list(checked(found, tmp_path).records("examples"))
        assert len(found["distribution"]) == 1 and read[0]["examples/file"].size == (6, 6)


def test_interactions_with_items(tmp_path):
    rng = np.random.default_rng(0)
    events = sorted({(int(user), int(item)) for user, item in rng.integers(0, 12, (200, 2))})
    (tmp_path / "events.csv").write_text("user,item,stars,day\n" + "".join(
        f"u{user},{item},{1 + number % 5},{number}\n" for number, (user, item) in enumerate(events)))
    (tmp_path / "items.csv").write_text("item,name,price\n" + "".join(f"{item},item {item},{item}.5\n" for item in range(12)))
    found = described({"task": "recsys.ranking", "model": {"name": "dcn"}, "data": {
        "source": "table", "path": str(tmp_path / "events.csv"), "items": str(tmp_path / "items.csv"), "rating_key": "stars",
        "time_key": "day", "title_key": "name", "numbers": ["price"]}})
    dataset = checked(found, tmp_path)
    read = list(dataset.records("examples"))
    assert len(read) == len(events) and read[0]["examples/stars"] == 1.0 and read[0]["examples/user"] == b"u0"
    assert [one["items/price"] for one in dataset.records("items")] == [item + 0.5 for item in range(12)]


def test_recordings_in_folders(tmp_path):
    class_folders(tmp_path, {"on": 10, "off": 10})
    found = described({"task": "speech.classification", "model": {"name": "ds_cnn"}, "data": {"source": "folder", "path": str(tmp_path)}})
    checked(found, tmp_path)
    files, = found["distribution"]
    assert files["includes"] == ["**/*.wav"] and files["encodingFormat"] == ["audio/x-wav"]
    content, label = found["recordSet"][0]["field"]
    assert content["dataType"] == "sc:AudioObject" and label["source"]["transform"]["regex"] == "^([^/]+)/"


def test_what_croissant_cannot_say_is_said_in_words(tmp_path):
    np.savez(tmp_path / "digits.npz", image=np.zeros((30, 8, 8), np.uint8), label=np.arange(30) % 3)
    found = described({**IMAGES, "data": {"source": "npz", "path": str(tmp_path / "digits.npz"), "test": 0.2}})
    checked(found, tmp_path)
    assert "an array in a .npz file" in found["description"] and found["distribution"][0]["name"] == "digits.npz"
    assert [one["dataType"] for one in found["recordSet"][0]["field"]] == ["sc:ImageObject", "sc:Text"]
    embedded = described({**IMAGES, "data": {"source": "digits"}})
    checked(embedded, tmp_path)
    assert embedded["distribution"] == [] and "from no file. An example has image, label." in embedded["description"]


def test_a_run_describes_its_data(tmp_path):
    folder = finished_run.run()
    found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    checked(found, tmp_path)
    fingerprints = {one["name"]: one["fingerprint"] for one in records(found, "splits")}
    assert fingerprints.items() >= RunFolder(folder).read_environment()["data"].items() and "test" in fingerprints


@pytest.mark.realdata
def test_a_tfds_data_set(tmp_path):
    found = described({**TEXTS, "data": {"source": "tfds", "name": "clinc_oos", "label_key": "intent"}})
    checked(found, tmp_path)
    assert {"train", "test", "validation"} <= {one["name"] for one in found["distribution"]}
    assert found["citeAs"] and "tfds.load('clinc_oos/" in found["description"]
    assert [one["name"] for one in found["recordSet"][0]["field"]] == ["text", "intent"]
    assert {one["name"]: one["examples"] for one in records(found, "splits")}["test"] == 4500


def test_of_many_classes_the_count_alone_is_named():
    names = [f"product number {number:06d}" for number in range(100_000)]
    source = ArraySource({"x": np.zeros(5, np.float32)}, labels=np.arange(5) * 100, fingerprint="f")
    experiment = from_dict({"task": "vision.classification", "model": {"name": "cnn"}, "data": {"source": "digits"}})
    found = croissant(experiment.data, {"train": source}, name="x", task="t", classes=names)
    assert len(json.dumps(found)) < 10_000 and "It has 100,000 classes, too many to be named here" in found["description"]
    few = croissant(experiment.data, {"train": source}, name="x", task="t", classes=names[:1000])
    assert few["recordSet"][-1]["name"] == "classes" and found["recordSet"][-1]["name"] == "splits"


def test_check_describes_data_that_can_be_trained_on(tmp_path):
    for number in range(24):
        place = tmp_path / "photos" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        image = np.random.default_rng(number).integers(0, 255, (8, 8, 3), np.uint8)
        (place / f"{number}.png").write_bytes(tf.io.encode_png(image).numpy())
    (tmp_path / "mine.yaml").write_text(f"task: vision.classification\ndata: {{source: folder, path: {tmp_path / 'photos'}}}\n"
                                        "model: {name: cnn, widths: [4]}\n")
    call = ["check", str(tmp_path / "mine.yaml"), "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.stderr
    described = json.loads((tmp_path / "runs/vision/mine/croissant.json").read_text())
    assert described["name"] == "photos" and "croissant.json" in done.stdout
    (tmp_path / "photos/cat/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    assert CliRunner().invoke(app, [*call, "-o", str(tmp_path / "found.json")]).exit_code == 1
    assert not list(tmp_path.glob("*croissant.json"))  # training would stop
