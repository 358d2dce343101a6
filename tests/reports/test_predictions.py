"""Answers example by example: the same table in each format."""

import csv
import json

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.reports.predictions import write

COLUMNS = {"user": [3, 4], "items": [[1, 2], []], "score": np.array([0.5, 0.25]), "name": ["a, b", 'say "c"']}


def test_the_same_rows_in_every_format(tmp_path):
    import pyarrow.parquet as pq

    for ending in ("parquet", "csv", "jsonl"):
        write(tmp_path / f"answers.{ending}", COLUMNS)
    rows = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert rows == [{"user": 3, "items": [1, 2], "score": 0.5, "name": "a, b"}, {"user": 4, "items": [], "score": 0.25, "name": 'say "c"'}]
    assert [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()] == rows
    with open(tmp_path / "answers.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == ["a, b", 'say "c"'] and [json.loads(row["items"]) for row in read] == [[1, 2], []]


def test_the_name_of_a_file_that_is_not_utf_8_is_escaped(tmp_path):
    for ending in ("parquet", "csv", "jsonl"):
        write(tmp_path / f"answers.{ending}", {"example": ["caf\udce9.png", None, "b.png"]})
    assert [json.loads(line)["example"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()] == [
        "caf\\udce9.png", None, "b.png"]


def test_another_ending_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match=r"--output: .*answers.xlsx: give a name that ends in .parquet, .csv or .jsonl"):
        write(tmp_path / "answers.xlsx", COLUMNS)
