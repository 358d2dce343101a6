"""Predictions: the answers of the evaluation, in order; what cannot be read is named and the rest is answered."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.base.errors import DataError
from pipelines.commands import main
from pipelines.data.reasons import reason
from pipelines.serving.output import Prediction, Shown, write_csv, write_jsonl, write_table
from pipelines.serving.predict import Predictor
from tests import finished_run
from tests.finished_run import ROOT, environment

pytestmark = pytest.mark.slow


BROKEN = "a broken or truncated PNG image, or a kind of PNG that TensorFlow cannot read"


@pytest.fixture(scope="module")
def folder(judged, tmp_path_factory):
    """The test digits as files; five of the names have more than ASCII, and four files cannot be read."""
    place = tmp_path_factory.mktemp("images")
    images, _, _ = judged
    for number, image in enumerate(images):
        (place / f"{number:03d}.png").write_bytes(image)
    for number, name in enumerate(("übung", "数字", "с пробелом", "a,b\"c", "émoji 🙂")):
        (place / f"{name}.PNG").write_bytes(images[number])
    broken = place / "broken"
    broken.mkdir()
    (broken / "half.png").write_bytes(images[0][:60])
    (broken / "empty.png").write_bytes(b"")
    (broken / "text.jpg").write_bytes(b"this is no image")
    (broken / "locked.png").write_bytes(images[0])
    (broken / "scan.tif").write_bytes(b"II*\0" + images[0])
    (broken / "notes.txt").write_text("no image")
    return place


@pytest.fixture(scope="module")
def predictor(loaded):
    return Predictor(loaded, batch=50)


def call(*arguments: str):
    return CliRunner().invoke(main.app, ["predict", str(finished_run.run()), *arguments])


def test_answers_are_those_of_the_evaluation_in_order(predictor, folder, judged):
    _, _, probabilities = judged
    paths = [str(folder / f"{number:03d}.png") for number in range(len(probabilities))]
    found = list(predictor.predict(paths[::-1]))
    assert [one.name for one in found] == paths[::-1]
    assert np.abs(np.stack([one.values["probabilities"] for one in found[::-1]]) - probabilities).max() <= 1e-5


def test_broken_inputs_stand_where_they_came_and_the_rest_is_answered(predictor, folder):
    names = ["000.png", "broken/half.png", "001.png", "broken/empty.png", "missing.png", "002.png", "broken/text.jpg"]
    found = list(predictor.predict([str(folder / name) for name in names]))
    assert [one.name for one in found] == [str(folder / name) for name in names]
    errors = {name: one.error for name, one in zip(names, found) if one.error}
    assert errors == {"broken/half.png": BROKEN, "broken/empty.png": "the file is empty",
                      "missing.png": "No such file or directory", "broken/text.jpg": "not a JPEG, PNG, BMP, GIF or WebP image"}
    assert all(one.values["label"] for one in found if not one.error)


def test_reading_ahead_is_bounded(predictor, folder, monkeypatch):
    read = 0

    def endless(inputs):
        nonlocal read
        content = (folder / "000.png").read_bytes()
        while True:
            read += 1
            yield str(read), {"image": content}

    monkeypatch.setattr(predictor.run.task.input.requests, "read", endless)
    answers = predictor.predict([])
    for _ in range(500):
        next(answers)
    answers.close()
    assert read <= 500 + predictor.batch + predictor.chunk * (2 * predictor.workers + 2)


def test_csv_has_a_row_for_each_input_and_survives_any_name(folder, tmp_path):
    done = call(str(folder), "--format", "csv", "--top", "2", "--probabilities")
    assert done.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 359 + 5 + 5
    names = {os.path.relpath(row["input"], folder) for row in rows}
    assert {"übung.PNG", "数字.PNG", "a,b\"c.PNG", "émoji 🙂.PNG", "broken/half.png"} <= names
    good = next(row for row in rows if row["input"].endswith("000.png"))
    assert good["label"] == good["top_1"] and float(good["probability_1"]) >= float(good["probability_2"])
    assert sum(float(good[f"p_{digit}"]) for digit in range(10)) == pytest.approx(1, abs=1e-5)
    bad = next(row for row in rows if row["input"].endswith("half.png"))
    assert bad["error"] == BROKEN and bad["label"] == ""
    assert f"half.png: cannot be read: {BROKEN}" in done.stderr
    assert "365 of 369 answered" in done.stderr and "a second; 4 could not be read" in done.stderr
    assert "scan.tif: cannot be read: not a JPEG, PNG" in done.stderr and "ignored files that are not images: 1 .txt" in done.stderr


def test_json_lines_are_written_whole_to_a_file(folder, tmp_path):
    target = tmp_path / "answers.jsonl"
    done = call(str(folder / "0*.png"), "--output", str(target), "--top", "3")
    assert done.exit_code == 0 and done.stdout == ""
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 100 and [row["input"] for row in rows] == sorted(row["input"] for row in rows)
    assert rows[0]["top"][0]["label"] == rows[0]["label"] and len(rows[0]["top"]) == 3
    again = call(str(folder / "000.png"), "--output", str(target))
    assert again.exit_code == 2 and "--replace" in again.stderr and len(target.read_text().splitlines()) == 100
    assert call(str(folder / "000.png"), "--output", str(target), "--replace").exit_code == 0
    assert len(target.read_text().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]


def test_the_table_is_for_reading(folder):
    done = call(str(folder / "000.png"), str(folder / "数字.PNG"), str(folder / "broken/text.jpg"), "--top", "2")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "label" in lines[0] and "best 2" in lines[0] and "error" in lines[0]
    assert "数字.PNG" in lines[3] and "%" in lines[3] and "not a JPEG" in lines[4]


@pytest.mark.parametrize(("inputs", "status", "says"), [
    (("broken/text.jpg", "broken/empty.png"), 1, "0 of 2 answered"), (("nothing*.png",), 1, "no input is there"),
    (("missing.png",), 1, "0 of 1"),
])
def test_status_1_only_where_nothing_could_be_read(folder, inputs, status, says):
    done = call(*(str(folder / name) for name in inputs))
    assert done.exit_code == status and says in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8 exist on Linux only")
def test_a_name_that_is_not_utf_8(folder, judged, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.png")
    with open(path, "wb") as file:
        file.write(judged[0][0])
    done = call(str(tmp_path), "--format", "jsonl")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["input"].endswith("caf�.png")


ASK = """
import json, runpy, sys
sys.argv = ["quartet", *json.loads(sys.argv[1])]
try:
    runpy.run_module("quartet", run_name="__main__")
