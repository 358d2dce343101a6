"""A small packed table does not fill the memory."""

import gzip

import pytest

from pipelines.base.errors import DataError
from pipelines.data.dialect import content_of
from pipelines.machine import memory


def test_a_packed_table_is_unpacked_up_to_a_part_of_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "texts.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\n" + b"0" * 1_000_000))
    assert len(content_of(path)) == 1_000_011
    monkeypatch.setattr(memory, "free", lambda: 2_000_000)
    with pytest.raises(DataError, match=r"texts.csv.gz: unpacks to over a quarter of the free memory"):
        content_of(path)
    assert content_of(path, 10) == b"text,label"
