"""`quartet new nlp`: what it finds in tables and folders, and that what it writes loads."""

import json
import random

import pytest

from nlp.data.ngrams import ngram_counts, ngrams_for
from nlp.data.sources import open_data
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.tuning.search import prepared

TEXTS = [(f"some words about thing {number} and more", ("spam", "ham", "eggs")[number % 3]) for number in range(60)]


def drafted(path):
    return from_text(new("nlp", path), file="x.yaml").experiment


def test_a_csv_with_header_split_and_title(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,title,body,topic,part\n" + "".join(
        f"{number},On {number},{text},{label},{'dev' if number % 5 == 0 else 'test' if number % 5 == 1 else 'train'}\n"
        for number, (text, label) in enumerate(TEXTS)))
    found = drafted(path)
    assert found.data.text_key == ["title", "body"] and found.data.label_key == "topic" and found.data.split_key == "part"
    assert (found.data.validation, found.data.test) == ("dev", "test") and found.model.name == "bag"


def test_a_tsv_without_header(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"{label}\t{text}, It's fine.\n" for text, label in TEXTS))
    found = drafted(path)
    assert found.data.text_key == 1 and found.data.label_key == 0 and found.data.header == "no"


def test_several_labels_and_json(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text, "tags": ["a", label] if number % 2 else [label]}) + "\n"
                            for number, (text, label) in enumerate(TEXTS)))
    assert drafted(path).data.labels == "many"
    path = tmp_path / "t.csv"
    path.write_text("text,labels\n" + "".join(f"{text},{label}{'|a' if number % 2 else ''}{'|b' if number % 5 == 0 else ''}\n"
                                              for number, (text, label) in enumerate(TEXTS)))
    found = drafted(path)
    assert found.data.labels == "many" and found.data.label_separator == "|" and found.model.name == "linear"
    lists = [str(["a", label] if number % 2 else [label]) for number, (_, label) in enumerate(TEXTS)]  # as a data frame writes them
    path.write_text("text,labels\n" + "".join(f'{text},"{value}"\n' for (text, _), value in zip(TEXTS, lists)))
    data = drafted(path).data
    assert data.labels == "many" and "4 labels" in new("nlp", path)
    opened = open_data(data)
    assert {name for labels in opened.load("all").label_sets for name in labels} == {0, 1, 2, 3} and len(opened.classes) == 4


def test_folders(tmp_path):
    for part in ("train", "test"):
        for number, (text, label) in enumerate(TEXTS):
            (tmp_path / "f" / part / label).mkdir(parents=True, exist_ok=True)
            (tmp_path / "f" / part / label / f"{number}.txt").write_text(text)
    found = drafted(tmp_path / "f")
    assert found.data.source == "folder" and found.data.test == "test"
    (tmp_path / "g").mkdir()
    for part in ("train", "valid"):
        (tmp_path / "g" / f"{part}.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS))
    found = drafted(tmp_path / "g")
    assert found.data.source == "table" and found.data.validation == "valid"


def test_speakers_stay_together_and_what_lies_beside_is_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("speaker,text,kind\n" + "".join(f"p{n % 8},{text},{label}\n" for n, (text, label) in enumerate(TEXTS)))
    assert drafted(path).data.group_by == "speaker" and "Not used" not in new("nlp", path)
    path.write_text("text,author\n" + "".join(f"{text},p{n % 8}\n" for n, (text, _) in enumerate(TEXTS)))
    assert (drafted(path).data.group_by, drafted(path).data.label_key) == (None, "author")  # the question itself
    for part in ("train", "test", "extra"):
        for number, (text, label) in enumerate(TEXTS):
            (tmp_path / "f" / part / label).mkdir(parents=True, exist_ok=True)
            (tmp_path / "f" / part / label / f"{number}.txt").write_text(text)
    assert "# Not used: folder extra (60 files), which is called like none of train" in new("nlp", tmp_path / "f")
    (tmp_path / "g").mkdir()
    for part in ("train", "test", "more"):
        (tmp_path / "g" / f"{part}.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS))
    assert "# Not used: more.csv." in new("nlp", tmp_path / "g")
    with (tmp_path / "g" / "test.csv").open("a") as file:
        file.write("a,b,c\n" * 4)
    made = new("nlp", tmp_path / "g")
    assert "# Passed over: 4 of 64 rows" in made and "Training stops at so many" in made and "on_bad_example: skip" in made


def test_a_search_of_a_draft_has_a_space_and_says_at_once_what_it_lacks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"{text} {again},{label}\n" for text, label in TEXTS for again in range(50)))
    tune, space = prepared(drafted(path))
    assert [one.name for one in space] == ["train.learning_rate.peak"] and tune.trials > 0
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS))
    with pytest.raises(ConfigError, match="no validation split, and trials are judged on nothing else"):
        prepared(drafted(path))


def test_classes_of_very_different_size_are_told_and_not_weighed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"words number {number},{'rare' if number % 12 == 0 else 'usual'}\n" for number in range(96)))
    loss = drafted(path).loss
    assert loss.class_weights == "none" and "# the largest class has 11 times the smallest" in new("nlp", path)
    assert loss.label_smoothing == 0, "answers would have less confidence than they are right"


