"""What `predict` reads: headings, encodings found and said, and errors in the place of what cannot be read."""

import io
import sys

import pytest

from nlp.data.requests import read_texts
from nlp.settings import TextData
from pipelines.base.errors import DataError


def read(*inputs, **data):
    """(text or error, columns) of each."""
    found = []
    for one in read_texts([str(name) for name in inputs], TextData(source="table", **data)):
        what = one[1]
        found.append((what if isinstance(what, Exception) else what["text"].decode(), one[2] if len(one) > 2 else None))
    return found


def texts(*inputs, **data):
    return [what if isinstance(what, str) else None for what, _ in read(*inputs, **data)]


def test_a_single_column_without_heading_loses_no_text(tmp_path):
    (tmp_path / "t.csv").write_text("the shower is broken\nwifi please\n")
    assert texts(tmp_path / "t.csv") == ["the shower is broken", "wifi please"]
    assert texts(tmp_path / "t.csv", header="yes") == ["wifi please"]
    for heading in ("text", "request"):
        (tmp_path / "t.csv").write_text(f"{heading}\nwifi please\n")
        assert texts(tmp_path / "t.csv", text_key="request") == ["wifi please"]


def test_bad_rows_name_the_columns_and_names_are_made_unique(tmp_path):
    (tmp_path / "t.csv").write_text("id,id,,text,\nonly one\n1,2,3,wifi please,4\n")
    (bad, names), (text, row) = read(tmp_path / "t.csv")
    assert isinstance(bad, ValueError) and text == "wifi please" and names == dict.fromkeys(row)
    assert row == {"id": "1", "id_2": "2", "": "3", "text": "wifi please", "_2": "4"}
    (tmp_path / "t.csv").write_text("text,text\na,b\n")
    with pytest.raises(DataError, match="more than one column named 'text'"):
        read(tmp_path / "t.csv")


def test_a_text_alone_is_its_own_column(tmp_path):
    long = "a text that is longer than what is shown of it on the screen, " * 3
    (tmp_path / "t.txt").write_text(f"{long}\n\n")
    assert [row for _, row in read(long, tmp_path / "t.txt")] == [{"input": long}, {"input": long}, {"input": f"{tmp_path / 't.txt'}:2"}]


LINES = "für Gäste: café\r\nplain\n"


@pytest.mark.parametrize("encoding, said", [
    ("utf-16", None), ("utf-16", "cp1252"), ("utf-8-sig", None), ("cp1252", "cp1252"), ("utf-8", "cp1252"), ("utf-16-le", "utf-16-le"),
    ("utf-8", "utf-16-le"), ("utf-8-sig", "shift_jis")])
def test_encodings_of_lines(tmp_path, encoding, said, monkeypatch):
    (tmp_path / "t.txt").write_bytes(LINES.encode(encoding))
    assert texts(tmp_path / "t.txt", encoding=said) == ["für Gäste: café", "plain"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES.encode(encoding))))
    assert texts("-", encoding=said) == ["für Gäste: café", "plain"]


def test_encodings_of_seven_bits_are_the_run_s(tmp_path):
    (tmp_path / "t.txt").write_bytes("東京".encode("iso2022_jp"))
    assert texts(tmp_path / "t.txt", encoding="iso2022_jp") == ["東京"]


def test_a_line_that_does_not_decode_is_an_error(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"fine\ncaf\xe9\nf\0i\0n\0e\0\nfine again\n")
    found = read(tmp_path / "t.txt")
    assert [what for what, _ in found if isinstance(what, str)] == ["fine", "fine again"]
    assert "byte 0xe9 is not UTF-8" in str(found[1][0]) and "NUL bytes" in str(found[2][0])
    (tmp_path / "t.txt").write_bytes("fine".encode("utf-16") + b"\x00")
    assert "is not UTF-16" in str(read(tmp_path / "t.txt")[0][0])


@pytest.mark.parametrize("encoding, said", [("utf-16", "cp1252"), ("utf-8-sig", "cp1252"), ("utf-8", "cp1252"), ("cp1252", "cp1252")])
def test_encodings_of_tables(tmp_path, encoding, said):
    (tmp_path / "t.csv").write_bytes("id,text\n1,für Gäste\n".encode(encoding))
    assert texts(tmp_path / "t.csv", encoding=said) == ["für Gäste"]
