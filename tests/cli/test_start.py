"""The command line answers at once: help and wrong calls without TensorFlow, expected failures in plain words with their status."""

import errno
import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from pipelines.base.errors import DataError, QuartetError
from pipelines.commands import main
from pipelines.commands.shell import reported
from tests.finished_run import ROOT, environment, quartet
from tests.vision.synthetic_images import folder

pytestmark = pytest.mark.slow

HELP = [("--help",), ("train", "--help"), ("predict", "--help"), ("runs", "compare", "--help")]
WRONG = {
    ("train", "vision/digits", "train.epoch=3"): "override 'train.epoch=3': train.epoch: no such setting; did you mean train.epochs?",
    ("train", "vision/digit"): "did you mean vision/digits?",
    ("train",): "name an experiment",
    ("check", "nowhere.yaml"): "nowhere.yaml: there is no such file",
    ("evaluate", "nowhere"): "nowhere: there is no such run",
    ("predict", "nowhere", "a.png"): "nowhere: there is no such run",
    ("export", "nowhere"): "nowhere: there is no such run",
    ("report", "nowhere"): "nowhere: there is no such run",
    ("runs", "--runs", "nowhere"): "nowhere: there is no such folder",
    ("runs", "compare", "nowhere"): "nowhere: there is no such run",
    ("schema", "vision.nothing"): "'vision.nothing' is no task",
    ("new", "sound", "--data", "."): "'sound' is no domain",
    ("train", "--nonsense"): "No such option",
    ("nonsense",): "No such command",
}
DOMAIN = [("vision.train", "--help"), ("vision.train", "train.epoch=3")]
ASK = """
import contextlib, io, json, runpy, sys, time
for module, *arguments in json.loads(sys.argv[1]):
    sys.argv, said, began, status = [module, *arguments], io.StringIO(), time.process_time(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            status = end.code
    heavy = sorted({"tensorflow", "keras", "sklearn", "matplotlib"} & set(sys.modules))
    print(json.dumps([status, said.getvalue(), time.process_time() - began, heavy]))
"""


@pytest.fixture(scope="module")
def asked() -> dict[tuple[str, ...], tuple[int, str]]:
    """Call -> (exit status, everything printed); all in one process, each at once and without TensorFlow."""
    calls = [*(("quartet", *call) for call in (*HELP, *WRONG)), *DOMAIN]
    done = subprocess.run([sys.executable, "-c", ASK, json.dumps(calls)], capture_output=True, text=True, cwd=ROOT, env=environment(),
                          check=True)
    found = {}
    for call, line in zip(calls, done.stdout.splitlines(), strict=True):
        status, said, seconds, heavy = json.loads(line)
        assert seconds < 1.0 and not heavy, call
        found[call] = status, said
    return found


@pytest.mark.parametrize("call", HELP)
def test_help_is_quick_and_needs_no_tensorflow(asked, call):
    status, said = asked[("quartet", *call)]
    assert status == 0 and "Usage:" in said


def test_help_of_a_domain_is_that_of_training_and_without_config_it_takes_its_quick_start(asked):
    status, said = asked[DOMAIN[0]]
    assert status == 0 and "Usage: python -m vision.train" in said and "--fresh" in said
    status, said = asked[DOMAIN[1]]
    assert status == 2 and "did you mean train.epochs?" in said


@pytest.mark.parametrize("call", WRONG)
def test_wrong_calls_end_with_2_at_once(asked, call):
    status, said = asked[("quartet", *call)]
    assert status == 2 and WRONG[call] in said and "Traceback" not in said


def test_the_schema_is_json_and_new_never_writes_over(tmp_path):
    done = CliRunner().invoke(main.app, ["schema", "vision.classification", "-o", str(tmp_path / "schema.json")])
    assert done.exit_code == 0
    assert json.loads((tmp_path / "schema.json").read_text())["$schema"]
    there = tmp_path / "mine.yaml"
    there.write_text("mine")
    done = CliRunner().invoke(main.app, ["new", "vision", "--data", str(tmp_path), "-o", str(there)])
    assert done.exit_code == 2 and there.read_text() == "mine"


@pytest.mark.parametrize(("failure", "status"), [
    (QuartetError("the disk is full"), 1), (DataError("row 3 is empty"), 1), (KeyboardInterrupt(), 130)])
def test_expected_failures_end_with_their_status(failure, status):
    app = typer.Typer()

    @app.command()
    @reported
    def fails() -> None:
        raise failure

    done = CliRunner().invoke(app)
    assert done.exit_code == status
    assert (str(failure) or "interrupted") in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [
    ("train", "vision/digits", "--runs", "FILE/runs"),
    ("tune", "vision/digits", "tune.space={train.seed: {int: [1, 99]}}", "--runs", "FILE/runs"),
    ("new", "vision", "--data", "images", "-o", "FILE/mine.yaml"), ("schema", "-o", "FILE/schema.json")])
def test_a_place_that_cannot_be_written_is_said_plainly(arguments, tmp_path):
    folder(tmp_path / "images", {"a": 6, "b": 6})
    (tmp_path / "file").write_text("no folder")
    done = quartet(*(argument.replace("FILE", str(tmp_path / "file")) for argument in arguments), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"{tmp_path / 'file'}/" in done.stderr
    assert ": cannot be written: a file stands where its folder should be; fix that, or choose another place" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_said_plainly(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = CliRunner().invoke(main.app, ["schema", "-o", str(tmp_path / "schema.json")])
    assert done.exit_code == 1 and not list(tmp_path.iterdir())
    said = f"{tmp_path / 'schema.json'}: cannot be written: the disk is full; free some space and give the same command again"
    assert said in done.stderr


def test_a_defect_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("pipelines.config.reference.json_schema", lambda task: 1 / 0)
    done = CliRunner().invoke(main.app, ["schema"])
    assert isinstance(done.exception, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        main.main(["schema"])


def test_printed_names_cannot_move_the_cursor():
    done = quartet("report", "no\x1b[2Jwhere\nReally", anew=True)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr and "\\x1b[2J" in done.stderr
