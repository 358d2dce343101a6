"""Folder per class: layouts, what is left out and said, and an order that no file system decides."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data import folders
from pipelines.data.folders import read_folders


def make(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root


def read(root, **options):
    return read_folders(root, key="image", suffixes={".png", ".jpg"}, kind="image", **options)


def names(source, root):
    return [os.path.relpath(source.name(number), root) for number in range(len(source))]


def test_one_piece(tmp_path):
    found = read(make(tmp_path, "dog/2.png", "dog/10.JPG", "cat/é ü.jpg", "cat/deep/er/x.png"))
    assert found.classes == ["cat", "dog"] and list(found.splits) == ["all"] and not found.notes
    source = found.splits["all"]
    assert names(source, tmp_path) == ["cat/deep/er/x.png", "cat/é ü.jpg", "dog/10.JPG", "dog/2.png"]
    assert source.labels.tolist() == [0, 0, 1, 1]
    some = source.gather(tf.constant([1, 3, 1], tf.int64))
    assert [value.decode() for value in some["image"].numpy()] == ["cat/é ü.jpg", "dog/2.png", "cat/é ü.jpg"]
    assert some["label"].numpy().tolist() == [0, 1, 0]
    one = source.gather(tf.constant([2], tf.int64))
    assert one["image"].shape == (1,) and one["image"].numpy()[0] == b"dog/10.JPG"


def test_splits_by_folder_and_a_test_class_that_train_lacks(tmp_path):
    found = read(make(tmp_path, "Train/b/1.png", "Train/a/1.png", "val/a/1.png", "test/c/1.png", "test/b/1.png"))
    assert sorted(found.splits) == ["Train", "test", "val"] and found.classes == ["a", "b", "c"]
    assert found.splits["test"].labels.tolist() == [1, 2]  # c is a class that only test has: divide refuses it by name


def test_a_class_called_train_is_a_class(tmp_path):
    found = read(make(tmp_path, "train/1.png", "car/1.png"))
    assert found.classes == ["car", "train"] and list(found.splits) == ["all"]


def test_the_order_and_the_split_do_not_depend_on_the_file_system(tmp_path):
    from pipelines.data.split import hold_out

    files = [f"{title}/{number}.png" for title in "abc" for number in range(30)]
    first, second = read(make(tmp_path / "x", *files)), read(make(tmp_path / "y", *reversed(files)))
    held = []
    for found, root in ((first, tmp_path / "x"), (second, tmp_path / "y")):
        source = found.splits["all"]
        split = hold_out(0.2, count=len(source), seed=0, purpose="test", labels=source.labels)
        held.append([names(source, root)[number] for number in split.held])
    assert held[0] == held[1] and len(held[0]) == 18


def test_what_is_ignored_is_counted(tmp_path):
    make(tmp_path, "a/1.png", "a/.hidden.png", "a/notes.txt", "a/Thumbs.db", "b/1.png", "b/2.txt", ".git/x.png", "__MACOSX/a/1.png",
         "README")
    found = read(tmp_path)
    assert len(found.splits["all"]) == 2
    assert found.notes == [f"{tmp_path}: 3 hidden files or folders ignored",
                           f"{tmp_path}: 4 files ignored that are no images (ignored: 2 .txt, 1 no ending, 1 .db)"]


def test_files_of_unknown_name_are_known_by_their_content(tmp_path):
    make(tmp_path, "a/1.png", "a/photo", "b/1.bin", "b/2.txt")
    found = read(tmp_path, sniff=lambda start: start in (b"a/photo", b"b/1.bin"))
    assert names(found.splits["all"], tmp_path) == ["a/1.png", "a/photo", "b/1.bin"]


def test_links_are_followed_but_not_in_circles(tmp_path):
    make(tmp_path / "elsewhere", "1.png", "2.png")
    make(tmp_path / "data", "a/1.png", "b/1.png")
    (tmp_path / "data" / "c").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "data" / "a" / "link.png").symlink_to(tmp_path / "elsewhere" / "1.png")
    (tmp_path / "data" / "b" / "up").symlink_to(tmp_path / "data" / "b", target_is_directory=True)
    found = read(tmp_path / "data")
    assert names(found.splits["all"], tmp_path / "data") == ["a/1.png", "a/link.png", "b/1.png", "c/1.png", "c/2.png"]
    assert [note for note in found.notes if "leads back" in note] == [
        f"{tmp_path / 'data' / 'b' / 'up'}: a link that leads back into its own parents is not followed"]


def test_a_broken_link_is_an_example_that_is_named_when_read(tmp_path):
    make(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    source = read(tmp_path).splits["all"]
    assert "gone.png" in source.name(1) and source.fingerprint()
    with pytest.raises(tf.errors.NotFoundError):
        source.gather(tf.constant([1], tf.int64))


@pytest.mark.parametrize(("files", "message"), [
    (["1.png", "a/1.png"], "image files lie directly in .*, outside of any class folder \\(such as 1.png\\)"),
    (["1.png"], "image files lie directly in"),
    (["x.txt"], "has no class folders; put the images of each class into a folder of its own"),
    (["a/1.png", "b/x.txt"], "/b: the class folder holds no image file \\(ignored: 1 .txt\\); fill or remove it"),
    (["train/a/1.png", "train/b/1.png", "train/1.png", "test/a/1.png"], "image files lie directly in .*train"),
    (["train/a/1.png", "train/b/1.png", "test/1.png"], "image files lie directly in .*test"),
    (["train/a/1.png", "train/b/1.png", "1.png"], "image files lie beside the split folders"),
])
def test_layouts_that_are_refused(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        read(make(tmp_path, *files))


def test_an_empty_class_folder_is_refused(tmp_path):
    make(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "c").mkdir()
    with pytest.raises(DataError, match="/c: the class folder holds no image file; fill or remove it"):
        read(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a folder"):
        read(make(tmp_path, "file") / "file")


def test_groups_are_parent_folders(tmp_path):
    found = read(make(tmp_path, "a/p1/1.png", "a/p2/1.png", "b/p1/1.png"), group_by="folder")
    assert found.splits["all"].groups.tolist() == ["p1", "p2", "p1"]
    with pytest.raises(DataError, match="the groups would be the classes"):
        read(make(tmp_path / "flat", "a/1.png", "b/1.png"), group_by="folder")
    with pytest.raises(DataError, match=r"data.group_by: patient: with source: folder, only 'folder'"):
        read(tmp_path, group_by="patient")


def test_the_fingerprint_follows_the_files(tmp_path):
    make(tmp_path, "a/1.png", "b/1.png")
    first = read(tmp_path).splits["all"].fingerprint()
    assert first == read(tmp_path).splits["all"].fingerprint()
    tmp_path.rename(tmp_path.with_name("moved"))
    assert first == read(tmp_path.with_name("moved")).splits["all"].fingerprint()
    tmp_path.with_name("moved").rename(tmp_path)
    (tmp_path / "a" / "1.png").write_bytes(b"longer than before")
    assert first != read(tmp_path).splits["all"].fingerprint()


def test_a_subset_renumbers(tmp_path):
    source = read(make(tmp_path, "a/1.png", "a/2.png", "b/1.png")).splits["all"].subset([2, 0])
    assert [value.decode() for value in source.gather(tf.constant([0, 1], tf.int64))["image"].numpy()] == ["b/1.png", "a/1.png"]
    assert np.array_equal(source.labels, [1, 0])


# ---- the listing kept -------------------------------------------------------------------------------------


def settled(root):
    """The folder as if nothing had changed in it for an hour."""
    for place, _, files in os.walk(root):
        for name in (*files, "."):
            path = os.path.join(place, name)
            os.utime(path, ns=(os.stat(path).st_mtime_ns - 3600 * 10**9,) * 2)
    return root


def same(one, other):
    assert one.classes == other.classes and one.notes == other.notes and list(one.splits) == list(other.splits)
    for name, source in one.splits.items():
        again = other.splits[name]
        assert source.paths == again.paths and source.fingerprint() == again.fingerprint() and source.stamp() == again.stamp()
        assert source.labels.tolist() == again.labels.tolist()
        assert (None if source.groups is None else source.groups.tolist()) == (None if again.groups is None else again.groups.tolist())


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder whose listing is kept, and a function that reads it and says whether it was walked."""
    root = settled(make(tmp_path / "data", "train/cat/a/é.png", "train/dog/b/2.png", "test/cat/c/3.png", "train/dog/b/x.txt", "train/.hid"))
    walked = []
    really = folders.files_below
    monkeypatch.setattr(folders, "files_below", lambda *given: walked.append(given) or really(*given))

    def again(**options):
        walked.clear()
        found = read(root, cache=tmp_path / "cache", **options)
        return found, bool(walked)

    return root, again