except SystemExit as end:
    print("MODULES", json.dumps({"status": end.code, "heavy": sorted({"tensorflow", "keras", "sklearn", "matplotlib"} & set(sys.modules))}))
"""


def test_a_process_of_its_own_imports_no_plots_and_no_scikit_learn(folder):
    """Keras imports them where they are, for functions of its own: a quarter of the time of the command."""
    inputs = [str(folder / name) for name in ("数字.PNG", "broken/half.png")]
    call = ["predict", str(finished_run.run()), *inputs, "--format", "jsonl"]
    done = subprocess.run([sys.executable, "-c", ASK, json.dumps(call)], capture_output=True, text=True, cwd=ROOT, env=environment(),
                          check=False)
    said = done.stdout + done.stderr
    found = json.loads(next(line for line in said.splitlines() if line.startswith("MODULES ")).removeprefix("MODULES "))
    assert found["heavy"] == ["keras", "tensorflow"] and not found["status"], said
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert rows[0]["input"].endswith("数字.PNG") and rows[0]["label"] and rows[1]["error"] == BROKEN
    assert "1 of 2 answered" in said and "cuda" not in said


def test_outputs_of_other_tasks_are_written_too():
    answers = [Prediction("a", {"text": "one\ntwo", "seconds": 1.5, "codes": np.array([1, 2])}), Prediction("b", error="too short")]
    shown = Shown.of({"text": 1, "seconds": 1, "codes": 2}, None)
    out = io.StringIO()
    write_csv(answers, shown, out)
    assert list(csv.reader(io.StringIO(out.getvalue()))) == [
        ["input", "text", "seconds", "codes", "error"], ["a", "one\ntwo", "1.5", "[1, 2]", ""], ["b", "", "", "", "too short"]]
    out = io.StringIO()
    write_jsonl(answers, shown, out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"input": "a", "text": "one\ntwo", "seconds": 1.5, "codes": [1, 2]}, {"input": "b", "error": "too short"}]
    out = io.StringIO()
    write_table(answers, shown, out)
    assert "one\\ntwo" in out.getvalue() and "too short" in out.getvalue()


BAD, GOOD = (Prediction("t.csv:2", error="1 field", fields={"id": None, "label": None}),
             Prediction("t.csv:3", {"label": "good"}, fields={"id": "7", "label": "bad"}))
GONE = Prediction("gone.csv", error="No such file")


def csv_of(*answers):
    out = io.StringIO()
    write_csv(answers, Shown.of({"label": 1}, None), out)
    return list(csv.reader(io.StringIO(out.getvalue())))


def test_the_columns_of_a_table_stay_whatever_its_first_row():
    assert csv_of(GONE, BAD, GOOD, GONE) == [
        ["id", "label", "predicted_label", "error"], ["", "", "", "gone.csv: No such file"], ["", "", "", "t.csv:2: 1 field"],
        ["7", "bad", "good", ""], ["", "", "", "gone.csv: No such file"]]
    assert csv_of(GONE) == [["input", "label", "error"], ["gone.csv", "", "No such file"]]
    out = io.StringIO()
    write_jsonl([BAD, GOOD, Prediction("t.csv:4", {"label": "good"}, fields={"label": "x", "predicted_label": "y"})],
                Shown.of({"label": 1}, None), out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"id": None, "label": None, "error": "t.csv:2: 1 field"}, {"id": "7", "label": "bad", "predicted_label": "good"},
        {"label": "x", "predicted_label": "y", "predicted_predicted_label": "good"}]


def test_tables_of_different_columns_are_no_one_csv():
    for other in (Prediction("u.csv:2", {"label": "good"}, fields={"name": "x", "label": "bad"}), Prediction("a text", {"label": "good"})):
        with pytest.raises(DataError, match=r"not those before it \(id and label\), and a CSV has one heading: .* --format jsonl"):
            csv_of(GOOD, other)
    with pytest.raises(DataError, match=r"not those before it \(input\)"):
        csv_of(Prediction("a text", {"label": "good"}), GOOD)


def test_reasons_are_one_plain_line():
    class OpError(Exception):
        message = "{{function_node __inference_f_1}} jpeg::Uncompress failed.\n\t [[{{node DecodeJpeg}}]] [Op:__inference_f_1]"

    assert reason(OpError()) == "a broken or truncated JPEG image, or a kind of JPEG that TensorFlow cannot read"
    for message, kind in (("Invalid PNG. Failed to initialize decoder.", "PNG"), ("Failed to decode WebP image.", "WebP"),
                          ("Invalid GIF data (size 10), failed to open gif file: No screen descriptor detected", "GIF"),
                          ("Incomplete bmp content, requires at least 32 bytes to find the header size", "BMP"),
                          ("Input size should match (header_size + row_size * abs_height) but they differ by -2", "BMP")):
        OpError.message = message
        assert f"truncated {kind} image" in reason(OpError())
    OpError.message = "Graph execution error:\n\nDetected at node X defined at (most recent call last):\n  File\nInvalid\n\t [[{{node X}}]]"
    assert reason(OpError()) == "Invalid"
    OpError.message = "{{function_node f}} assertion failed: [the file is empty]\n\t [[{{node Assert}}]]"
    assert reason(OpError()) == "the file is empty"
    assert reason(FileNotFoundError(2, "No such file or directory", "x")) == "No such file or directory"
    assert reason(ValueError()) == "ValueError"
