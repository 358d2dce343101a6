"""Things named in texts: tags and spans read, matched as seqeval matches them, learned, and given back in characters."""

import json

import numpy as np
import pytest
import tensorflow as tf
from seqeval import metrics as seqeval

from nlp.check import CHECKS
from nlp.data.tag_spans import BadTag, joined, read_conll, read_json, runs, scheme_of, spans_of, split_files
from nlp.metrics import entities, span_judging
from nlp.settings import TagData
from pipelines.base.errors import DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text


@pytest.mark.parametrize(("tags", "scheme", "found"), [
    ("O B-a I-a B-a O B-b", "IOB2", [(1, 3, "a"), (3, 4, "a"), (5, 6, "b")]),
    ("I-a I-a B-a I-b O I-b", "IOB1", [(0, 2, "a"), (2, 3, "a"), (3, 4, "b"), (5, 6, "b")]),
    ("B-a L-a U-a O B-b I-b L-b", "BILOU", [(0, 2, "a"), (2, 3, "a"), (4, 7, "b")]),
    ("B-a E-a S-a-b O", "BILOU", [(0, 2, "a"), (2, 3, "a-b")]),
    ("O O", "IOB2", []),
])
def test_each_scheme_of_tags_is_known_and_read(tags, scheme, found):
    assert scheme_of([tags.split()]) == scheme
    assert runs(tags.split(), scheme) == found


@pytest.mark.parametrize(("tags", "scheme", "number", "reason"), [
    ("B-a O I-a", "IOB2", 2, "I-a out of nothing"), ("B-a I-b", "IOB2", 1, "out of nothing.*a stands before it"),
    ("B-a O", "BILOU", 1, "does not end"), ("O B-a", "BILOU", 1, "the sentence ends"), ("L-a", "BILOU", 0, "out of nothing"),
    ("O X-a", "IOB2", 1, "tags are O and B-TYPE, I-TYPE"), ("B-", "IOB2", 0, "tags are"), ("person", "IOB2", 0, "tags are"),
])
def test_a_tag_that_means_nothing_is_named(tags, scheme, number, reason):
    with pytest.raises(BadTag, match=reason) as raised:
        runs(tags.split(), scheme)
    assert raised.value.number == number


@pytest.mark.parametrize(("spans", "reason"), [
    ([[0, 4, "a"], [3, 5, "b"]], "overlap"), ([[3, 3, "a"]], "ends before it begins"), ([[0, 9, "a"]], "beyond the text"),
    ([[2, 3, "a"]], "blanks alone"), ([["0", 1, "a"]], "is no span"), ({"a": 1}, "no list of spans"), ([[0, 1, " "]], "is no span"),
    ([[True, 2, "a"]], "is no span"),
])
def test_a_span_that_cannot_be_is_an_error(spans, reason):
    with pytest.raises(DataError, match=reason):
        spans_of(spans, "ab cd")


def test_spans_lose_blanks_and_stand_in_order():
    assert spans_of([{"start": 2, "end": 5, "label": "b"}, [0, 3, "a"]][::-1][:1], "ab cd") == [(0, 2, "a")]
    assert spans_of([{"start": 2, "end": 5, "label": "b"}, [0, 2, "a"]], "ab cd") == [(0, 2, "a"), (3, 5, "b")]


def data_of(path, **settings):
    return TagData.model_validate({"path": str(path), **settings})


