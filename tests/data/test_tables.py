"""Tables through pyarrow, and the rows that their errors name."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from pipelines.base.errors import DataError
from pipelines.data.tables import class_names, column, read_table, row, values_of


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def test_the_formats_say_the_same(tmp_path):
    rows = [{"file": "a b.png", "label": "ä"}, {"file": "c,d.png", "label": "x"}]
    write(tmp_path / "t.csv", 'file,label\na b.png,ä\n"c,d.png",x\n')
    write(tmp_path / "bom.csv", 'file,label\r\na b.png,ä\r\n"c,d.png",x\r\n', "utf-8-sig")
    write(tmp_path / "t.tsv", "file\tlabel\na b.png\tä\nc,d.png\tx\n")
    write(tmp_path / "t.JSONL", "\n".join(json.dumps(each) for each in rows))
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for name in ("t.csv", "bom.csv", "t.tsv", "t.JSONL", "t.parquet"):
        assert read_table(tmp_path / name).to_pylist() == rows, name


def test_columns_asked_for_as_text_stay_as_written(tmp_path):
    path = write(tmp_path / "t.csv", "label,size\n007,1\nNA,2\n1.0,3\n")
    table = read_table(path, text=["label", "absent"])
    assert table["label"].to_pylist() == ["007", "NA", "1.0"] and table["size"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(("name", "content", "message"), [
    ("t.csv", "", "t.csv is empty"),
    ("t.csv", "a,b\n", "t.csv has no rows"),
    ("t.csv", "a,b\n1,2\n\n\n3\n", r"t.csv:5: 1 field where the header has 2"),
    ("t.csv", 'a,b\n"x\ny",2\n1,2,3\n', "t.csv:4: 3 fields"),
    ("t.csv", "a,b\nx,1\nü,2\n".encode("latin-1"), "t.csv:3: byte 0xfc is not UTF-8; set data.encoding"),
    ("t.csv", "a,a\n1,2\n", "t.csv has more than one column named 'a'"),
    ("t.jsonl", '{"a": 1}\n\n{"a": \n', "t.jsonl:3: not JSON: Expecting value"),
    ("t.jsonl", '{"a": 1}\n[1]\n', "t.jsonl:2: a list where an object"),
    ("t.jsonl", '{"a": 1}\n{"a": "x"}\n', "t.jsonl:2: a is text here and a number elsewhere"),
    ("t.parquet", "no parquet", "t.parquet cannot be read"),
    ("t.xlsx", "x", r"t.xlsx: a table is .csv, .tsv, .jsonl or .parquet, not .xlsx"),
])
def test_what_cannot_be_read_is_named_by_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / name, content))


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match=r"absent.csv does not exist"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a folder; name a file"):
        read_table(tmp_path)


def test_a_missing_column_names_the_nearest(tmp_path):
    path = write(tmp_path / "t.csv", "file,labels\na,b\n")
    with pytest.raises(DataError, match=r"t.csv has no column 'label' \(data.label_key\); there are file and .*did you mean labels\?"):
        column(read_table(path), "label", path, "data.label_key")


def test_values_become_names(tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"int": [1, 2], "float": [1.0, 2.0], "bool": [True, False], "text": [" a ", "b"],
                                          "dict": pa.array(["x", "y"]).dictionary_encode()}), path)
    table = read_table(path)
    assert [values_of(table, name, path, "s") for name in table.column_names] == [
        ["1", "2"], ["1", "2"], ["True", "False"], ["a", "b"], ["x", "y"]]


@pytest.mark.parametrize(("content", "message"), [
    ("file,label\na,x\n\nb, \n", r"t.csv:4: no value in column label \(the setting\)"),
    ("file,label\na,1.5\nb,2\n", "t.csv:2: 1.5 in column label"),
])
def test_values_that_name_nothing(tmp_path, content, message):
    path = write(tmp_path / "t.csv", content)
    with pytest.raises(DataError, match=message):
        values_of(read_table(path), "label", path, "the setting")


def test_rows_are_lines(tmp_path):
    path = write(tmp_path / "t.csv", '\na,b\n"x\ny",1\n\nz,2\n')
    assert [row(path, number) for number in (0, 1)] == [f"{path}:3", f"{path}:6"]
    path = write(tmp_path / "t.jsonl", '\n{"a": 1}\n\n{"a": 2}')
    assert row(path, 1) == f"{path}:4"


def test_whole_numbers_are_ordered_as_numbers():
    assert class_names(["10", "9", "1", "9"]) == ["1", "9", "10"]
    assert class_names(["b", "10", "a", "9"]) == ["10", "9", "a", "b"]
