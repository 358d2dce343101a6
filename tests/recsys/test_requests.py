"""Ids as clients send them."""

import pytest

from pipelines.base.errors import DataError
from recsys.data.requests import IDS, as_flag, as_id, as_ids, parsed, requests


@pytest.mark.parametrize("sent, expected", [(42, 42), ("42", 42), (" 7\n", 7), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))])
def test_whole_numbers_of_64_bits_are_ids(sent, expected):
    assert as_id(sent, numeric=True) == expected


@pytest.mark.parametrize("sent", [2**63, -(2**63) - 1, "9" * 4000, "9" * 5000, 1.8446744073709552e19, [1], None, "a"])
def test_other_things_are_said_to_be_none(sent):
    with pytest.raises(DataError, match="whole numbers of 64 bits") as caught:
        as_id(sent, numeric=True)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("sent", [[1] * (IDS + 1), "1," * (IDS + 1), "1 " * (IDS + 1)], ids=["list", "commas", "blanks"])
def test_lists_are_bounded(sent):
    with pytest.raises(DataError, match="over 200,000 ids"):
        as_ids(sent, numeric=True)
    assert as_ids([1, "2"], numeric=True) == as_ids("1, 2", numeric=True) == [1, 2]


@pytest.mark.parametrize("sent", [b'{"user":' * 3000, '{"user":' + "[" * 100_000, '{"user": ' + "9" * 5000 + "}"],
                         ids=["objects", "lists", "digits"])
def test_what_is_no_json_is_said_to_be_none(sent):
    with pytest.raises(DataError, match="no JSON"):
        parsed(sent, ["user"], "user")


KEYS = {"userId": "user", "user": "user", "history": "history", "exclude_seen": "exclude_seen", "k": "k"}


def asked(path):
    """(name without its folder, the request or why it is none, its columns) of each row."""
    return [(name.removeprefix(f"{path.parent}/"), request if isinstance(request, dict) else str(request), *fields)
            for name, request, *fields in requests([str(path)], KEYS, "user", raw=dict)]


def test_columns_of_a_table_stay_beside_its_requests(tmp_path):
    (tmp_path / "a.csv").write_text("name,userId,code\nAnn,42,007\nBen,,1\nshort\n")
    assert asked(tmp_path / "a.csv") == [
        ("a.csv:2", {"userId": "42"}, {"name": "Ann", "userId": "42", "code": "007"}),
        ("a.csv:3", {}, {"name": "Ben", "userId": "", "code": "1"}),
        ("a.csv:4", "1 field where the header has 3", {"name": None, "userId": None, "code": None})]


def test_a_line_that_is_wrong_costs_only_its_own_answer(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"user": 42, "id": 1}\n{"user": "x"}\n{"usr": 42}\n[1]\n{"client": 42, "k": 3}\n{"k": 3}\n')
    (_, first, fields), (_, second, _), (_, third, _), (_, fourth, _), (_, fifth, _), (_, sixth, _) = asked(tmp_path / "a.jsonl")
    assert first == {"user": 42} and fields["id"] == 1 and second == {"user": "x"} and sixth == {"k": 3}
    assert "'usr' is nothing that can be asked; did you mean user?" in third and "where an object" in fourth
    assert "has none of userId, user or history; it has client and k" in fifth


def test_a_misspelt_heading_is_said_once(tmp_path):
    (tmp_path / "a.csv").write_text("usr,k\n1,3\n2,3\n")
    ((name, why),) = asked(tmp_path / "a.csv")
    assert name == "a.csv" and "did you mean user" in why


@pytest.mark.parametrize("sent, flag", [(True, True), ("False", False), ("no", False), (1, True), ("0", False)])
def test_flags(sent, flag):
    assert as_flag("exclude_seen", sent) is flag
    with pytest.raises(DataError, match="neither true nor false"):
        as_flag("exclude_seen", "perhaps")
