"""Interactions from tables: ids as given, times and numbers understood, and errors that name row, column, value and remedy."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pipelines.base.errors import DataError
from pipelines.data.times import read_times
from recsys.data.sources import encode, read_log
from tests.recsys.small_tables import ROWS, experiment, table


def test_ids_survive_as_numbers_and_as_texts(tmp_path):
    log = read_log(experiment(table(tmp_path)).data)
    assert log.user_ids.values.tolist() == [7, 9, 12, 30] and log.user_ids.numeric
    assert log.item_ids.values.tolist() == ["a", "b", "c", "d"]
    assert [log.user_ids.values[number] for number in log.users] == [int(line.split(",")[0]) for line in ROWS.splitlines()[1:]]
    assert log.ratings.tolist()[:3] == [4.0, 3.5, 5.0] and log.times.tolist()[:2] == [100.0, 200.0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["7", "10", "-3"], [-3, 7, 10]),  # whole numbers, in their order
        (["007", "7"], ["007", "7"]),  # leading zeros would be lost
        ([" 7", "8"], [" 7", "8"]),
        (["x1", "7"], ["7", "x1"]),
        ([7.0, 8.0], [7, 8]),
        ([7.5, 8.0], ["7.5", "8.0"]),
        ([b"q", b"p"], ["p", "q"]),
    ],
)
def test_ids_are_kept_as_given(given, expected):
    numbers, ids, missing = encode(pa.array(given), guess=True)
    assert ids.values.tolist() == expected and not len(missing)
    found = [ids.values[number] for number in numbers]
    plain = [value.decode() if isinstance(value, bytes) else value for value in given]
    assert [str(value) for value in found] == [
        str(int(value)) if isinstance(value, float) and ids.numeric else str(value) for value in plain
    ]


def test_typed_texts_stay_texts(tmp_path):
    assert encode(pa.array(["7", "10"]))[1].values.tolist() == ["10", "7"]
    rows = pa.table({"user": ["7", "8"], "item": [1, 2], "rating": [1.0, 2.0], "time": [1, 2]})
    pyarrow.parquet.write_table(rows, tmp_path / "events.parquet")
    log = read_log(experiment(tmp_path / "events.parquet").data)
    assert log.user_ids.values.tolist() == ["7", "8"] and log.item_ids.values.tolist() == [1, 2]


def test_missing_ids_are_found():
    numbers, ids, missing = encode(pa.array(["a", None, "", "b"]))
    assert missing.tolist() == [1, 2] and ids.values[numbers[[0, 3]]].tolist() == ["a", "b"]


def test_times_as_seconds_dates_and_texts():
    read = read_times(pa.chunked_array([pa.array(["2026-11-21 00:00:00", "1970-01-01T00:01:00Z", "17", "soon"])]))
    assert read.seconds[1:3].tolist() == [60.0, 17.0] and read.wrong == {3: "soon"} and read.seconds[0] == 1795219200.0
    stamps = pa.chunked_array([pa.array([0, 1_500_000], pa.timestamp("us"))])
    assert read_times(stamps).seconds.tolist() == [0.0, 1.5]


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_other_formats_hold_the_same(tmp_path, kind):
    plain = read_log(experiment(table(tmp_path)).data)
    path = tmp_path / f"other.{kind}"
    rows = pyarrow.csv.read_csv(tmp_path / "events.csv")
    if kind == "tsv":
        path.write_text(ROWS.replace(",", "\t"), encoding="utf-8")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(rows, path)
    other = read_log(experiment(path).data)
    for name in ("users", "items", "ratings", "times"):
        assert np.array_equal(getattr(plain, name), getattr(other, name)), name
    assert other.user_ids.values.tolist() == plain.user_ids.values.tolist()


def test_a_file_without_header(tmp_path):
    path = table(tmp_path, "".join(ROWS.splitlines(keepends=True)[1:]))
    log = read_log(experiment(path, data={"columns": ["user", "item", "rating", "time", "mood"]}).data)
    assert len(log) == 11 and log.name(0).endswith("events.csv:1")


def test_every_row_has_its_name_at_the_cost_of_one_reading(tmp_path):
    """Predictions name each event: read once for each, this file would take minutes."""
    rows = [f"{number % 97},{number % 89},3,{number},ok\n" for number in range(10_000)]
    log = read_log(experiment(table(tmp_path, ROWS.splitlines(keepends=True)[0] + "".join(rows))).data)
    assert [log.name(number).rpartition(":")[2] for number in range(len(log))] == [str(number + 2) for number in range(10_000)]


BAD = {
    "no column": (ROWS.replace("rating", "stars", 1), "no column 'rating'"),
    "no number": (ROWS.replace("3.5", "much"), r"events.csv:3: 'much' in column rating is no number \(data.rating_key\)"),
    "no time": (ROWS.replace(",200,", ",soon,"), r"events.csv:3: 'soon' in column time is no time"),
    "no user": (ROWS.replace("9,b", ",b"), r"events.csv:6: no value in column user"),
    "cut off": (ROWS + "31,a,4", r"events.csv:13: 3 fields where the header has 5"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_named(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(DataError, match=message):
        read_log(experiment(table(tmp_path, text)).data)


@pytest.mark.parametrize("case", [name for name in BAD if name != "no column"])
def test_bad_rows_are_left_out_and_counted_when_asked(tmp_path, case):
    log = read_log(experiment(table(tmp_path, BAD[case][0]), data={"on_bad_example": "skip", "most_skipped": 0.999}).data)
    assert len(log.skipped) == log.left_out == 1 and "events.csv:" in log.skipped[0]
    assert len(log) == (11 if case == "cut off" else 10)


def test_all_bad_rows_are_counted_and_the_first_named(tmp_path):
    good, bad = [f"u{place},i{place % 7},3,{place},x" for place in range(50)], [f"u,i{place},much,5,x" for place in range(3000)]
    text = "\n".join(["user,item,rating,time,mood", *good, *bad, *(f"v,{place}" for place in range(1500))]) + "\n"
    data = experiment(table(tmp_path, text), data={"on_bad_example": "skip", "most_skipped": 0.999}).data
    log = read_log(data)
    assert len(log) == 50 and log.left_out == 4500 and len(log.skipped) == 1000
    from recsys.data.splits import load

    assert any(note.startswith("4,500 rows were left out") for note in load(data)[1])


def test_reasons_are_found_in_one_pass(tmp_path, monkeypatch):
    from pipelines.data import tables

    passes = []
    monkeypatch.setattr(tables, "records_as", lambda *given, plain=tables.records_as, **how: passes.append(1) or plain(*given, **how))
    text = "user,item,rating,time,mood\n" + "7,a,4,1,good\n" + "9,b,much,1,bad\n" * 200
    log = read_log(experiment(table(tmp_path, text), data={"on_bad_example": "skip", "most_skipped": 0.999}).data)
    assert len(passes) == 1 and [line.split(": ")[0].rpartition(":")[2] for line in log.skipped] == [str(line) for line in range(3, 203)]


@pytest.mark.parametrize("header", [True, False])
def test_rows_are_named_by_their_line_also_after_one_that_was_left_out(tmp_path, header):
    text = ROWS.replace("7,b,3.5,200,bad", "7,b\n\n7,b,3.5,200,bad").replace("2.5", "much")
    lines = text.splitlines()
    wrong = next(place for place, line in enumerate(lines, 1) if "much" in line)
    if not header:
        text, wrong = "\n".join(lines[1:]) + "\n", wrong - 1
    columns = None if header else ["user", "item", "rating", "time", "mood"]
    log = read_log(experiment(table(tmp_path, text), data={"on_bad_example": "skip", "most_skipped": 0.999, "columns": columns}).data)
    assert log.left_out == 2 and len(log) == 10
    assert log.skipped[0].endswith(f"events.csv:{3 if header else 2}: 2 fields where {'the header has' if header else 'most rows have'} 5")
    assert f"events.csv:{wrong}: 'much' in column rating" in log.skipped[1]
    assert log.name(len(log) - 1).endswith(f"events.csv:{len(text.splitlines())}")


def test_bad_json_lines_are_left_out_and_counted_when_asked(tmp_path):
    names = ROWS.splitlines()[0].split(",")
    rows = [dict(zip(names, line.split(","))) for line in ROWS.splitlines()[1:]]
    lines = [json.dumps({**row, "rating": float(row["rating"]), "time": int(row["time"])}) for row in rows]
    odd = json.dumps({**rows[0], "rating": "much", "time": 5})
    text = "\n".join([odd, *lines[:4], "", "[1, 2]", *lines[4:], lines[0][:20]])
    path = table(tmp_path, text, "events.jsonl")
    with pytest.raises(DataError, match=r"events.jsonl:"):
        read_log(experiment(path).data)
    log = read_log(experiment(path, data={"on_bad_example": "skip", "most_skipped": 0.999}).data)
    assert len(log) == 11 and log.left_out == 3
    reasons = [line.partition("events.jsonl:")[2] for line in log.skipped]
    assert reasons[0] == "1: rating is text here and a number elsewhere" and reasons[1].startswith("7: a list where an object")
    assert reasons[2].startswith("15: not JSON")
    assert log.name(4).endswith("events.jsonl:8")
    assert len(read_log(experiment(table(tmp_path, "\n".join(lines), "good.jsonl")).data)) == 11


def test_times_finer_than_microseconds(tmp_path):
    rows = {"user": [7, 8], "item": [1, 2], "rating": [1.0, 2.0], "time": pa.array([1_500_000_001, 2_000_000_999], pa.timestamp("ns"))}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "events.parquet")
    assert read_log(experiment(tmp_path / "events.parquet").data).times.tolist() == [1.5, 2.0]