def test_columns_are_read_with_tabs_or_blanks_documents_and_bad_lines(tmp_path):
    (tmp_path / "train.txt").write_text("-DOCSTART- O\n\nEU NNP B-org\nrejects VB O\n\n-DOCSTART- O\n\nBonn NNP B-loc\nx O I-org\n\nx\n")
    (tmp_path / "dev.conll").write_text("-DOCSTART-\nA\tB-org\r\nB\tI-org\r\n\r\nC\t\r\n")
    data = data_of(tmp_path, source="conll", group_by="document")
    files = split_files(tmp_path, data)
    assert [*files] == ["dev", "train"]
    read, note = read_conll(files, data)
    assert "IOB2" in note
    train, dev = read["train"], read["dev"]
    assert train.texts == ["EU rejects"] and train.labels == [[(0, 2, "org")]] and train.places(0) == f"{tmp_path / 'train.txt'}:3"
    assert [place.rpartition(":")[2] for place, _ in train.bad] == ["9", "11"] and "out of nothing" in train.bad[0][1]
    assert dev.texts == ["A B"] and dev.labels == [[(0, 3, "org")]] and dev.groups == ["dev.conll 1"]
    assert dev.bad == [(f"{tmp_path / 'dev.conll'}:5", "no tag")]
    middle = read_conll({"train": files["train"]}, data_of(tmp_path, source="conll", label_column=1, token_column=2))[0]["train"]
    assert "NNP" in middle.bad[0][1]
    assert "data.group_by: document" in read_conll(files, data_of(tmp_path, source="conll"))[1] and "group_by" not in note
    with pytest.raises(DataError, match="no lines -DOCSTART-"):
        (tmp_path / "dev.conll").write_text("A\tO\n")
        read_conll(files, data)


def test_json_lines_are_read_with_their_errors(tmp_path):
    lines = [{"text": "à Köln", "spans": [[2, 6, "place"]], "who": 1}, {"text": "x", "label": []}, {"text": "x", "spans": [[1, 0, "a"]]},
             {"spans": []}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n[1\n")
    read = read_json({"all": tmp_path / "a.jsonl"}, data_of(tmp_path, source="jsonl"))["all"]
    assert read.texts == ["à Köln", "x"] and read.labels == [[(2, 6, "place")], []]
    assert [place.rpartition(":")[2] for place, _ in read.bad] == ["3", "4", "5"]
    with pytest.raises(DataError, match="no file that is called train"):
        split_files(tmp_path, data_of(tmp_path, source="jsonl"))


@pytest.mark.parametrize("form", ["Label Studio", "its shorter form", "spaCy"])
def test_exports_of_others_are_read(tmp_path, form):
    span = {"start": 0, "end": 4, "text": "Anna", "labels": ["person"]}
    content = {
        "Label Studio": [
            {"id": 1, "data": {"text": "Anna lives", "who": 7}, "annotations": [
                {"was_cancelled": True, "result": []},
                {"result": [{"type": "labels", "value": span}, {"type": "choices", "value": {"choices": ["x"]}}]}]},
            {"id": 2, "data": {"text": "open"}, "annotations": []},
            {"id": 3, "data": {"text": "Bern", "who": 8}, "annotations": [{"result": [{"value": {**span, "labels": ["a", "b"]}}]}]}],
        "its shorter form": [{"text": "Anna lives", "label": [span], "who": 7}],
        "spaCy": [["Anna lives", {"entities": [[0, 4, "person"]], "who": 7}]]}[form]
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1))
    read = read_json({"all": tmp_path / "a.json"}, data_of(tmp_path, source="jsonl", group_by="who"))["all"]
    assert read.texts == ["Anna lives"] and read.labels == [[(0, 4, "person")]] and read.groups == ["7"]
    assert read.places(0) == f"{tmp_path / 'a.json'}:1"
    if form == "Label Studio":
        assert [place.rpartition(":")[2] for place, _ in read.bad] == ["2", "3"]
        assert "nobody has annotated" in read.bad[0][1] and "is no span" in read.bad[1][1]


def sentences_of(count):
    return "".join(f"Anna\tB-PER\nSmith\tI-PER\nlives\tO\nin\tO\nBern\tB-LOC\n{number}\tO\n\n" for number in range(count))


