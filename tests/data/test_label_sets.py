"""Several labels an example: every way to write them down gives the same sets; what train lacks is refused, or left out and named."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.load import from_dict
from pipelines.data.check import Read
from pipelines.data.divide import divide
from pipelines.data.label_sets import coded, labels_of_array, labels_of_cell, labels_of_ones
from pipelines.data.source import ArraySource
from vision.data.sources import open_data
from vision.data.splits import load_images

SETS = [("a", "b"), ("b",), (), ("a",), ("a", "b")]


def experiment(**data):
    return from_dict({"task": "vision.classification", "model": {"name": "cnn"}, "data": {"labels": "many", "validation": 0.0, **data}}, [],
                     check_paths=False)


@pytest.fixture
def pictures(tmp_path):
    for number in range(len(SETS)):
        image = np.full((8, 8, 3), 40 * number, np.uint8)
        (tmp_path / f"{number}.png").write_bytes(tf.io.encode_png(image).numpy())
    return tmp_path


def stored(opened, split="all"):
    """The labels of each example by name, as its entry `label` has them."""
    source = opened.load(split)
    labels = source.gather(tf.range(len(source), dtype=tf.int64))["label"]
    assert labels.dtype == tf.float32 and np.array_equal(labels, source.sets) and source.labels is None
    return [tuple(opened.classes[place] for place in np.flatnonzero(row)) for row in labels.numpy()]


def test_a_cell_names_its_labels_once():
    assert labels_of_cell(" b ;a;b;", ";") == ("b", "a") and labels_of_cell("['x', 'y']", ";") == ("x", "y")
    assert labels_of_cell(["x", None, ""], ";") == ("x",) and labels_of_cell(None, ";") == labels_of_cell("", ";") == ()
    assert labels_of_ones({"a": [1, "0", 1.0], "b": ["1", 0, None]}) == [("a", "b"), (), ("a",)]
    assert labels_of_array(np.array([[1, 0], [0, 0]])) == [("0",), ()] and labels_of_array([["x"], []]) == [("x",), ()]
    with pytest.raises(DataError, match="of 0 and 1"):
        labels_of_array(np.array([[0.5, 0.0]]))


def test_numbers_of_new_labels_follow_the_known_ones():
    classes = ["b"]
    assert coded([("a", "b"), (), ("c",)], classes).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]] and classes == ["b", "a", "c"]
    assert coded(["c", "b"], classes).tolist() == [2, 0]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "columns", "npz", "folder", "own"])
def test_every_form_gives_the_same_sets(form, pictures, monkeypatch):
    names = [f"{number}.png" for number in range(len(SETS))]
    if form in ("csv", "columns"):
        heads = "image,label" if form == "csv" else "image,a,b"
        cells = [";".join(one) if form == "csv" else ",".join(str(int(name in one)) for name in "ab") for one in SETS]
        (pictures / "t.csv").write_text("\n".join([heads, *(f"{name},{cell}" for name, cell in zip(names, cells))]))
        more = {"label_key": ["a", "b"]} if form == "columns" else {}
        opened = open_data(experiment(source="table", path=str(pictures / "t.csv"), **more).data)
    elif form == "jsonl":
        rows = [json.dumps({"image": name, "label": list(one)}) for name, one in zip(names, SETS)]
        (pictures / "t.jsonl").write_text("\n".join(rows))
        opened = open_data(experiment(source="table", path=str(pictures / "t.jsonl")).data)
    elif form == "parquet":
        pq.write_table(pa.table({"image": names, "label": [list(one) for one in SETS]}), pictures / "t.parquet")
        opened = open_data(experiment(source="table", path=str(pictures / "t.parquet")).data)
    elif form == "npz":
        hot = np.array([[int(name in one) for name in "ab"] for one in SETS])
        np.savez(pictures / "t.npz", image=np.zeros((len(SETS), 8, 8, 3), np.uint8), label=hot)
        opened = open_data(experiment(source="npz", path=str(pictures / "t.npz")).data)
        assert stored(opened) == [tuple(str("ab".index(name)) for name in one) for one in SETS]  # columns have no names there
        return
    elif form == "folder":
        for name, one in zip(names, SETS):
            for label in one:
                (pictures / "tree" / label).mkdir(parents=True, exist_ok=True)
                (pictures / "tree" / label / name).write_bytes((pictures / name).read_bytes())
        (pictures / "tree" / "b" / "3.png").write_bytes((pictures / "0.png").read_bytes())  # of one name, and not the same
        opened = open_data(experiment(source="folder", path=str(pictures / "tree")).data)
        assert sorted(stored(opened)) == [("a",), ("a", "b"), ("a", "b"), ("b",), ("b",)]
        return
    else:
        columns = {"all": {"image": np.zeros((len(SETS), 8, 8, 3), np.uint8), "label": [list(one) for one in SETS]}}
        monkeypatch.setattr("vision.data.sources.SOURCES.build", lambda data, numbers: columns)
        opened = open_data(experiment(source="npz", path="x.npz").data)
    assert stored(opened) == SETS


def test_rare_labels_are_in_every_part():
    draw = np.random.default_rng(0)
    sets = (draw.random((300, 4)) < [0.6, 0.3, 0.05, 0.04]).astype(np.float32)
    source = ArraySource({"label": sets}, labels=sets)
    data = experiment(source="npz", path="x.npz", validation=0.25, test=0.25).data
    train, validation, test, notes = divide(["all"], lambda _: source, data, "here")
    for part in (train, validation, test):
        assert (part.sets.sum(0) >= 1).all() and part.sets.mean(0) == pytest.approx(sets.mean(0), abs=0.04)
    assert "stratified" in notes[0]


def test_labels_that_train_lacks(pictures):
    rows = [*((number, labels, "train") for number, labels in enumerate(("z;m", "m", ""))), (3, "a;z", "test"), (4, "z", "test")]
    path = pictures / "t.csv"
    path.write_text("\n".join(["image,label,split", *(f"{number}.png,{labels},{split}" for number, labels, split in rows)]))
    data = {"source": "table", "path": str(path), "split_key": "split", "test": "test"}
    with pytest.raises(DataError, match=r"test has labels of which train has no example: a \(such as .*3\.png\).*bad_example: skip"):
        load_images(experiment(**data))
    splits = load_images(experiment(**data, on_bad_example="skip"))
    assert splits.facts["classes"] == ["m", "z"] and splits.facts["class_counts"] == [2, 1]
    assert splits.facts["splits"]["train"]["classes"] == {"m": 2, "z": 1}
    assert splits.test.gather(tf.constant([0], tf.int64))["label"].numpy().tolist() == [[0, 1]] and splits.test.sets.tolist() == [[0, 1]]
    assert len(splits.skipped) == 1 and splits.skipped[0].endswith("3.png: label a is not in train")
    assert Read([], np.zeros(1)).titles(splits.test, 0, ["m", "z"]) == "z"


def test_train_without_any_label_is_refused(pictures):
    (pictures / "t.csv").write_text("image,label,other\n0.png,,\n1.png,,\n")
    with pytest.raises(DataError, match="train has examples of no label"):
        load_images(experiment(source="table", path=str(pictures / "t.csv"), test=None))
