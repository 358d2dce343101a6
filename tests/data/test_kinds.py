"""What kind of thing a column holds, and the one line about questions that are not answered yet, in every domain."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.base.errors import DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.config.registry import task_class
from pipelines.data.check import kind_findings
from pipelines.data.columns import facts_of
from pipelines.data.divide import check_several
from pipelines.data.kinds import kind_of, labels_in, pair_in

DRAW = random.Random(0)


@pytest.mark.parametrize(("values", "name", "kind"), [
    ([f"{DRAW.gauss(0, 3):.9f}" for _ in range(2000)], "target", "numbers"),
    ([str(DRAW.randint(3, 90)) for _ in range(2000)], "y", "numbers"),
    ([str(number % 87 + 1) for number in range(2000)], "age", "numbers"), ([str(number % 10) for number in range(300)], "label", "classes"),
    ([str(number % 100) for number in range(2000)], "label", "classes"),
    ([str(1 + number % 5) for number in range(300)], "stars", "classes"),
    (["0", "0.3333", "0.6667", "1"] * 50, "probability", "numbers"),
    ([f"{number % 200 / 10:g}" for number in range(1000)], "score", "numbers"),
    (["grass", "sun", "grass|sun|house", "house|sun"] * 10, "label", "labels"), (["['a', 'b']", "['a']", "[]"] * 10, "label", "labels"),
    ([f"text number {number}" for number in range(100)], "label", "names"), ([f"m/{number}.png" for number in range(60)], "label", "files"),
    (["images", "masks"] * 20, "", "masks"), (["x", "y"] * 20, "", "classes"), (["1", "2", "other"] * 20, "", "classes"),
    ([*(str(20 + number % 60) for number in range(900)), *["unknown"] * 9], "age", "numbers"),
    ([f"class {number % 40}" for number in range(400)], "label", "classes"),
    (["New York, NY", "Albany, NY", "Boston, MA", "Salem, MA"] * 9, "label", "classes"),
    ([f"once {number}" for number in range(9)], "", "classes"),
])
def test_kinds(values, name, kind):
    counts = {value: values.count(value) for value in values}
    assert kind_of(counts, name).name == kind
    assert bool(kind_findings(counts)) == (kind_of(counts).name != "classes")


def test_labels_of_a_cell():
    assert [labels_in(value, "|") for value in ("a|b", ["a"], "['a', 'b']", None)] == [["a", "b"], ["a"], ["a", "b"], []]


@pytest.mark.parametrize(("names", "pair"), [
    (["id", "question1", "question2", "is_duplicate"], ("question1", "question2")),
    (["premise", "hypothesis", "label"], ("premise", "hypothesis")),
    (["text_a", "text_b"], ("text_a", "text_b")), (["en", "de"], ("en", "de")), (["title", "body", "topic"], None),
    (["question", "answer", "category"], None),
])
def test_pairs(names, pair):
    assert pair_in({name: facts_of([f"some words of {name} {number}" for number in range(30)]) for name in names}) == pair


def test_more_classes_than_can_be_learned_stop_training():
    check_several(["a", "b"], "here", labels=np.arange(2))
    check_several(["a", "b"], "here", labels=np.arange(60) % 30)
    with pytest.raises(DataError, match="40 classes for 45 examples, 35 of them seen once"):
        check_several(["a", "b"], "here", labels=np.minimum(np.arange(45) % 40, 40))


def table(path: Path, header: str, rows: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(), *rows])
    return path


def pictures(folder: Path, names: list[str], count: int = 12) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (24, 24), (number * 9, 40, 90)).save(folder / name / f"{number}.png")


WORDS = [f"some words about thing {number}" for number in range(80)]
COCO = {"images": [{"id": 1}], "annotations": [{"bbox": [1, 2, 3, 4]}]}


def numbers(folder: Path) -> Path:
    return table(folder / "t.csv", "text price", [(text, f"{number * 1.37:.3f}") for number, text in enumerate(WORDS)])


def duplicates(folder: Path) -> Path:
    return table(folder / "t.csv", "question1 question2 is_duplicate", [(text, f"{text}?", n % 2) for n, text in enumerate(WORDS)])


def paired(folder: Path) -> Path:
    return table(folder / "t.csv", "text1 text2", [(text, f"das {text}") for text in WORDS])


def ages(folder: Path) -> Path:
    pictures(folder, ["p"], 80)
    return table(folder / "t.csv", "file age", [(f"p/{number}.png", 3 + number % 38) for number in range(80)]).parent


def several(folder: Path) -> Path:
    pictures(folder, ["p"], 80)
    return table(folder / "t.csv", "file label", [(f"p/{n}.png", ("sun", "sun|grass", "grass", "house|sun")[n % 4]) for n in range(80)])


def coco(folder: Path) -> Path:
    pictures(folder, ["train2017", "annotations"])
    for file in (folder / "annotations").iterdir():
        file.unlink()
    (folder / "annotations/instances.json").write_text(json.dumps(COCO))
    return folder


def voc(folder: Path) -> Path:
    pictures(folder, ["JPEGImages"])
    (folder / "Annotations").mkdir()
    (folder / "Annotations/1.xml").write_text("<annotation><object><bndbox></bndbox></object></annotation>")
    return folder


def yolo(folder: Path) -> Path:
    pictures(folder, ["images/train", "labels"])
    for file in (folder / "labels").iterdir():
        file.with_suffix(".txt").write_text("0 0.5 0.5 0.25 0.125\n3 .1 .2 .3 1.0\n")
        file.unlink()
    return folder


def tags(folder: Path) -> Path:
    (folder / "part").mkdir()
    (folder / "part/wiki.conll").write_text("Anna B-PER\nlives O\nin O\nRome B-LOC\n\n" * 9)
    return folder


def answers(folder: Path) -> Path:
    (folder / "t.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}))
    return folder


def running(folder: Path) -> Path:
    (folder / "play.txt").write_text("To be, or not to be, that is the question.\n" * 500)
    return folder


@pytest.mark.parametrize(("domain", "make", "says"), [
    ("nlp", paired, "columns text1 and text2 are pairs of texts without labels: --task pair_ranking"),
    ("nlp", answers, "answers in passages"),
    ("nlp", tags, "wiki.conll: holds a word and its tag on each line: give that file"),
])
def test_a_question_that_is_not_answered_yet_is_named_in_one_line(tmp_path, domain, make, says):
    with pytest.raises(DataError, match=says) as refused:
        new(domain, make(tmp_path), encoder="none")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("make", "says"), [(coco, "boxes as COCO"), (voc, "boxes as Pascal VOC"), (yolo, "boxes as YOLO")])
def test_boxes_are_named_where_classes_of_whole_pictures_are_asked_for(tmp_path, make, says):
    with pytest.raises(DataError, match=f"{says}.*--task detection"):
        new("vision", make(tmp_path), encoder="none", task="classification")


def test_boxes_without_their_pictures(tmp_path):
    with pytest.raises(DataError, match="no picture for training that they belong to"):
        new("vision", coco(tmp_path), encoder="none")


def test_check_names_boxes_where_classes_are_asked_for(tmp_path):
    experiment = from_text(f"task: vision.classification\ndata: {{source: folder, path: {voc(tmp_path)}}}\nmodel: {{name: fast}}\n")
    with pytest.raises(DataError, match="boxes as Pascal VOC has them"):
        task_class("vision.classification")(experiment.experiment).splits()


def several_marked(folder: Path) -> Path:
    pictures(folder, ["p"], 80)
    return table(folder / "t.csv", "file sun grass house", [(f"p/{n}.png", n % 2, n % 3 // 2, n % 5 // 4) for n in range(80)])


def sounds(folder: Path, values: list) -> Path:
    import soundfile

    for number in range(len(values)):
        soundfile.write(folder / f"{number}.wav", 0.1 * np.sin(np.arange(4000) * (0.1 + 0.01 * number)), 8000)
    return table(folder / "t.csv", "audio pitch", [(f"{number}.wav", value) for number, value in enumerate(values)])


@pytest.mark.parametrize(("domain", "make", "task", "says"), [
    ("nlp", numbers, "nlp.regression", "Column price holds numbers (0 to 108.23, 80 different)"),
    ("vision", ages, "vision.regression", "Column age holds numbers (3 to 40, 38 different)"),
    ("vision", several, "vision.classification", "Column label holds several labels a row, such as sun|grass"),
    ("vision", several_marked, "vision.classification", "3 labels"),
    ("speech", lambda folder: sounds(folder, [number * 1.5 for number in range(40)]), "speech.regression", "Column pitch holds numbers"),
    ("speech", lambda folder: sounds(folder, [("a", "a;b", "b", "c;b")[n % 4] for n in range(40)]), "speech.classification", "3 labels"),
])
def test_new_knows_which_question_a_column_asks(tmp_path, domain, make, task, says):
    text = new(domain, make(tmp_path), encoder="none", columns={"label": "sun,grass,house"} if make is several_marked else {})
    found = from_text(text, file="a.yaml").experiment
    assert found.task == task and says in text and (task.endswith("regression") or found.data.labels == "many")
    assert type(found).__name__ and found.data.validation == (0.1 if domain == "nlp" else 0.2)


def test_new_writes_an_experiment_for_pairs_of_texts(tmp_path):
    found = from_text(new("nlp", duplicates(tmp_path), encoder="none"), file="a.yaml").experiment
    assert (found.task, found.data.text_key, found.data.label_key, found.model.name) == (
        "nlp.pair_classification", ["question1", "question2"], "is_duplicate", "linear")
    graded = table(tmp_path / "t.csv", "first second score", [(text, f"{text}?", n / 7) for n, text in enumerate(WORDS)])
    assert "task: nlp.pair_regression" in new("nlp", graded, encoder="none", task="pair_regression", columns={"text": "first,second"})
    with pytest.raises(DataError, match="no two columns seem to hold the texts of pairs; name both with --text FIRST,SECOND"):
        new("nlp", numbers(tmp_path), task="pair_regression")


def test_a_task_that_is_named_takes_numbers_for_classes(tmp_path):
    assert "label_key: age" in new("vision", ages(tmp_path), task="classification", encoder="none")
    with pytest.raises(DataError, match="80 different"):
        new("nlp", numbers(tmp_path), task="classification")


def test_columns_that_are_not_used_are_listed(tmp_path):
    path = table(tmp_path / "t.csv", "id text kind extra", [(n, text, "ab"[n % 2], f"z{n}") for n, text in enumerate(WORDS)])
    assert "# Not used: columns id, extra." in new("nlp", path, encoder="none")
