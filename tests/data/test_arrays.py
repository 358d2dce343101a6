"""Arrays in .npz files: names, splits, and nothing unpickled."""

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.data.arrays import read_npz

ROLES, SHORT = {"image": "image", "label": "label"}, {"image": "x", "label": "y"}
SETTINGS = {"image": "data.image_key", "label": "data.label_key", "group": "data.group_by"}
X, Y = np.arange(12).reshape(3, 2, 2), np.array([0, 1, 0])


def read(path, roles=None):
    return read_npz(path, roles or ROLES, SHORT, settings=SETTINGS)


@pytest.mark.parametrize(("names", "splits"), [
    (["image", "label"], ["all"]),
    (["images", "labels"], ["all"]),
    (["x", "y"], ["all"]),
    (["image_train", "label_train", "image_test", "label_test"], ["test", "train"]),
    (["x_train", "y_train", "x_val", "y_val", "x_test", "y_test"], ["test", "train", "validation"]),
    (["train_images", "train_labels", "val_images", "val_labels"], ["train", "validation"]),
])
def test_usual_names(tmp_path, names, splits):
    np.savez(tmp_path / "d.npz", **{name: Y if "label" in name or name[0] == "y" else X for name in names})
    found = read(tmp_path / "d.npz")
    assert sorted(found) == splits
    assert all(np.array_equal(part.values["image"], X) and np.array_equal(part.values["label"], Y) for part in found.values())


def test_objects_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    np.savez(tmp_path / "d.npz", image=X, label=np.array([Trap(), 1, 2], object))
    with pytest.raises(DataError, match=r"array 'label' holds Python objects .* which would have to be unpickled, and that can run code"):
        read(tmp_path / "d.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(("arrays", "message"), [
    ({"image": X, "lable": Y}, "has no array 'label' \\(data.label_key\\); there are image and lable; did you mean lable\\? It may be"),
    ({"a": X}, "has no array 'image'"),
    ({"image": X, "label": Y[:2]}, "arrays differ in length: image 3, label 2"),
    ({"image": X[:0], "label": Y[:0]}, "array 'image' is empty"),
    ({"image": np.float32(1), "label": Y}, "array 'image' is a single value"),
])
def test_arrays_that_do_not_fit(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "d.npz")


def test_files_that_are_no_npz(tmp_path):
    np.save(tmp_path / "d.npy", X)
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 cut")
    for name, message in (("d.npy", "is not a .npz file"), ("cut.npz", "is not a .npz file"), ("absent.npz", "does not exist")):
        with pytest.raises(DataError, match=message):
            read(tmp_path / name)


def test_groups_are_another_role(tmp_path):
    np.savez(tmp_path / "d.npz", image=X, label=Y, patient=np.array(["a", "b", "a"]))
    found = read(tmp_path / "d.npz", {**ROLES, "group": "patient"})
    assert found["all"].values["group"].tolist() == ["a", "b", "a"]
    with pytest.raises(DataError, match=r"has no array 'site' \(data.group_by\)"):
        read(tmp_path / "d.npz", {**ROLES, "group": "site"})
