"""Runs that no training left: each command that reads them says what is wrong with which file, and lists the others all the same."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.commands import main
from pipelines.monitoring.metrics_log import MetricsLog, read_rows
from pipelines.runs.folder import RunFolder
from pipelines.runs.listing import list_runs
from tests.hostile.records import ESCAPE, METRIC, REPORT, REPORTS, make_run, text, with_


def call(*arguments: str):
    return CliRunner().invoke(main.app, list(arguments))


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "vision/digits/sound")
    return tmp_path


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_that_is_none(runs, name):
    folder = make_run(runs / "vision/digits/bad", REPORTS[name])
    for command in (["report"], ["report", "vision/digits/sound"], ["runs", "--runs", str(runs), "compare", "vision/digits/sound"]):
        where = ["--runs", str(runs)] if command[0] == "report" else []
        done = call(*command, "vision/digits/bad", *where)
        assert done.exit_code == 2 and not isinstance(done.exception, Exception), (command, done.exception)
        assert "report.json: " in done.stderr and "damaged" in done.stderr, done.stderr
    with pytest.raises(ConfigError, match=r"report\.json: "):
        RunFolder(folder).read_report()
    listed = call("runs", "--runs", str(runs))
    assert listed.exit_code == 0 and "damaged: report/report.json: " in listed.output and "90.0 %" in listed.output
    assert [one["state"] for one in json.loads(call("runs", "--runs", str(runs), "--json", "--sort", "name").output)] == [
        "damaged", "finished"]


def test_the_sound_report_is_read(runs):
    read = RunFolder(runs / "vision/digits/sound").read_report()
    assert {name: read[name] for name in ("task", "timing")} == {name: REPORT[name] for name in ("task", "timing")}
    assert read["metrics"].keys() == REPORT["metrics"].keys()
    for name, metric in REPORT["metrics"].items():
        assert metric.items() <= read["metrics"][name].items()
    assert isinstance(read["timing"]["epochs"], int)
    make_run(runs / "vision/digits/other", text(with_(REPORT, "metrics|test/accuracy|value", None)))
    assert call("runs", "--runs", str(runs), "compare", "vision/digits/sound", "vision/digits/other").exit_code == 0


BROKEN = {
    "experiment.yaml": [b"a: [", b"\xff", b"[" * 5000, b"- 1\n", b"a: 1\na: 2\n", b""],
    "environment.json": [b"{", b"[]", text({"precision": "float8"}), text({"source": {"revision": 3}}), text({"data": [1]})],
    "1.result.json": [b"{", b"[]", text({"status": 3}), text({"status": "failed", "reason": ["x"]})],
    "checkpoints/resume.npz": [b"PK", b"", b"PK\3\4 rubbish"],
}


@pytest.mark.parametrize(("file", "number"), [(file, number) for file in BROKEN for number in range(len(BROKEN[file]))])
def test_other_files_that_are_none(runs, file, number):
    folder = make_run(runs / "vision/digits/bad")
    if file != "environment.json":
        (folder / "report/report.json").unlink()
    (folder / "1.order.json").write_text("{}")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(BROKEN[file][number])
    found = {one.name: one.state for one in list_runs(runs)}
    assert found["sound"] == "finished" and found["bad"] in ("damaged", "finished")
    done = call("runs", "--runs", str(runs), "compare", "vision/digits/sound", "vision/digits/bad")
    assert done.exit_code == 2 and not isinstance(done.exception, Exception), done.exception


def test_pipes_and_folders_in_place_of_files(runs):
    folder = make_run(runs / "vision/digits/bad")
    (folder / "report/report.json").unlink()
    os.mkfifo(folder / "report/report.json")
    assert "report.json: is neither a file nor a folder" in {one.name: one.progress for one in list_runs(runs)}["bad"]
    (folder / "report/report.json").unlink()
    (folder / "report/report.json").mkdir()
    assert {one.name: one.state for one in list_runs(runs)}["bad"] == "damaged"


@pytest.mark.parametrize("line", [
    b'{"step": "1"}', b'{"step": -1}', b'{"step": 1, "epoch": "x"}', b'{"step": 1, "epoch": 1e999}', b"[]", b"3",
    b'{"step": 1, "validation/accuracy": "good"}', b'{"step": 1, "validation/accuracy": [1]}', b"[" * 5000])
def test_lines_of_metrics_that_are_none(runs, line):
    folder = RunFolder(make_run(runs / "vision/digits/bad"))
    (folder.report / "report.json").unlink()
    sound = folder.metrics.read_bytes()
    folder.metrics.write_bytes(line + b"\n" + sound)
    with pytest.raises(QuartetError, match=r"metrics.jsonl, line 1: "):
        read_rows(folder.metrics)
    with pytest.raises(QuartetError, match=r"metrics.jsonl, line 1: "):
        MetricsLog(folder.metrics, resume_step=10)
    assert {one.name: one.metric[1].value for one in list_runs(runs) if one.metric}["bad"] == 0.8
    folder.metrics.write_bytes(sound + line + b"\n")
    assert [row["step"] for row in read_rows(folder.metrics)] == [10]
    tiny = b'{"step": 9, "epoch": 1e-320, "validation/accuracy": 0.8}\n'
    folder.metrics.write_bytes(tiny)
    assert "bad" in {one.name for one in list_runs(runs)}


def test_a_header_that_promises_more_than_the_file_holds(runs):
    """A checkpoint of a hundred bytes whose header speaks of terabytes."""
    import io
    import zipfile

    folder = RunFolder(make_run(runs / "vision/digits/bad"))
    (folder.report / "report.json").unlink()
    file = folder.checkpoints / "resume.npz"
    file.parent.mkdir()
    for shape, dtype in (((10**13,), "|u1"), ((10**6,) * 6, "|u1"), ((3,), "|O"), ((-3,), "|u1")):
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("about.npy", head.getvalue() + b"{}")
        assert {one.name: one.state for one in list_runs(runs)}["bad"] == "damaged"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.npy", b"\0" * 10**6)
    assert "compressed" in {one.name: one.progress for one in list_runs(runs)}["bad"]


def test_nothing_of_a_report_moves_the_cursor(runs):
    report = with_(REPORT, "metrics", {f"test/{ESCAPE}": METRIC})
    make_run(runs / f"vision/digits/{ESCAPE.replace('/', '')}", text(with_(report, "time|shares", {ESCAPE: 1.0})))
    for done in (call("runs", "--runs", str(runs)), call("runs", "--runs", str(runs), "--json"),
                 call("report", next(str(path) for path in (runs / "vision/digits").iterdir() if path.name != "sound"))):
        assert done.exit_code == 0, done.output
        assert not set(done.output) & set("\x1b\x07\x9b"), done.output
