"""Ids as clients send them."""

import pytest

from pipelines.base.errors import DataError
from recsys.data.requests import IDS, as_id, as_ids, parsed


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