def test_a_folder_is_walked_once(kept):
    root, again = kept
    first, walked = again(group_by="folder")
    assert walked
    second, walked = again(group_by="folder")
    assert not walked
    same(first, second)
    same(read(root, group_by="folder"), second)
    other, walked = again()
    assert walked and other.splits["train"].groups is None


@pytest.mark.parametrize("change", [
    lambda root: make(root, "train/dog/b/new.png"), lambda root: (root / "train/dog/b/2.png").rename(root / "train/dog/b/7.png"),
    lambda root: make(root, "train/owl/1.png"), lambda root: (root / "train/dog/b/2.png").write_bytes(b"other"),
    lambda root: make(root, "loose/later/1.png"), lambda root: (root / "test/cat/c/3.png").unlink()])
def test_a_change_is_seen(kept, change):
    root, again = kept
    (root / "loose").mkdir()
    settled(root)
    again()
    change(root)
    found, walked = again()
    assert walked
    same(read(root), found)


def test_a_folder_that_has_just_changed_is_not_kept(kept):
    root, again = kept
    make(root, "train/cat/now.png")
    assert again()[1] and again()[1]


def test_a_damaged_listing_is_made_anew(kept, tmp_path):
    _, again = kept
    first, _ = again()
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:200])
    second, walked = again()
    assert walked
    same(first, second)
    assert not again()[1]
