"""Files of searches that no search wrote: the report, the journal, what trials left."""

import json

import pytest
from typer.testing import CliRunner

from pipelines.base.errors import ConfigError
from pipelines.commands import main
from pipelines.tuning.search_folder import Journal, check_events
from pipelines.tuning.trials import read_result
from tests.hostile.records import ESCAPE, METRIC, text, with_

TRIAL = {"trial": 1, "setting": 1, "run": "trials/01", "values": {"train.epochs": 3}, "to_epoch": None, "value": 0.9, "seconds": 3.0}
SEARCH = {"task": "vision.classification", "experiment": "vision/digits", "search": "search", "objective": "validation/accuracy",
          "direction": "max", "algorithm": "random", "seconds": 9.0, "workers": 1, "importance": None, "comparison": None,
          "trials": [TRIAL],
          "best": {"trial": 1, "value": 0.9, "values": {"train.epochs": 3}},
          "repeats": {"best": {"metrics": {"test/accuracy": METRIC}, "spread": {"test/accuracy": {"mean": 0.9, "std": 0.1, "n": 3}}}}}
WRONG = [
    ("objective", 3), ("direction", "up"), ("best", None), ("best|value", "0.9"), ("best|trial", []), ("trials", {"1": TRIAL}),
         ("trials", [3]), ("trials", [{**TRIAL, "value": "x"}]), ("trials", [{**TRIAL, "seconds": -1.0}]),
         ("trials", [{**TRIAL, "values": []}]),
         ("trials", [{**TRIAL, "reason": ["x"]}]), ("importance", []), ("importance", {"shares": {}, "fit": "x", "trials": 3}),
         ("importance", {"shares": {}, "fit": 0.5, "trials": 3, "more": 1}), ("repeats", []), ("repeats|best", {"metrics": {}}),
         ("comparison", {"rows": [1]}), ("search", "../../x"), ("experiment", None)]


@pytest.fixture
def search(tmp_path):
    (tmp_path / "search/report").mkdir(parents=True)
    (tmp_path / "search/search.yaml").write_text("task: vision.classification\n")
    return tmp_path / "search"


def report(search, content: bytes):
    (search / "report/search.json").write_bytes(content)
    return CliRunner().invoke(main.app, ["report", str(search)])


def test_a_sound_report_of_a_search(search):
    done = report(search, text(with_(SEARCH, "trials", [TRIAL, {**TRIAL, "trial": 2, "setting": 2, "value": None, "reason": ESCAPE}])))
    assert done.exit_code == 0 and "best of 2 trials: trial 1" in done.output and not set(done.output) & set("\x1b\x07\x9b"), done.exception


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"{}", b"\xff", *(text(with_(SEARCH, *each)) for each in WRONG)])
def test_a_report_that_is_none(search, content):
    done = report(search, content)
    assert done.exit_code == 2 and not isinstance(done.exception, Exception) and "search.json: " in done.stderr, done.exception


BEGIN = {"event": "begin", "objective": "accuracy", "direction": "max", "precision": "float32", "elapsed": 1.0}
START = {"event": "start", "trial": 1, "places": {"a": 1}, "setting": 1, "epochs": None, "peers": [], "elapsed": 2.0}
END = {"event": "end", "trial": 1, "status": "completed", "value": 0.9, "seconds": 3.0, "elapsed": 5.0}


def test_a_journal():
    check_events([BEGIN, START, {**START, "trial": 2, "setting": 1, "peers": [1]}, END], "journal.jsonl")
    check_events([], "journal.jsonl")


@pytest.mark.parametrize("events", [
    [START], [BEGIN, BEGIN], [BEGIN, END], [BEGIN, START, START], [BEGIN, {**START, "setting": 9}], [BEGIN, {**START, "peers": [4]}],
    [BEGIN, {**START, "trial": "1"}], [BEGIN, {**START, "places": []}], [{**BEGIN, "direction": "up"}], [{**BEGIN, "precision": 16}],
    [BEGIN, START, {**END, "value": "x"}], [BEGIN, START, {**END, "seconds": None}], [BEGIN, {"event": "held", "trial": 1, "worker": "w"}],
    [BEGIN, {"event": "party"}]])
def test_a_journal_that_is_none(tmp_path, events):
    with pytest.raises(ConfigError, match=r"journal.jsonl, line \d: .*begin anew with --fresh"):
        check_events(events, "journal.jsonl")


def test_lines_that_are_no_events(tmp_path):
    for line in ("3", "{}", '{"event": 3}', "[" * 50_000):
        (tmp_path / "journal.jsonl").write_text(f"{line}\n{json.dumps(BEGIN)}\n")
        with pytest.raises(ConfigError, match=r"line 1: not an event"):
            Journal(tmp_path / "journal.jsonl")


@pytest.mark.parametrize("content", [b"[]", b"{}", b"{", text({"status": "fine"}), text({"status": "completed", "value": "x"}),
                                     text({"status": "completed", "metrics": {"a": 1}}), text({"status": "failed", "reason": 3})])
def test_a_result_that_is_none(tmp_path, content):
    (tmp_path / "1.result.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"1\.result\.json: "):
        read_result(tmp_path / "1.result.json", 0, tmp_path / "log.txt")
    assert read_result(tmp_path / "2.result.json", -9, tmp_path / "log.txt")["status"] == "failed"
