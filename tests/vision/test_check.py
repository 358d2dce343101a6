"""`quartet check` on folders with one of everything that can be wrong."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pipelines.base.files import finite
from tests.vision.synthetic_images import encoded, folder, picture
from vision.check import check_images
from vision.data.splits import load_images
from vision.settings import ImageClassification


def checked(**data):
    return check_images(ImageClassification.model_validate({"task": "vision.classification", "data": data, "model": {"name": "cnn"}}))


def findings(result):
    return {finding.text: finding for finding in result.findings}


def rendered(result, width=160):
    console = Console(file=io.StringIO(), width=width)
    result.render(console)
    return console.file.getvalue()


def test_clean_data_have_nothing_but_notes(tmp_path):
    result = checked(source="folder", path=str(folder(tmp_path, {"a": 30, "b": 20})), test=0.2, validation=0.25)
    assert not result.failed and {finding.level for finding in result.findings} == {"note"}
    train = result.splits["train"]
    assert train["examples"] == 30 and train["unreadable"] == train["identical"] == 0 and train["classes"] == {"a": 18, "b": 12}
    assert train["measures"]["height, px"] == {"min": 24.0, "median": 24.0, "max": 24.0} and train["common"] == [["24 x 36 px", 30]]


@pytest.fixture
def messy(tmp_path):
    """train a: 12 (one a copy within, one unreadable), b: 12 (one a copy of an a), c: 1; val has no c; test: a copy of train's, and d."""
    folder(tmp_path / "train", {"a": 10, "b": 11, "c": 1})
    folder(tmp_path / "val", {"a": 3, "b": 3}, seed=500)
    folder(tmp_path / "test", {"a": 3, "b": 3, "c": 1, "d": 1}, seed=700)
    same = (tmp_path / "train" / "a" / "001.png").read_bytes()
    other_file = encoded(Image.open(io.BytesIO(same)), "WEBP", lossless=True)
    (tmp_path / "train" / "a" / "copy.webp").write_bytes(other_file)
    (tmp_path / "train" / "b" / "wrong.png").write_bytes(same)
    (tmp_path / "test" / "a" / "leak.png").write_bytes(same)
    (tmp_path / "train" / "a" / "broken.png").write_bytes(same[:100])
    (tmp_path / "train" / "b" / "big.png").write_bytes(encoded(picture(99, 50, 80), "PNG"))
    return tmp_path


def test_everything_that_is_wrong_is_found(messy):
    result = checked(source="folder", path=str(messy), validation="val")
    found = findings(result)
    assert result.failed
    errors = [finding for finding in result.findings if finding.level == "error"]
    assert [error.text for error in errors] == [
        "1 example cannot be read: repair or remove them, or set data.on_bad_example: skip",
        "test has 1 class of which train has no example"]
    assert errors[0].details[0].startswith(f"{messy / 'train' / 'a' / 'broken.png'}: a broken or truncated PNG image")
    assert errors[0].details[0].endswith("(train)") and errors[1].details == ("d",)

    across = next(finding for text, finding in found.items() if text.startswith("the same pixels in more than one split, 1 times, 1 "))
    names = ["train/a/001.png (train)", "train/a/copy.webp (train)", "train/b/wrong.png (train)", "test/a/leak.png (test)"]
    assert across.level == "warning" and across.details == (" = ".join(f"{messy}/{name}" for name in names),)
    conflict = found["the same pixels with different labels, 1 times"]
    assert f"{messy}/train/b/wrong.png (train) is b" in conflict.details[0] and "copy.webp (train) is a" in conflict.details[0]
    assert found["the same pixels within train: 2 examples repeat another one"].level == "note"
    assert found["validation has no example of 1 class, so it cannot judge them"].details == ("c",)
    assert found["1 class of train with fewer than 10 examples"].details == ("c: 1",)
    assert any(text.startswith("train is imbalanced: class b has 13 examples, class c has 1;") for text in found)

    train = result.splits["train"]
    assert (train["examples"], train["unreadable"], train["identical"]) == (26, 1, 2)
    assert train["measures"]["width, px"] == {"min": 36.0, "median": 36.0, "max": 80.0}
    assert train["common"] == [["24 x 36 px", 24], ["50 x 80 px", 1]]


