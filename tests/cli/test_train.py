"""Training through the command line: what it says at the end, what it leaves, and how it goes on."""

import json

import pytest

from tests.finished_run import ROOT, SETTINGS, finished, quartet, run

pytestmark = pytest.mark.slow


def test_it_ends_with_the_result_and_what_to_do_with_it():
    runs, done = finished()
    result, compared, *lines = done.stdout.splitlines()[-6:]
    assert result.startswith("test accuracy ") and result.endswith("on 359 examples") and "[" in result
    assert "cheap baseline" in compared
    assert lines[0].startswith("time ") and "step" in lines[0] and "%" in lines[0]
    assert lines[1].split() == ["report", "vision/digits/small/report/report.html"] and (runs / lines[1].split()[1]).is_file()
    assert lines[2].endswith("--logdir vision/digits/small/tensorboard")
    assert lines[3].endswith("predict vision/digits/small INPUT...")


def test_tensorflow_starts_without_chatter():
    _, done = finished()
    for chatter in ("oneDNN", "cuda", "absl::InitializeLog", "AVX"):
        assert chatter not in done.stderr + done.stdout


def test_the_run_says_what_it_was_made_with():
    found = json.loads((run() / "environment.json").read_text())
    assert found["tensorflow"] and found["keras"] and found["numpy"] and found["python"] and found["platform"]
    assert found["precision"] == "float32" and found["devices"] == ["CPU:0"]
    if (ROOT / ".git").exists():
        assert len(found["source"]["revision"]) == 40 and found["source"]["changed"] in (True, False)


def test_the_same_command_on_a_finished_run_says_the_result_again():
    runs, first = finished()
    before = (run() / "report/report.json").stat().st_mtime_ns
    done = quartet("train", "vision/digits", *SETTINGS, "--runs", str(runs), "--name", "small", cwd=runs)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-4:] == first.stdout.splitlines()[-4:]
    assert (run() / "report/report.json").stat().st_mtime_ns == before


def test_another_experiment_of_that_name_is_refused():
    runs, _ = finished()
    done = quartet("train", "vision/digits", "train.epochs=4", "--runs", str(runs), "--name", "small")
    assert done.returncode == 2
    assert "train.epochs: 3 there, 4 now" in done.stderr and "--fresh" in done.stderr
