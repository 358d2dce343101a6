"""Readers: every kind of table and folder, encodings and delimiters found, bad rows named by their line or skipped and counted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from nlp.data.splits import load_texts
from nlp.settings import TextClassification
from pipelines.base.errors import DataError
from tests.data.prepared import need

ROWS = [(f"text number {number} of {kind}", kind) for number in range(20) for kind in ("good", "bad")]


def load(model=None, tokens=None, reject=None, **data):
    data = {"validation": 0.2, "test": 0.2, **data}
    return load_texts(TextClassification.model_validate({
        "task": "nlp.classification", "data": data, "model": model or {"name": "bag"}, "reject": reject,
        "tokens": tokens or {"name": "words", "least": 1}}))


def every(splits):
    """(texts, class names) of all examples, in no order."""
    found = []
    for source in (splits.train, splits.validation, splits.test):
        if source is not None:
            rows = source.gather(tf.range(len(source), dtype=tf.int64))
            found += [(text.decode(), splits.facts["classes"][label]) for text, label in zip(rows["text"].numpy(), rows["label"].numpy())]
    return found


def write(path, rows=ROWS, delimiter=",", header=("text", "label"), encoding="utf-8"):
    lines = [delimiter.join(header)] if header else []
    lines += [delimiter.join(f'"{value}"' if delimiter in value else value for value in row) for row in rows]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return str(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(tmp_path, delimiter):
    rows = [(f"a, b; c {number}", label) for number, (_, label) in enumerate(ROWS)]
    splits = load(source="table", path=write(tmp_path / "t.csv", rows, delimiter))
    assert sorted(every(splits)) == sorted(rows)


@pytest.mark.parametrize("encoding, said", [("utf-8-sig", None), ("utf-16", None), ("cp1252", "cp1252"), ("shift_jis", "shift_jis")])
def test_encodings(tmp_path, encoding, said):
    word = "東京" if encoding == "shift_jis" else "café"
    rows = [(f"{word} {number}", label) for number, (_, label) in enumerate(ROWS)]
    assert sorted(every(load(source="table", path=write(tmp_path / "t.csv", rows, encoding=encoding), encoding=said))) == sorted(rows)


def test_a_wrong_encoding_names_the_line_and_the_remedy(tmp_path):
    rows = [*ROWS[:5], ("café", "good"), *ROWS[5:]]
    path = write(tmp_path / "t.csv", rows, encoding="cp1252")
    with pytest.raises(DataError, match=r"t\.csv:7: byte 0xe9 is not UTF-8; set data\.encoding, such as cp1252"):
        load(source="table", path=path)
    splits = load(source="table", path=path, on_bad_example="skip")
    assert len(every(splits)) == len(ROWS) and len(splits.skipped) == 1 and splits.skipped[0].startswith(f"{path}:7: bytes")
    with pytest.raises(DataError, match="not an encoding that Python knows"):
        load(source="table", path=path, encoding="utf-99")


def test_columns_by_position_without_a_header(tmp_path):
    path = write(tmp_path / "t.csv", [(label, text) for text, label in ROWS], header=None)
    assert sorted(every(load(source="table", path=path, text_key=1, label_key=0))) == sorted(ROWS)
    with pytest.raises(DataError, match=r"no column 5 \(data\.text_key\): it has 2"):
        load(source="table", path=path, text_key=5, label_key=0)


def test_json_lines_and_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    lines = tmp_path / "t.jsonl"
    lines.write_text("".join(json.dumps({"text": text, "label": 1 if label == "good" else 0}) + "\n" for text, label in ROWS))
    pyarrow.parquet.write_table(pyarrow.table({"text": [text for text, _ in ROWS], "label": [label == "good" for _, label in ROWS]}),
                                tmp_path / "t.parquet")
    for path, names in ((lines, ["0", "1"]), (tmp_path / "t.parquet", ["False", "True"])):
        splits = load(source="table", path=str(path))
        assert splits.facts["classes"] == names and len(every(splits)) == len(ROWS)


def test_two_columns_are_joined_and_splits_are_the_table_s(tmp_path):
    rows = [(f"title {number}", text, label, "test" if number % 4 == 0 else "train") for number, (text, label) in enumerate(ROWS)]
    path = write(tmp_path / "t.tsv", rows, "\t", ("title", "body", "label", "part"))
    splits = load(source="table", path=path, text_key=["title", "body"], join=" | ", split_key="part", test="test")
    assert len(splits.test) == 10 and ("title 0 | text number 0 of good", "good") in every(splits)
    assert splits.test.name(1).endswith("t.tsv:6")


def test_a_folder_of_tables(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "test.csv", ROWS[:6])
    splits = load(source="table", path=str(tmp_path), test="test")
    assert len(splits.test) == 6 and len(splits.train) + len(splits.validation) == len(ROWS)
    (tmp_path / "train.csv").unlink()
    with pytest.raises(DataError, match=r"has no train\.csv"):
        load(source="table", path=str(tmp_path))


def test_a_folder_for_each_class(tmp_path):
    for number, (text, label) in enumerate(ROWS):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{number}.txt").write_text(text)
    assert sorted(every(load(source="folder", path=str(tmp_path)))) == sorted(ROWS)
    (tmp_path / "good" / "bad.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"bad\.txt: 1: byte 0xe9"):
        load(source="folder", path=str(tmp_path))


BAD = {
    "too few fields": ("only one field\n", "1 field where the header has 2"),
    "too many fields": ("a, b, good\n", "3 fields where the header has 2; a text with the delimiter in it needs quotation marks"),
    "NUL bytes": ("nul \0 byte,good\n", "NUL bytes"),
    "no label": ("no label,\n", "no label"),
    "a very long text": (f"{'x' * 2_000_001},good\n", r"a text of 2,000,001 characters \(data\.longest is 1,000,000\)"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_is_named_or_skipped_and_counted(tmp_path, kind):
    line, message = BAD[kind]
    path = tmp_path / "t.csv"
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:10], line, *lines[10:]]))
    with pytest.raises(DataError, match=rf"t\.csv:11: {message}.*on_bad_example: skip"):
        load(source="table", path=str(path))
    splits = load(source="table", path=str(path), on_bad_example="skip")
    assert len(every(splits)) == len(ROWS) and len(splits.skipped) == 1 and splits.skipped[0].startswith(f"{path}:11: ")


def test_a_quotation_mark_that_is_not_closed_merges_no_rows_of_a_tsv(tmp_path):
    odd = [('"quiet please', "good"), ('24" screen', "bad"), ('"he said so" and went', "good"), ('"as it was"', "bad"), ('so "it', "good"),
           ('"the last one', "bad")]
    rows = [*ROWS[:7], *odd[:3], *ROWS[7:], *odd[3:]]
    path = write(tmp_path / "t.tsv", rows, "\t")
    expected = [("as it was" if text == '"as it was"' else text, label) for text, label in rows]
    assert sorted(every(load(source="table", path=path))) == sorted(expected)
    # what is quoted whole may have line breaks, tabs and doubled marks
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(f'"line ""{n}""\none\tmore"\t{label}\n' for n, (_, label) in enumerate(ROWS)))
    assert sorted(every(load(source="table", path=path))) == sorted((f'line "{n}"\none\tmore', label) for n, (_, label) in enumerate(ROWS))


def test_a_quotation_mark_that_is_not_closed_is_a_bad_row_of_its_own_in_a_csv(tmp_path):
    path = write(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines(keepends=True)
    lines[9:9] = ['"never closed,good\n']
    lines[20:20] = ['"the room" was fine,good\n']
    (tmp_path / "t.csv").write_text("".join(lines))
    with pytest.raises(DataError, match=r"t\.csv:10: a quotation mark that is not closed.*on_bad_example: skip"):
        load(source="table", path=path)
    splits = load(source="table", path=path, on_bad_example="skip")
    assert sorted(every(splits)) == sorted([*ROWS, ("the room was fine", "good")])
    assert len(splits.skipped) == 1 and splits.skipped[0].startswith(f"{path}:10: ")
    (tmp_path / "t.csv").write_text('"text,label\nfine,good\n')
    with pytest.raises(DataError, match=r"t\.csv:1: a quotation mark that is not closed"):
        load(source="table", path=path)


def test_a_text_of_ten_megabytes_is_read_where_it_may_be(tmp_path):
    path = write(tmp_path / "t.csv", [*ROWS, ("word " * 2_000_000, "good")])
    splits = load(source="table", path=path, longest=20_000_000)
    assert len(every(splits)) == len(ROWS) + 1


def test_a_form_that_one_file_alone_suggests_loses_no_rows_and_too_many_lost_rows_stop(tmp_path):
    for name, first in (("train", "good;'plain'"), ("test", "good;'one; two'")):
        (tmp_path / f"{name}.csv").write_text("\n".join([first, *(f"{label};'{text}'" for text, label in ROWS)]) + "\n")
    settings = {"source": "table", "path": str(tmp_path), "text_key": 1, "label_key": 0, "on_bad_example": "skip", "validation": 0,
                "test": "test"}
    splits = load(**settings)
    assert (len(splits.train), len(splits.test), splits.skipped) == (41, 41, ())
    (tmp_path / "test.csv").write_text("".join(f"good;one;two {number}\n" for number in range(5)) + "bad;'x'\n")
    with pytest.raises(DataError, match=r"split test: 5 of 6 examples cannot be read.*test.csv:1: .*test.csv:3: [^;]*; a text"):
        load(**settings)
    assert len(load(**settings, most_skipped=0.9).test) == 1


def test_a_label_that_train_lacks(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "test.csv", [*ROWS[:3], ("strange", "ugly")])
    with pytest.raises(DataError, match=r"test has classes of which train has no example: ugly \(such as .*test\.csv:5\)"):
        load(source="table", path=str(tmp_path), test="test")
    splits = load(source="table", path=str(tmp_path), test="test", on_bad_example="skip")
    assert len(splits.test) == 3 and "class ugly is not in train" in splits.skipped[0]
    assert splits.facts["classes"] == ["bad", "good"] and set(splits.test.labels) == {0, 1}


def test_a_label_among_several_that_train_lacks(tmp_path):
    write(tmp_path / "train.csv", [("first", "z;m"), ("second", "m"), ("third", "")] * 4)
    write(tmp_path / "test.csv", [("one", "m"), ("two", "a;z"), ("three", "z")])
    with pytest.raises(DataError, match=r"test has classes of which train has no example: a \(such as .*test\.csv:3\).*bad_example: skip"):
        load(source="table", path=str(tmp_path), test="test", labels="many")
    splits = load(source="table", path=str(tmp_path), test="test", labels="many", on_bad_example="skip", validation=0.0)
    assert splits.facts["classes"] == ["m", "z"] and splits.facts["class_counts"] == [8, 4]
    assert splits.test.gather(tf.range(2, dtype=tf.int64))["label"].numpy().tolist() == [[1, 0], [0, 1]]
    assert splits.skipped == (f"{tmp_path / 'test.csv'}:3: class a is not in train",)


def test_wrong_columns_and_files(tmp_path):
    path = write(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"no column 'txt' \(data\.text_key\); there are text and label; did you mean text\?"):
        load(source="table", path=path, text_key="txt")
    with pytest.raises(DataError, match=r"by position, such as data\.text_key: 0"):
        load(source="table", path=write(tmp_path / "n.csv", header=None), label_key="label")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="is empty"):
        load(source="table", path=str(tmp_path / "empty.csv"))
    (tmp_path / "t.jsonl").write_text('{"text": "a", "label": "b"}\n[1]\n')
    with pytest.raises(DataError, match=r"t\.jsonl:2: .* where an object"):
        load(source="table", path=str(tmp_path / "t.jsonl"))
    with pytest.raises(DataError, match="one class only"):
        load(source="table", path=write(tmp_path / "one.csv", [(text, "good") for text, _ in ROWS]))


def test_several_labels(tmp_path):
    rows = [(f"text {number}", labels) for number, labels in enumerate(["a;b", "b", "", "c; a", "a;a"] * 8)]
    splits = load(source="table", path=write(tmp_path / "t.csv", rows), labels="many")
    assert splits.facts["classes"] == ["a", "b", "c"] and not splits.skipped
    labels = splits.train.gather(tf.range(len(splits.train), dtype=tf.int64))["label"].numpy()
    assert labels.shape[1] == 3 and set(map(tuple, labels.tolist())) <= {(1, 1, 0), (0, 1, 0), (0, 0, 0), (1, 0, 1), (1, 0, 0)}


def test_texts_of_no_class_are_no_class(tmp_path):
    rows = [*ROWS, *((f"gibberish {number}", "none") for number in range(20))]
    path = write(tmp_path / "t.csv", rows)
    splits = load(source="table", path=path, reject={"label": "none"})
    assert splits.facts["classes"] == ["bad", "good"] and set(splits.train.labels) == {0, 1} and set(splits.test.labels) == {0, 1, 2}
    judged = splits.validation.gather(tf.range(len(splits.validation), dtype=tf.int64))
    weights, labels = judged["weight"].numpy(), judged["label"].numpy()
    assert (weights[labels == 2] == 0).all() and weights.mean() == pytest.approx(1.0)
    uniform = load(source="table", path=path, reject={"label": "none", "train": "uniform"})
    assert set(uniform.train.labels) == {0, 1, 2}
    # the mean over train is over the texts of the classes too, so that its accuracy is the judged one
    assert uniform.train.gather(tf.range(len(uniform.train), dtype=tf.int64))["weight"].numpy().mean() == pytest.approx(1.0)
    held = uniform.train.gather(tf.range(len(uniform.train), dtype=tf.int64))
    assert (held["weight"].numpy()[held["label"].numpy() == 2] == 0).all()
    with pytest.raises(DataError, match="reject: there is no validation split"):
        load(source="table", path=path, reject={"label": "none"}, validation=0.0)
    with pytest.raises(DataError, match="validation has no texts of no class"):
        load(source="table", path=path, reject={"label": "nothing"})


def test_texts_of_no_class_may_have_tables_of_their_own_and_need_no_label(tmp_path):
    reject = {"label": "none", "splits": "{split}_oos", "train": "uniform"}
    write(tmp_path / "train.csv", [*ROWS, ("also of no class", "none")])
    write(tmp_path / "dev.csv", ROWS[:4])
    write(tmp_path / "test.csv", ROWS[:6])
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}_oos.csv", [(f"gibberish {part} {number}",) for number in range(3)], header=("text",))
    splits = load(source="table", path=str(tmp_path), validation="dev", test="test", reject=reject)
    assert splits.facts["classes"] == ["bad", "good"]
    assert [np.sum(source.labels == 2) for source in (splits.train, splits.validation, splits.test)] == [4, 3, 3]
    assert splits.test.name(6) == f"{tmp_path / 'test_oos.csv'}:2"
    # one table with the splits in a column
    rows = [(text, label, part) for part in ("train", "test") for text, label in ROWS] + [
        (f"gibberish {number}", "", f"{part}_oos") for part in ("train", "test") for number in range(10)]
    one = write(tmp_path / "one.csv", rows, header=("text", "label", "split"))
    splits = load(source="table", path=one, split_key="split", test="test", reject=reject)
    assert [np.sum(source.labels == 2) for source in (splits.train, splits.test)] == [8, 10]
    # other data of a finished run need not have them
    alone = write(tmp_path / "other.csv", [*ROWS[:4], ("gibberish", "none")])
    experiment = TextClassification.model_validate({
        "task": "nlp.classification", "model": {"name": "bag"}, "reject": reject,
        "data": {"source": "table", "path": alone, "validation": 0.0, "test": None}})
    assert load_texts(experiment, {"classes": ["bad", "good"]}).train.labels.tolist() == [1, 0, 1, 0, 2]
    with pytest.raises(DataError, match=r"reject\.splits: \{split\}_oos: .* has no such split"):
        load_texts(experiment)
    folder = experiment.model_copy(update={"data": experiment.data.model_copy(update={"path": str(tmp_path), "test": "test"})})
    assert load_texts(folder, {"classes": ["bad", "good"]}).test.labels.tolist() == [1, 0] * 3 + [2] * 3


def test_nothing_is_learned_from_validation_and_test(tmp_path):
    write(tmp_path / "train.csv", ROWS)
    write(tmp_path / "validation.csv", [("secret onlyhere", "good"), ("secret onlyhere", "bad")])
    write(tmp_path / "test.csv", [("hidden onlythere", "good")] * 3)
    for settings in ({"name": "words", "least": 1}, {"name": "subwords", "vocabulary": 60}):
        splits = load(source="table", path=str(tmp_path), validation="validation", test="test", tokens=settings)
        assert not any("secret" in piece or "hidden" in piece or "onlyh" in piece for piece in splits.facts["vocabulary"])


def test_quick_start_keeps_patterns_apart():
    splits = load(source="quick", group_by="pattern")
    groups = [set(source.groups.tolist()) for source in (splits.train, splits.validation, splits.test)]
    assert not groups[0] & groups[1] and not groups[0] & groups[2] and not groups[1] & groups[2]
    assert len(splits.facts["classes"]) == 8


@pytest.mark.realdata
def test_clinc_has_150_classes_and_texts_of_none():
    need("clinc_oos")
    splits = load(source="tfds", name="clinc_oos", label_key="intent_name", validation="validation", test="test",
                  reject={"label": "oos", "splits": "{split}_oos"}, tokens={"name": "hashed"})
    assert len(splits.facts["classes"]) == 150 and "oos" not in splits.facts["classes"]
    assert [len(source) for source in (splits.train, splits.validation, splits.test)] == [15_000, 3100, 5500]
    assert (splits.test.labels == 150).sum() == 1000
    assert np.bincount(splits.train.labels).tolist() == [100] * 150
    assert splits.test.name(5499).startswith("clinc_oos/test_oos")
    with pytest.raises(DataError, match="no feature 'intents'"):
        load(source="tfds", name="clinc_oos", label_key="intents")


def test_a_text_in_several_class_folders_has_their_labels(tmp_path):
    for name, sets in {"1": "ab", "2": "b", "3": "a", "4": "ab"}.items():
        for label in sets:
            (tmp_path / label).mkdir(exist_ok=True)
            (tmp_path / label / f"{name}.txt").write_text(f"text {name}")
    (tmp_path / "a" / "2.txt").write_text("another text of that name")
    splits = load(source="folder", path=str(tmp_path), labels="many", validation=0.0, test=None)
    stored = splits.train.gather(tf.range(len(splits.train), dtype=tf.int64))
    found = dict(zip(stored["text"].numpy().tolist(), stored["label"].numpy().tolist()))
    assert found == {b"text 1": [1, 1], b"text 2": [0, 1], b"text 3": [1, 0], b"text 4": [1, 1], b"another text of that name": [1, 0]}