def test_new_proposes_to_find_what_is_marked(tmp_path):
    for name, count in (("train", 30), ("dev", 10), ("test", 12)):
        (tmp_path / f"{name}.conll").write_text(sentences_of(count))
    text = new("nlp", tmp_path, encoder="none")
    known = from_text(text).experiment
    assert known.task == "nlp.tagging" and (known.data.source, known.data.validation, known.data.test) == ("conll", "dev", "test")
    assert "30 training texts" in text and "60 things of 2 types: PER (30), LOC (30)" in text and "hf://" in known.model.preset
    result = CHECKS["nlp.tagging"](known)
    assert not result.failed and result.splits["train"]["classes"] == {"LOC": 30, "PER": 30}
    assert any("train: 0 of 30 texts have nothing marked" in one.text for one in result.findings)
    assert any(one.level == "warning" and "the same text" in one.text for one in result.findings)  # all splits begin alike
    (tmp_path / "test.conll").write_text(sentences_of(12).replace("B-LOC", "B-town"))
    assert any("of which train has no example" in one.text and one.details == ("town",) for one in CHECKS["nlp.tagging"](known).findings)
    lines = [{"text": f"Anna {number}", "spans": [[0, 4, "person"]]} for number in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"text": "x", "spans": [[3, 1, "y"]]}])))
    known = from_text(new("nlp", tmp_path / "a.jsonl", encoder="none")).experiment
    assert (known.data.source, known.data.test, known.data.on_bad_example) == ("jsonl", 0.2, "skip")
    (tmp_path / "b.csv").write_text("text,label\n" + "".join(f"a{number} b,{'xy'[number % 2]}\n" for number in range(40)))
    assert "task: nlp.classification" in new("nlp", tmp_path / "b.csv", encoder="none")
    with pytest.raises(DataError, match="no texts in which things are marked"):
        new("nlp", tmp_path / "b.csv", task="tagging", encoder="none")


def drawn(draw, tokens):
    return ["O" if draw.random() < 0.4 else f"{'BI'[draw.integers(2)]}-{'ab'[draw.integers(2)]}" for _ in range(tokens)]


def numbers_of(tags, first):
    """Tags of words as the model gives them for tokens, anything at those that are not first."""
    each = iter([0 if tag == "O" else 1 + 2 * "ab".index(tag[2]) + (tag[0] == "I") for tag in tags])
    return [next(each) if one else 3 for one in first]