def test_the_table_names_everything(messy):
    text = rendered(checked(source="folder", path=str(messy), validation="val"))
    for words in ("train", "26", "error: 1 example cannot be read", "broken.png", "warning: the same pixels", "leak.png", "24, 24, 50"):
        assert words in text, words


def test_the_json_is_whole(messy):
    result = checked(source="folder", path=str(messy), validation="val")
    stored = json.loads(json.dumps(finite(result.to_json())))
    assert stored["failed"] and stored["splits"]["train"]["unreadable"] == 1
    assert [finding["text"] for finding in stored["findings"]] == [finding.text for finding in result.findings]


def test_skipped_examples_are_a_warning(messy):
    found = findings(checked(source="folder", path=str(messy), validation="val", on_bad_example="skip"))
    assert found["1 example cannot be read and will be skipped (data.on_bad_example: skip)"].level == "warning"


def test_what_is_divided_is_what_training_divides(tmp_path):
    folder(tmp_path / "data", {"a": 40, "b": 25})
    for name in ("a/003.png", "a/017.png", "b/011.png"):
        (tmp_path / "data" / name).write_bytes(b"no image")
    settings = {"source": "folder", "path": str(tmp_path / "data"), "image_size": 24, "on_bad_example": "skip",
                "cache_folder": str(tmp_path / "cache")}
    result = checked(**settings)
    trained = load_images(ImageClassification.model_validate({"task": "vision.classification", "data": settings, "model": {"name": "cnn"}}))
    assert {name: (facts["examples"], facts["fingerprint"]) for name, facts in result.splits.items()} == {
        name: (facts["examples"], facts["fingerprint"]) for name, facts in trained.facts["splits"].items()}
    assert sum(facts["examples"] for facts in result.splits.values()) == 62
    assert result.findings[0].details == trained.skipped and len(trained.skipped) == 3


def test_a_table_lists_all_missing_files(tmp_path):
    folder(tmp_path, {"a": 12})
    rows = [*(f"a/{number:03d}.png,{number % 2}" for number in range(12)), "gone.png,1", "lost.png,0"]
    (tmp_path / "t.csv").write_text("image,label\n" + "\n".join(rows))
    result = checked(source="table", path=str(tmp_path / "t.csv"), test=None)
    assert result.failed and [detail.rpartition("/")[2] for detail in result.findings[0].details] == [
        "gone.png: not there (t.csv, row 13)", "lost.png: not there (t.csv, row 14)"]


def test_arrays_are_compared_too(tmp_path):
    rng = np.random.default_rng(0)
    train, test = rng.integers(0, 255, (40, 6, 6), dtype=np.uint8), rng.integers(0, 255, (10, 6, 6), dtype=np.uint8)
    test[3] = train[7]
    np.savez(tmp_path / "d.npz", x_train=train, y_train=np.arange(40) % 2, x_test=test, y_test=np.arange(10) % 2)
    result = checked(source="npz", path=str(tmp_path / "d.npz"), validation=0.0)
    warnings = [finding for finding in result.findings if finding.level == "warning"]
    assert len(warnings) == 1 and warnings[0].details == (f"{tmp_path}/d.npz:x_train[7] (train) = {tmp_path}/d.npz:x_test[3] (test)",)


def test_names_that_would_move_the_cursor_are_shown_as_text(tmp_path):
    folder(tmp_path, {"a": 12, "b[bold]": 12})
    (tmp_path / "a" / "x\x1b[2Jy.png").write_bytes(b"")
    text = rendered(checked(source="folder", path=str(tmp_path), test=None, validation=0.0))
    assert "\x1b" not in text and "x\\x1b[2Jy.png" in text and "b[bold]" in text


def test_digits_are_clean():
    result = checked(source="digits", test=0.2)
    assert not result.failed and result.splits["train"]["common"] == [["8 x 8 px", 1294]]


def test_classes_spelled_twice_and_classes_that_are_none(tmp_path):
    from pipelines.data.check import title_findings

    found = title_findings(["HAM", "NA", "ham", "spam"], np.array([3, 2, 30, 10]))
    assert "HAM (3) and ham (30)" in found[0].details and "class NA (2) may mean that there is no label" in found[1].text
