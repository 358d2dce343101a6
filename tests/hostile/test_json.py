"""JSON of others: brackets by the thousand, numbers of thousands of digits, bytes that are no text."""

import json
from pathlib import Path

import pytest

from pipelines.base.errors import DataError
from pipelines.base.json_text import TooDeep, parse_json
from pipelines.data import text_rows
from pipelines.data.table_formats import LeftOut
from pipelines.data.tables import read_table
from recsys.data.requests import parsed

DEEP = "[" * 100_000 + "]" * 100_000
ROOT = Path(__file__).parents[2]
# of these the JSON is this program's own, or that of a file which does without the package
OWN = {f"pipelines/{name}.py" for name in (
    "base/json_text", "machine/hardware", "monitoring/tracking/follow",
    "tuning/trial", "tuning/trial_processes", "serving/apart", "outputs/automata", "outputs/regex_process")} | {"quartet/task_testing.py"}


@pytest.mark.parametrize("text", [DEEP, '{"a": ' * 100_000, "[" * 101 + "]" * 101, '{"a": ' * 101 + "1" + "}" * 101])
def test_what_is_too_deep(text):
    with pytest.raises(TooDeep, match="nested deeper than 100 levels"):
        parse_json(text)


def test_what_is_json_and_what_is_not():
    whole = {"a": [1, {"b": None}], "deep": json.loads("[" * 99 + "]" * 99)}
    assert parse_json(json.dumps(whole)) == parse_json(json.dumps(whole).encode()) == whole
    for text, said in (("{", "Expecting property name .* at column 2"), ('[1,\n x', "at line 2, column 2"), ("9" * 5000, "4300 digits"),
                       (b"\xff", "codec can't decode")):
        with pytest.raises(ValueError, match=said):
            parse_json(text)


def test_a_line_of_a_table(tmp_path):
    file = tmp_path / "t.jsonl"
    for wrong in (DEEP, f'{{"text": {DEEP}}}', f'{{"text": {"9" * 5000}}}'):
        file.write_text('{"text": "a", "label": "b"}\n' * 3 + wrong + "\n")
        rows = list(text_rows.records(file, named=True))
        assert [line for line, _ in rows] == [0, 1, 2, 3, 4] and rows[-1][1].startswith("not JSON: "), rows[-1]
        with pytest.raises(DataError, match=r"t\.jsonl:4: not JSON: "):
            read_table(file)
        lost = LeftOut()
        assert read_table(file, left_out=lost).num_rows == 3 and lost.count == 1


def test_a_request():
    with pytest.raises(DataError, match="no JSON: lists or objects are nested"):
        parsed('{"user": ' * 100_000, ["user"], "user")


def test_nothing_else_parses_json_of_others():
    """`json.loads` raises RecursionError, too; only a round trip of one's own values needs no such care."""
    files = {file for package in ("pipelines", "vision", "speech", "nlp", "recsys", "quartet") for file in (ROOT / package).rglob("*.py")}
    roundtrip = ("json.loads(json.dumps(", "events.append(json.loads(line))", "orjson")
    found = {file.relative_to(ROOT).as_posix() for file in files for line in file.read_text().splitlines()
             if "json.load" in line and not any(own in line for own in roundtrip)}
    assert found - OWN == set()