def test_spans_count_as_seqeval_counts_them():
    """Random tags, many of them out of nothing, of words of one to three tokens, against seqeval."""
    draw = np.random.default_rng(0)
    true, given, sums = [], [], np.zeros((1, 2, 3))
    for _ in range(200):
        sizes = draw.integers(1, 4, size=draw.integers(1, 12))
        first = [False, *(place == 0 for size in sizes for place in range(size)), False, False]
        starts = [0, *np.repeat(np.cumsum(sizes + 1) - sizes, sizes).tolist(), 99, 0]
        ends = [0, *np.repeat(np.cumsum(sizes + 1), sizes).tolist(), 99, 0]
        pair = [drawn(draw, len(sizes)) for _ in range(2)]
        spans = []
        for tags in pair:
            found = entities.found(*(tf.constant([one]) for one in (numbers_of(tags, first), [0.5] * len(first), starts, ends)))
            spans.append(found["spans"])
            scores = found["scores"].numpy()
            np.testing.assert_allclose(scores[found["spans"].numpy()[..., 1] > 0], 0.5, rtol=1e-5)
        whole = entities.counts(spans[0], spans[1]).numpy()
        each = span_judging.counts(spans[0].numpy(), spans[1].numpy(), 2)
        np.testing.assert_array_equal(whole, each.sum(1))
        sums += each
        given.append(pair[0])
        true.append(pair[1])
    total = sums.sum(1)
    ours = [float(metric(total)[0]) for metric in span_judging.METRICS.values()]
    assert 0.2 < ours[0] < 0.8
    theirs = [seqeval.f1_score(true, given), seqeval.precision_score(true, given), seqeval.recall_score(true, given)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(span_judging.f1(sums[0]), seqeval.f1_score(true, given, average=None), rtol=1e-6)


def test_the_tags_of_spans_give_the_spans():
    tokens = ["New", "York", "'", "s", "Bob"]
    text, spans = joined(tokens, [(0, 2, "0"), (2, 3, "1"), (4, 5, "1")])
    starts = [0, 0, 4, 9, 11, 13, 13, 0]
    ends = [0, 3, 8, 10, 12, 16, 16, 0]
    assert text == "New York ' s Bob"
    packed = np.array([[(*span[:2], int(span[2])) for span in spans] + [(0, 0, 0)]], np.int32)
    tags = entities.tags_of(*map(tf.constant, (packed, [starts], [ends])))
    assert tags.numpy().tolist() == [[-1, 1, 2, 3, 0, 3, -1, -1]]
    found = entities.found(tags, tf.ones([1, 8]), tf.constant([starts]), tf.constant([ends]))
    assert found["spans"].numpy()[:, :3].tolist() == packed[:, :3].tolist()
    empty = entities.tags_of(tf.zeros([1, 0, 3], tf.int32), tf.constant([starts]), tf.constant([ends]))
    assert empty.numpy().tolist() == [[-1, 0, 0, 0, 0, 0, -1, -1]]


@pytest.mark.parametrize("size", [4, 5, 7, 12])
def test_vectors_of_windows_come_back_to_their_tokens(size, monkeypatch):
    from nlp.models.pretrained import Windows
    from nlp.models.tagger import Unwindowed

    ids = np.zeros((3, 11), np.int32)
    for row, length in enumerate((11, 2, 7)):
        ids[row, :length] = [98, *range(row * 10 + 1, row * 10 + length - 1), 99]
    windows, back = Windows(size), Unwindowed(size)
    inner = np.where(ids >= 98, 0, ids)
    for training in (False, True):
        rows, _ = windows(ids, training=training)
        assert rows.shape[1] <= size
        np.testing.assert_array_equal(back([tf.cast(rows, tf.float32)[..., None], ids])[..., 0], inner)
    for module in ("nlp.models.pretrained", "nlp.models.tagger"):
        monkeypatch.setattr(f"{module}.for_xla", lambda: True)
    rows, _ = windows(ids)
    np.testing.assert_array_equal(back([tf.cast(rows, tf.float32)[..., None], ids])[..., 0], inner)


def test_a_chain_of_tags_is_that_of_all_sequences():
    """Loss, the best sequence and the probability of each tag, against all sequences one by one."""
    from itertools import pairwise, product

    from nlp.models import crf

    draw = np.random.default_rng(0)
    emissions, transitions = draw.normal(size=(3, 4, 3)).astype(np.float32), draw.normal(size=(3, 3)).astype(np.float32)
    there = np.array([[True] * 4, [True, True, False, False], [False] * 4])
    several = np.tile(transitions, (3, 1, 1))
    tags, chances = (value.numpy() for value in crf.decode(*map(tf.constant, (emissions, several, there))))
    whole = crf.log_partition(*map(tf.constant, (emissions, several, there))).numpy()
    for row, length in enumerate((4, 2)):
        def total(path, row=row):
            return sum(emissions[row, at, tag] for at, tag in enumerate(path)) + sum(transitions[pair] for pair in pairwise(path))

        paths = {path: np.exp(total(path)) for path in product(range(3), repeat=length)}
        best = max(paths, key=paths.get)
        assert tuple(tags[row, :length]) == best
        np.testing.assert_allclose(whole[row], np.log(sum(paths.values())), rtol=1e-5)
        for at, tag in enumerate(best):
            own = sum(value for path, value in paths.items() if path[at] == tag) / sum(paths.values())
            np.testing.assert_allclose(chances[row, at], own, rtol=1e-4)
        given = np.array([[*best, *[0] * (4 - length)]], np.int32)
        scored = crf.score(emissions[row:row + 1], several[:1], given, there[row:row + 1])
        np.testing.assert_allclose(scored, np.log(paths[best]), rtol=1e-4)
    one = crf.decode(emissions[:, :1], tf.constant(several), tf.constant(there[:, :1]))
    assert one[0].numpy()[:, 0].tolist() == emissions[:, 0].argmax(-1).tolist()


@pytest.mark.slow
def test_a_chain_is_trained_judged_exported_and_equal_alone_and_in_a_batch(tmp_path):
    pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    from pipelines.config.load import from_text
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run
    from pipelines.serving.predict import Predictor
    from quartet import task_testing
    from tests import numbers_made
    from tests.contract_cases import TAGS
    from tests.encoders import tiny

    settings = [*numbers_made.tagged(tmp_path, 120), f"model.preset={tiny.bert(tmp_path / 'bert')}", "model.chain=true", "train.epochs=6",
                "train.learning_rate.peak=0.02", "evaluate.bootstrap=100", "train.precision=float32", "train.devices=cpu", "data.test=null",
                "train.validate_every=6", "evaluate.baseline=false", "monitor.tensorboard=false"]
    known = from_text(TAGS, settings)
    place = RunFolder(tmp_path / "runs" / "chain" / "one")
    train(known.experiment, place, Call("chain", task_class(known.experiment.task), quiet=True))
    run = load_run(place, where="cpu")
    weight = run.model.get_layer("head").get_layer("chain").scores.numpy()
    assert np.abs(weight).max() > 0.01
    report = json.loads((place.report / "report.json").read_text())
    assert report["metrics"]["validation/entity_f1"]["value"] > 0.1
    texts = ["a golden bed from Bern .", "", "the taxi"]
    predictor = Predictor(run)
    together = [one.values for one in predictor.predict(texts)]
    (alone,) = predictor.predict(texts[2:])
    assert alone.values["texts"].tolist() == together[2]["texts"].tolist()
    task_testing.check_export(run, [{"text": text.encode()} for text in texts], tmp_path)


def test_types_taken_for_each_other_are_counted():
    true = np.array([[[0, 4, 0], [5, 9, 1], [12, 14, 1]]])
    given = np.array([[[1, 4, 1], [5, 9, 1], [20, 22, 0]]])
    assert span_judging.confusion(given, true, 2).tolist() == [[0, 1, 0], [0, 1, 1], [1, 0, 0]]
    assert span_judging.marked("Anna Bern", {(5, 9, 1), (0, 4, 0)}, ["person", "place"]) == "[Anna person] [Bern place]"


@pytest.mark.slow
def test_answers_are_characters_of_the_text_as_sent(tmp_path):
    """Whatever bytes a character has, alone and in a batch; a text without words has no spans."""
    pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    from nlp.tasks.tagging import Tagging
    from pipelines.config.load import from_text
    from tests import numbers_made
    from tests.contract_cases import TAGS
    from tests.encoders import tiny

    settings = [*numbers_made.tagged(tmp_path), f"model.preset={tiny.bert(tmp_path / 'bert')}", "model.limit=10"]
    task = Tagging(from_text(TAGS, settings, file="x").experiment)
    task.facts = task.splits().facts
    texts = ["  😀 Köln\u00a0à Bern, ok", "", "a" * 40 + " Bern", "\u200b", "Bern"]

    def respond(rows):
        examples = task.input.receive({"text": tf.constant([text.encode() for text in rows])})
        starts, ends = examples["starts"], examples["ends"]
        first = entities.first_tokens(starts, ends)
        tags = tf.where(first & (ends - starts == 4), 1, 0)  # words of four letters are places
        given = {"tags": tags, "chances": tf.ones(tf.shape(tags)), **task.passed_by(examples)}
        return {name: value.numpy() for name, value in task.output.respond(given).items()}

    for rows in (texts, *([text] for text in texts)):
        found = respond(rows)
        for row, text in enumerate(rows):
            spans = [(text.find(word), text.find(word) + 4, word) for word in ("Köln", "Bern") if word in text and len(text) < 40]
            count = found["count"][row]
            given = zip(found["starts"][row], found["ends"][row], found["texts"][row], strict=True)
            assert [(start, end, word.decode()) for start, end, word in given][:count] == spans
            assert set(found["labels"][row, :count].tolist()) == ({b"place"} if spans else set())


def test_marked_texts_are_coloured_on_pages_and_have_brackets_elsewhere():
    from pipelines.reports.blocks import markdown
    from pipelines.reports.html import page
    from pipelines.reports.run_report import records_table

    text = span_judging.marked("Anna <b> Bern", {(9, 13, 1), (0, 4, 0)}, ["person", "place"])
    blocks = records_table([{"example": "a:1", "true": text}])
    assert '<mark class="c0">Anna<i>person</i></mark> &lt;b&gt; <mark class="c1">Bern<i>place</i></mark></td>' in page(blocks, title="x")
    assert "Anna person] " in markdown(blocks) and "Bern place]" in markdown(blocks) and "mark" not in markdown(blocks)
