"""Data in memory as files: what is written, that the same data are written once, and how an experiment reads them."""

import numpy as np
import pandas as pd
import pytest

from pipelines.base.errors import DataError
from pipelines.config.load import from_dict, load
from pipelines.data.memory import Recordings, keep, read_from
from pipelines.data.tables import read_table
from quartet.drafts import choose
from quartet.inputs import rows

IMAGES = np.random.default_rng(0).integers(0, 256, [12, 8, 8], np.uint8)
LABELS = np.arange(12) % 3


def test_arrays_are_kept_once_under_a_name_of_their_content(tmp_path):
    kept = keep((IMAGES, LABELS), tmp_path)
    assert kept.path.parent == tmp_path and kept.source == "npz" and not kept.splits
    written = kept.path.stat().st_mtime_ns
    again = keep((list(IMAGES), LABELS.tolist()), tmp_path)
    assert again.path == kept.path and kept.path.stat().st_mtime_ns == written
    assert keep((IMAGES, (LABELS + 1) % 3), tmp_path).digest != kept.digest
    with np.load(kept.path, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["x"], IMAGES) and np.array_equal(arrays["y"], LABELS)


def test_splits_keep_their_names_and_objects_of_text_are_texts(tmp_path):
    labels = np.array(["a", "b", "c"] * 4, object)
    kept = keep({"train": (IMAGES[:8], labels[:8]), "val": (IMAGES[8:], labels[8:])}, tmp_path)
    assert kept.splits == ("train", "validation")
    with np.load(kept.path, allow_pickle=False) as arrays:
        assert sorted(arrays) == ["x_train", "x_validation", "y_train", "y_validation"]
        assert arrays["y_validation"].tolist() == labels[8:].tolist()


def test_a_frame_keeps_its_columns_without_its_index(tmp_path):
    frame = pd.DataFrame({"user": [1, 2, 3], "item": ["a", "b", None], "rating": [1.5, 2.0, np.nan]}, index=[7, 8, 9])
    table = read_table(keep(frame, tmp_path).path)
    assert table.to_pydict() == {"user": [1, 2, 3], "item": ["a", "b", None], "rating": [1.5, 2.0, None]}
    assert keep(frame.reset_index(drop=True), tmp_path).path == keep(frame, tmp_path).path
    assert keep({"user": [1, 2, 3], "item": ["a", "b", "c"]}, tmp_path).columns == ("user", "item")


def test_texts_with_splits_are_a_table_with_a_column_for_them(tmp_path):
    kept = keep({"train": (["one", "two"], ["x", "y"]), "test": (pd.Series(["three"]), pd.Series(["x"]))}, tmp_path)
    assert read_table(kept.path).to_pydict() == {"text": ["one", "two", "three"], "label": ["x", "y", "x"],
                                                 "split": ["train", "train", "test"]}


def test_images_of_several_sizes_and_recordings_are_files_with_a_table(tmp_path):
    kept = keep(([np.zeros([4, 6, 3], np.uint8), np.zeros([5, 5], np.uint8)], ["a", "b"]), tmp_path)
    assert read_table(kept.path)["file"].to_pylist() == ["files/000000.png", "files/000001.png"]
    assert all((kept.path.parent / name).is_file() for name in read_table(kept.path)["file"].to_pylist())
    import soundfile

    waves = [np.linspace(-1, 1, 50, dtype=np.float32), np.arange(60, dtype=np.int16)]
    kept = keep((Recordings(waves, rate=8000), ["yes", "no"]), tmp_path)
    found, rate = soundfile.read(kept.path.parent / "files/000000.wav", dtype="float32")
    assert rate == 8000 and np.array_equal(found, waves[0])
    assert np.array_equal(soundfile.read(kept.path.parent / "files/000001.wav", dtype="int16")[0], waves[1])


@pytest.mark.parametrize(("data", "message"), [
    ((IMAGES, LABELS[:5]), "12 inputs and 5 labels"),
    (([], []), "no examples"),
    (IMAGES, "data in memory are"),
    ({"validation": (IMAGES, LABELS)}, "no split 'train'"),
    (([np.zeros(9)], ["a"]), "quartet.Recordings"),
    ((np.zeros([2, 3, 3, 3, 3]), [0, 1]), "shape [3, 3, 3, 3]"),
    ((Recordings([np.zeros(9, np.int32)], 8000), ["a"]), "int16"),
    (([np.zeros([3, 3]), np.zeros([4, 4])], [0, 1]), "uint8"),
    ((IMAGES, np.array([object()] * 12)), "object"),
    ({"train": (IMAGES, LABELS), "test": (["a"], ["b"])}, "several kinds"),
    ({"train": {"split": ["a"]}, "test": {"split": ["b"]}}, "a column 'split'"),
])
def test_what_is_not_understood_is_named(data, message, tmp_path):
    with pytest.raises(DataError) as failed:
        keep(data, tmp_path)
    assert message in str(failed.value)
    assert not any(tmp_path.iterdir())


def test_an_experiment_reads_them_by_the_columns_there_are(tmp_path):
    frame = pd.DataFrame({"user": [1], "item": [2], "rating": [3.0], "time": [4]})
    experiment = load("recsys/movielens_rating", check_paths=False).experiment
    data = read_from(experiment, keep({"train": frame, "test": frame}, tmp_path))["data"]
    assert (data["source"], data["user_key"], data["rating_key"], data["split_key"]) == ("table", "user", "rating", "split")
    assert data["name"] is None and data["test"] == "test"
    chosen = choose("vision/cifar10_cnn", {"train.epochs": np.int64(2)}, (IMAGES, LABELS), tmp_path)
    assert chosen.experiment.data.source == "npz" and chosen.experiment.train.epochs == 2 and chosen.name == "vision/cifar10_cnn"
    assert [one.partition("=")[0] for one in chosen.changes] == ["train.epochs", "data"]
    assert from_dict(chosen.experiment.model_dump(mode="python")) == chosen.experiment


def test_rows_to_predict_may_hold_several_kinds_of_values():
    frame = pd.DataFrame({"text": ["a", 5, None], "count": [1, 2, 3]})
    assert list(rows(frame)) == [{"text": "a", "count": 1}, {"text": 5, "count": 2}, {"text": None, "count": 3}]
