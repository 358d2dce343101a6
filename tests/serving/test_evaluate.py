"""Judging again: the same numbers, other splits, other data with the same classes; the training report stays as it is."""

import json

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from pipelines.commands import main
from pipelines.config.train_settings import EarlyStopping
from pipelines.serving.evaluate import experiment_for
from tests import finished_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run.copy(tmp_path_factory.mktemp("evaluate"))


def call(run, *arguments: str):
    return CliRunner().invoke(main.app, ["evaluate", str(run), *arguments])


def metrics(folder):
    return json.loads((folder / "report.json").read_text())["metrics"]


@pytest.fixture(scope="module")
def classes(judged, tmp_path_factory):
    """60 test digits of three classes, in folders named for them."""
    images, labels, _ = judged
    place = tmp_path_factory.mktemp("classes") / "new data"
    for digit in (7, 3, 9):
        (place / str(digit)).mkdir(parents=True)
        for number in np.flatnonzero(labels == digit)[:20]:
            (place / str(digit) / f"{number}.png").write_bytes(images[number])
    return place


def expected(judged, digits=(3, 7, 9)):
    _, labels, probabilities = judged
    rows = np.concatenate([np.flatnonzero(labels == digit)[:20] for digit in digits])
    return (probabilities[rows].argmax(1) == labels[rows]).mean()


def test_test_judged_again_gives_the_same_numbers(run):
    before = {path: path.read_bytes() for path in (run / "report").rglob("*") if path.is_file()}
    done = call(run)
    assert done.exit_code == 0, done.stderr
    old, new = metrics(run / "report"), metrics(run / "report/test")
    assert set(new) == {name for name in old if name.startswith("test/")}
    for name, metric in new.items():
        assert metric == pytest.approx(old[name], abs=1e-6)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert f"tensorboard --logdir {run}\n" in (run / "report/test/report.md").read_text()
    assert "Accuracy" in done.stdout and "95 % interval" in done.stdout and "report/test/report.html" in done.stdout


def test_each_judging_has_its_own_place(run):
    assert call(run, "--split", "validation").exit_code == 0
    assert metrics(run / "report/validation")["validation/accuracy"]["n"] == 144
    assert call(run, "--split", "validation").exit_code == 0
    assert (run / "report/validation-2/report.json").is_file()
    done = CliRunner().invoke(main.app, ["report", str(run)])
    assert "validation-2: validation accuracy" in done.stdout and "test accuracy" in done.stdout


def test_new_folders_with_some_of_the_classes(run, classes, judged):
    done = call(run, "--data", str(classes))
    assert done.exit_code == 0, done.stderr
    found = metrics(run / "report/new-data")
    assert found["new data/accuracy"]["n"] == 60
    assert found["new data/accuracy"]["value"] == pytest.approx(expected(judged), abs=1e-9)


def test_new_data_for_a_run_that_stopped_early(loaded, classes):
    """Without a validation split, early stopping would be a wrong setting; but nothing is trained."""
    early = loaded.experiment.train.model_copy(update={"early_stopping": EarlyStopping(patience=3)})
    made = experiment_for(loaded.experiment.model_copy(update={"train": early}), loaded.task.facts, classes, None, [])
    assert (made.data.source, made.data.validation, made.train.early_stopping) == ("folder", 0.0, None)


def test_new_arrays(run, judged, tmp_path):
    images, labels, _ = judged
    rows = np.concatenate([np.flatnonzero(labels == digit)[:20] for digit in (3, 7, 9)])
    np.savez(tmp_path / "arrays.npz", x=np.stack([tf.io.decode_png(images[row]).numpy() for row in rows]), y=labels[rows])
    done = call(run, "--data", str(tmp_path / "arrays.npz"), "data.image_key=x", "data.label_key=y")
    assert done.exit_code == 0, done.stderr
    assert metrics(run / "report/arrays")["arrays/accuracy"]["value"] == pytest.approx(expected(judged), abs=1e-9)


def test_a_new_table(run, classes, judged, tmp_path):
    rows = [f"{path},{path.parent.name}" for path in sorted(classes.rglob("*.png"))]
    (tmp_path / "list.csv").write_text("\n".join(["image,label", *rows]))
    done = call(run, "--data", str(tmp_path / "list.csv"))
    assert done.exit_code == 0, done.stderr
    assert metrics(run / "report/list")["list/accuracy"]["value"] == pytest.approx(expected(judged), abs=1e-9)


def test_new_data_of_one_class(run, classes, judged, tmp_path):
    place = tmp_path / "sevens"
    place.mkdir()
    (place / "7").symlink_to(classes / "7")
    done = call(run, "--data", str(place))
    assert done.exit_code == 0, done.stderr
    assert metrics(run / "report/sevens")["sevens/accuracy"]["value"] == pytest.approx(expected(judged, (7,)), abs=1e-9)


def test_unknown_classes_are_named(run, classes, tmp_path):
    place = tmp_path / "more"
    place.mkdir()
    for name in ("3", "seven"):
        (place / name).symlink_to(classes / "3")
    done = call(run, "--data", str(place))
    assert done.exit_code == 1
    assert "classes that the run does not know: 'seven'" in done.stderr and "'0', '1', '2'" in done.stderr


def test_settings_of_judging_can_be_given(run):
    done = call(run, "--split", "validation", "evaluate.flip=true")
    assert done.exit_code == 0
    newest = max(run.glob("report/validation*/report.json"), key=lambda path: path.stat().st_mtime_ns)
    assert json.loads(newest.read_text())["settings"]["evaluate"]["flip"] is True


@pytest.mark.parametrize(("arguments", "message"), [
    (("--split", "testt"), "none of a run's splits"), (("--data", "nowhere"), "nowhere is not there"),
    (("train.epochs=2",), "only evaluate"),
    (("data.limit=5",), "only together with --data"), (("evaluate.flips=true",), "did you mean evaluate.flip"),
])
def test_wrong_calls(run, arguments, message):
    done = call(run, *arguments)
    assert done.exit_code == 2 and message in done.stderr


def test_a_split_that_new_data_lack(run, classes):
    done = call(run, "--data", str(classes), "--split", "test")
    assert done.exit_code == 1 and "has no split 'test'" in done.stderr


def test_a_judging_whose_report_cannot_be_written_leaves_nothing(run, monkeypatch):
    from pipelines.reports import report

    before = sorted(path for path in (run / "report").rglob("*"))

    def full(path, value):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(report, "write_json", full)
        assert call(run, "--split", "train").exit_code != 0
    assert sorted(path for path in (run / "report").rglob("*")) == before
    assert call(run, "--split", "train").exit_code == 0 and (run / "report/train/figures").is_dir()


def test_a_run_without_a_test_split_judges_validation(run, tmp_path):
    folder = finished_run.copy(tmp_path)
    text = (folder / "experiment.yaml").read_text()
    assert "test: 0.2" in text
    (folder / "experiment.yaml").write_text(text.replace("test: 0.2", "test: null"))
    done = call(folder, "--split", "test")
    assert done.exit_code == 2 and "has no test split; it has train and validation" in done.stderr
    done = call(folder)
    assert done.exit_code == 0 and "The data have changed since the training" in done.stdout
    assert (folder / "report/validation/report.json").is_file()