def test_tables_are_as_large_as_the_texts_need(tmp_path):
    draw = random.Random(0)
    for texts, words, letters, validation in ((60, 2048, 4096, 0), (4000, 32768, 32768, 0.1)):
        path = tmp_path / f"{texts}.csv"
        path.write_text("text,label\n" + "".join(
            f"{' '.join(f'w{int(draw.paretovariate(0.8))}' for _ in range(9))},{'ab'[n % 2]}\n" for n in range(texts)))
        found = drafted(path)
        assert (found.tokens.buckets, found.tokens.character_buckets, found.data.validation) == (words, letters, validation)
        assert found.model.linear and found.model.rarity and found.train.keep == "last"
    path.write_text("text,label\n" + "".join(f"{number} thing {number * 7919},c{number % 1000}\n" for number in range(4000)))
    found = drafted(path)
    assert (found.tokens.buckets + found.tokens.character_buckets) * 1000 <= 1 << 23


def test_ngrams_beyond_the_sample_are_estimated():
    """By Heaps' law, from one half of the sample to the whole; a folder's texts may stand by class."""
    draw = random.Random(0)
    texts = [" ".join(f"{'ab'[n // 4000]}{int(draw.paretovariate(0.7)) % 50000}" for _ in range(12)) for n in range(8000)]
    exact = ngram_counts(texts, 8000, 2, (2, 4))
    for guess, true in zip(ngram_counts(texts[::8], 8000, 2, (2, 4)), exact):
        assert 0.7 * true < guess < 1.4 * true
    assert ngram_counts(["a b", "b a"], 2, 2, (1, 2)) == (4, 2 + 2 + 4) and ngram_counts([""], 5, 2, None) == (0, 0)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-16-be"])
def test_an_encoding_is_guessed_and_no_text_dropped(tmp_path, encoding):
    rows = "".join(f"{text.replace('and', 'für Gäste')},{label}\n" for text, label in TEXTS)
    (tmp_path / "t.csv").write_bytes(f"text,label\n{rows}".encode(encoding))
    assert f"encoding: {encoding}" in (made := new("nlp", tmp_path / "t.csv")) and "# guessed" in made and "on_bad_example" not in made
    found = drafted(tmp_path / "t.csv")
    assert found.data.encoding == encoding and "60 training texts" in made and found.data.text_key == "text"
    for number, (text, label) in enumerate(TEXTS):
        (tmp_path / "f" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / label / f"{number}.txt").write_bytes((text.replace("and", "für Gäste") if number % 2 else text).encode(
            encoding if encoding != "cp1252" or number % 2 else "ascii"))
    assert drafted(tmp_path / "f").data.encoding == encoding


def test_what_is_utf_8_or_marked_needs_no_encoding(tmp_path):
    rows = "".join(f"{text} für Gäste,{label}\n" for text, label in TEXTS)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "t.csv").write_bytes(f"text,label\n{rows}".encode(encoding))
        assert drafted(tmp_path / "t.csv").data.encoding is None
    (tmp_path / "t.csv").write_bytes("text,label\n".encode("cp1251") + "".join(
        f"мы не можем открыть дверь {number},{label}\n" for number, (_, label) in enumerate(TEXTS)).encode("cp1251"))
    with pytest.raises(DataError, match=r"t\.csv:2: byte 0xec is not UTF-8; set data\.encoding, such as"):
        new("nlp", tmp_path / "t.csv")


def test_a_missing_label_is_no_class(tmp_path):
    rows = [{"text": text, "label": None if number == 5 else label} for number, (text, label) in enumerate(TEXTS)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = new("nlp", tmp_path / "t.jsonl")
    assert "3 classes" in made and "None" not in made and drafted(tmp_path / "t.jsonl").data.on_bad_example == "skip"


def test_what_is_not_understood(tmp_path):
    for name, content, message in (
            ("a.csv", "text,label\nhello there,y\n", "one value only"), ("b.csv", "id,size\n1,2\n2,3\n", "no column seems to hold texts"),
            ("c.csv", "text,place,person\n" + "".join(f"hello there {n},p{n % 3},q{n % 4}\n" for n in range(30)), "name it with --label"),
            ("d.pdf", "x", "not understood")):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message):
            new("nlp", tmp_path / name)
    (tmp_path / "few.csv").write_text("text,label\nsome words,a\nmore words,b\nother words,a\nwords again,b\n")
    with pytest.raises(DataError, match="too few"):
        new("nlp", tmp_path / "few.csv")


def test_in_scripts_without_spaces_letters_are_counted_as_words(tmp_path):
    """Runs of up to three letters, each once, and room for all letters of a usual text."""
    praise, blame = "这家酒店的房间很干净服务也非常好下次还会再来", "房间又小又脏服务态度很差再也不会来这里住了"
    rows = [f"{number % 2},{(praise, blame)[number % 2] * 4}{number}" for number in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["label,text", *rows]), encoding="utf-8")
    found = drafted(tmp_path / "reviews.csv")
    assert (found.tokens.words, found.tokens.characters) == (3, None) and found.tokens.limit > 90


def test_n_grams_of_letters_are_counted_where_they_are_words():
    assert ngrams_for(["日本語の文章", "これは本です"]) == (3, None)
    assert ngrams_for(["ein kurzer Text"]) == (2, (2, 5)) and ngrams_for(["a long text " * 50]) == (2, None)
    assert ngram_counts(["好书", "好人"], 2, 2, None) == (5, 0)
