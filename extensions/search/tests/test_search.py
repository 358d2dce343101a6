"""An index finds what is nearest: compared with every row, by graph, among chosen rows, after additions. It is written whole or not at
all."""

import importlib.util
import json
import os
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from extensions.search import store as stores
from extensions.search.documents import passages, read_documents
from extensions.search.index import Reranker, build_index, open_index
from extensions.search.judging import judge
from extensions.search.options import SearchOptions
from extensions.search.routes import Searching
from extensions.search.store import MANIFEST, Store, write_store
from pipelines.base.errors import ConfigError, DataError
from pipelines.commands import main
from pipelines.runs.folder import RunFolder
from tests import finished_run
from tests.encoders import tiny
from tests.finished_run import ROOT
from tests.serving import toy_server

needs_usearch = pytest.mark.skipif(
    importlib.util.find_spec("usearch") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `search`")


def made(folder, count=500, seed=0, more=None):
    vectors = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    rows = [{"text": f"row {number}", "kind": "even" if number % 2 == 0 else "odd"} for number in range(count)]
    write_store(folder, vectors, rows, "preset", "0" * 64, [], more=more)
    return vectors


def cosines(vectors, queries):
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (vectors, queries)]
    return unit[1] @ unit[0].T


def test_the_nearest_are_those_that_all_compared_give(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK", 64)
    vectors = made(tmp_path)
    queries = np.random.default_rng(1).normal(size=(7, 16)).astype(np.float32)
    numbers, similar = Store.open(tmp_path).nearest(queries, 10)
    true = cosines(vectors, queries)
    assert numbers.tolist() == np.argsort(-true, 1)[:, :10].tolist()
    np.testing.assert_allclose(similar, -np.sort(-true, 1)[:, :10], atol=1e-6)
    chosen, _ = Store.open(tmp_path).nearest(queries, 5, {"kind": "odd"})
    true[:, ::2] = -2
    assert chosen.tolist() == np.argsort(-true, 1)[:, :5].tolist()
    assert Store.open(tmp_path).nearest(queries, 600)[0].shape == (7, 500)
    assert Store.open(tmp_path).nearest(queries, 5, {"kind": "neither"})[0].shape == (7, 0)
    with pytest.raises(ConfigError, match="no column 'colour'; there are text and kind"):
        Store.open(tmp_path).nearest(queries, 5, {"colour": "red"})


@needs_usearch
def test_a_graph_finds_nearly_all_of_them_and_goes_on_when_rows_are_added(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "GRAPH", 1000)
    first = made(tmp_path, 3000)
    second = made(tmp_path, 2000, seed=2, more=Store.open(tmp_path))
    whole, queries = np.concatenate([first, second]), np.random.default_rng(3).normal(size=(50, 16)).astype(np.float32)
    opened = Store.open(tmp_path)
    assert opened.graph is not None and opened.manifest.rows == 5000
    numbers, similar = opened.nearest(queries, 10)
    true = cosines(whole, queries)
    best = np.argsort(-true, 1)[:, :10]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(numbers.tolist(), best.tolist())]) > 0.98
    np.testing.assert_allclose(similar, np.take_along_axis(true, numbers, 1), atol=1e-5)
    assert opened.rows([3001]) == [{"text": "row 1", "kind": "odd"}]
    assert sorted(file.name.partition("-")[0] for file in tmp_path.iterdir()) == ["graph", "index.json", "rows", "vectors"]


def test_an_addition_that_is_broken_off_leaves_the_index_as_it_was(tmp_path, monkeypatch):
    made(tmp_path)
    before = Store.open(tmp_path)

    def full(path, content, **how):
        if path.name.startswith("rows"):
            raise OSError(28, "No space left on device")
        return written(path, content, **how)

    written = stores.write_whole
    monkeypatch.setattr(stores, "write_whole", full)
    with pytest.raises(OSError):
        made(tmp_path, 10, more=before)
    assert Store.open(tmp_path).manifest == before.manifest and len(Store.open(tmp_path).vectors) == 500
    monkeypatch.setattr(stores, "write_whole", written)
    made(tmp_path, 10, more=before)
    assert Store.open(tmp_path).manifest.rows == 510
    with pytest.raises(DataError, match="another process has changed the index"):
        made(tmp_path, 10, more=before)
    assert Store.open(tmp_path).manifest.rows == 510 and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(("change", "said"), [
    ({"rows": 501}, "has not 501 vectors of 16 numbers"), ({"vectors": "../vectors-0123456789abcdef.npy"}, "is damaged"),
    ({"graph": "vectors-0123456789abcdef.npy"}, "cannot be read"), ({"version": 2}, "another version")])
def test_a_damaged_index_is_refused(tmp_path, change, said):
    made(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | change))
    if change.get("graph"):
        (tmp_path / change["graph"]).write_bytes(b"x" * 400)
    with pytest.raises((ConfigError, DataError), match=said):
        Store.open(tmp_path)


def test_columns_of_several_kinds_are_kept_as_texts(tmp_path):
    rows = [{"id": 1, "tags": ["a", "b"]}, {"id": "two", "more": 0.5}]
    write_store(tmp_path, np.eye(2, 4, dtype=np.float32), rows, "preset", "0" * 64, [])
    write_store(tmp_path, np.eye(1, 4, 2, dtype=np.float32), [{"id": "3", "more": "a text"}], "preset", "0" * 64, [],
                more=Store.open(tmp_path))
    assert Store.open(tmp_path).rows([0, 1, 2]) == [{"id": "1", "tags": '["a", "b"]'}, {"id": "two", "more": "0.5"},
                                                   {"id": "3", "more": "a text"}]


def test_metrics_are_those_of_their_definitions():
    found = [["a", "b", "a"], ["b", "b", "b"], ["x"] * 10, ["c"]]
    metrics = judge(found, ["a", "a", "x", "none"], ["a", "a", "a", "b", "x", "x", None])
    gains = [1.0, 0.5]  # 1 / log2(1 + place)
    ndcg = [(gains[0] + gains[1]) / (1 + 1 / np.log2(3) + 0.5), 0.0]
    assert metrics["mrr@10"].value == pytest.approx((1 + 0 + 1) / 3) and metrics["mrr@10"].n == 3
    assert metrics["recall@10"].value == pytest.approx((2 / 3 + 0 + 10 / 2) / 3)
    assert metrics["precision@10"].value == pytest.approx((0.2 + 0 + 1) / 3)
    assert metrics["ndcg@10"].value == pytest.approx((sum(ndcg) + (1 / np.log2(np.arange(2, 12))).sum() / (1 + 1 / np.log2(3))) / 3)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    if importlib.util.find_spec("keras_hub") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"):
        pytest.skip("needs the extra `pretrained`")
    return tiny.bert(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    file = tmp_path_factory.mktemp("notes") / "notes.csv"
    file.write_text("text,label\ntaxi please,travel\nbook the room,hotel\ncancel breakfast,hotel\nwifi towels,hotel\n")
    return file


def test_texts_are_found_by_an_encoder_and_added_to(preset, notes, tmp_path):
    index = build_index(preset, str(notes), tmp_path / "index")
    assert len(index) == 4
    hits = open_index(tmp_path / "index").search("book the room", 2)
    assert hits[0].row == {"text": "book the room", "label": "hotel"} and hits[0].similarity == pytest.approx(1.0, abs=1e-5)
    assert index.search("book the room", 2, where={"label": "travel"})[0].row["text"] == "taxi please"
    with pytest.raises(ConfigError, match="an index is there already; --append adds"):
        build_index(preset, str(notes), tmp_path / "index")
    with pytest.raises(ConfigError, match="give one of the two"):
        build_index(preset, str(notes), tmp_path / "index", append=True, replace=True)
    more = build_index(preset, ["the wifi"], tmp_path / "index", append=True)
    assert len(more) == 5 and more.search("the wifi")[0].row == {"input": "the wifi"}
    assert more.search("the wifi", 1, where={"label": "hotel"})[0].row["label"] == "hotel"
    other = tiny.bert(tmp_path / "other")
    with pytest.raises(ConfigError, match="was made by another encoder"):
        build_index(other, ["taxi"], tmp_path / "index", append=True)
    assert len(open_index(tmp_path / "index")) == 5
    with pytest.raises(ConfigError, match="is a folder of other things"):
        build_index(preset, ["taxi"], notes.parent)


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    tiny.bert(tmp_path / "presets" / "minilm_l6")
    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path / "presets"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/notes.txt").write_text("taxi please\n\ncancel breakfast\n")
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/search.md").read_text(), re.M | re.S)
    exec(compile(example, "docs/search.md", "exec"), {})
    said = capsys.readouterr().out
    assert "taxi please" in said and "cancel breakfast" in said


def test_a_folder_of_documents_is_read_by_passages(tmp_path):
    (tmp_path / "inner").mkdir()
    long = " ".join(f"Sentence {number} has six words here." for number in range(30))
    (tmp_path / "b.md").write_text(f"# A title\n\n{long}\n\n \nThe end.", encoding="utf-8")
    (tmp_path / "inner/a.txt").write_bytes("Größe\r\n\r\nzwei".encode())
    (tmp_path / "inner/broken.txt").write_bytes(b"\xff\xfe\xfa\x00\xff")
    (tmp_path / "inner/picture.png").write_bytes(b"png")
    found = list(read_documents(tmp_path, lambda text: {"text": text.encode()}))
    rows = [one[2] for one in found if len(one) == 3]
    assert [(row["file"], row["passage"]) for row in rows] == [("b.md", 1), ("b.md", 2), ("b.md", 3), ("b.md", 4), ("inner/a.txt", 1),
                                                              ("inner/a.txt", 2)]
    assert f"{rows[1]['text']} {rows[2]['text']}" == long and rows[1]["text"].endswith("here.") and len(rows[1]["text"].split()) <= 120
    assert rows[0]["text"] == "# A title" and rows[3]["text"] == "The end." and rows[4]["text"] == "Größe"
    assert [one[0] for one in found if isinstance(one[1], Exception)] == ["inner/broken.txt"]
    assert [len(part.split()) for part in passages("word " * 250)] == [120, 120, 10]
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="holds no texts"):
        list(read_documents(tmp_path / "none", dict))


def call(*arguments):
    return CliRunner().invoke(main.app, [str(one) for one in arguments])


def test_the_commands_find_show_and_judge(preset, notes, tmp_path):
    said = call("index", preset, notes, "-o", tmp_path / "index")
    assert "4 rows, vectors of 16, all compared" in said.output
    found = call("search", tmp_path / "index", "book the room", "--count", 1, "--json")
    (hit,) = json.loads(found.stdout)["hits"]
    assert hit["row"] == {"text": "book the room", "label": "hotel"}
    assert "1.00  text: taxi please; label: travel" in call("search", tmp_path / "index", "taxi please", "--count", 1).output
    judged = call("search", tmp_path / "index", notes, "--judge", "label")
    assert "4 queries" in judged.output and "ndcg@10" in judged.output and judged.exit_code == 0
    wrong = call("search", tmp_path / "index", "taxi", "--where", "colour=red")
    assert wrong.exit_code == 2 and "--where: the index has no column 'colour'; there are text, label" in wrong.output
    nothing = call("search", tmp_path / "none", "taxi")
    assert nothing.exit_code == 2 and "is no index; `quartet index RUN|PRESET INPUT... --output" in nothing.output


def test_a_server_answers_from_an_index(preset, notes, tmp_path):
    pytest.importorskip("starlette")
    build_index(preset, str(notes), tmp_path / "index")
    with SearchOptions(index=tmp_path / "index"), toy_server.running(protocols=[Searching()]) as server:
        def ask(**sent):
            status, _, content = server.ask(json.dumps(sent).encode(), path="/v1/search")
            return status, content

        status, answer = ask(query="book the room", count=2)
        assert status == 200 and len(answer["hits"]) == 2
        assert answer["hits"][0]["row"] == {"text": "book the room", "label": "hotel"}
        status, answer = ask(query={"text": "book the room"}, where={"label": "travel"})
        assert [hit["row"]["text"] for hit in answer["hits"]] == ["taxi please"]
        for sent, said in (({}, "has no query"), ({"query": "a", "count": 0}, "from 1 to 1,000"),
                           ({"query": "a", "k": 3}, "'k' is none of"), ({"query": "a", "where": {"label": 1}}, "as texts"),
                           ({"query": "a", "where": {"x": "y"}}, "no column 'x'"), ({"query": 7}, "is not a text"),
                           ({"query": {"b64": "?"}}, "b64")):
            status, answer = ask(**sent)
            assert status == 400 and said in answer["error"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory, preset):
    """A run that finds answers in passages, hardly trained."""
    from pipelines.config.load import from_text
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import task_class
    from tests import numbers_made
    from tests.contract_cases import ANSWERS

    folder = tmp_path_factory.mktemp("reader")
    known = from_text(ANSWERS, [*numbers_made.answers(folder, 40), f"model.preset={preset}", "train.epochs=1", "evaluate.bootstrap=100"])
    place = RunFolder(folder / "runs" / "answers" / "one")
    train(known.experiment, place, Call("answers", task_class(known.experiment.task), quiet=True))
    return place


def test_questions_are_answered_from_the_rows_with_their_source(preset, reader, tmp_path):
    from extensions.search.reading import Reader

    rows = ["the taxi is red", "the room is blue . please book breakfast", "wifi"]
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(rows):
        (tmp_path / "folder" / f"{number}.txt").write_text(text)
    index = build_index(preset, str(tmp_path / "folder"), tmp_path / "index")
    answering = Reader(reader)
    hits = index.search("the room ?", 3)
    found = answering.answer("the room ?", hits, index.text_of)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        assert one.answer == one.row["text"][one.start:one.end] and one.answer in one.sentence and 0 < one.score <= 1
        alone = answering.predictor.together([("x", answering.predictor.take(["the room ?", one.row["text"]]))])[0].values
        assert one.answer == alone["answer"] and one.score <= float(alone["score"])
    assert answering.answer("the room ?", [], index.text_of) == []
    with pytest.raises(DataError, match="has to be a text"):
        answering.answer(7, hits, index.text_of)
    with pytest.raises(ConfigError, match="finds answers in passages is needed"):
        Reader(RunFolder(finished_run.run()))
    said = call("search", tmp_path / "index", "the room ?", "--reader", reader.path, "--json")
    given = json.loads(said.stdout)
    assert [one["answer"] for one in given["answers"]] == [one.answer for one in found] and len(given["hits"]) == 3
    shown = call("search", tmp_path / "index", "the room ?", "--reader", reader.path).output
    assert f"{found[0].answer}  (file: {found[0].row['file']}; passage: 1: " in shown if found else "no answer" in shown
    (tmp_path / "queries.csv").write_text('text,file,answers\nthe room ?,1.txt,blue\nthe taxi ?,0.txt,red\n')
    judged = call("search", tmp_path / "index", tmp_path / "queries.csv", "--judge", "file", "--reader", reader.path)
    assert judged.exit_code == 0 and "answer_f1" in judged.output and "mrr@10" in judged.output


def test_a_server_answers_from_what_it_found(preset, reader, notes, tmp_path):
    pytest.importorskip("starlette")
    build_index(preset, str(notes), tmp_path / "index")
    with SearchOptions(index=tmp_path / "index", reader=reader.path), toy_server.running(protocols=[Searching()]) as server:
        status, _, answer = server.ask(json.dumps({"query": "the taxi ?", "count": 2}).encode(), path="/v1/search")
        assert status == 200 and len(answer["hits"]) == 2 and len(answer["answers"]) <= 2
        assert all(set(one) == {"answer", "sentence", "score", "start", "end", "similarity", "row"} for one in answer["answers"])
    with pytest.raises(ConfigError, match="name one with --index"), SearchOptions(reader=reader.path):
        Searching().prepare(None)


def test_answers_are_judged_as_squad_does():
    from extensions.search.judging import judge_answers
    from nlp.tasks.question_answering import Spans

    given = [("the cat", "cat"), ("", ""), ("big dog", '["a dog", "cats"]'), ("x", "")]
    found = judge_answers([Spans.compare(None, *one) for one in given])
    assert found["exact_match"].value == 0.5 and found["answer_f1"].value == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)


def test_a_reranker_puts_the_better_row_first(preset, notes, tmp_path):
    """Of a run on pairs that has learned that texts go together which share a word."""
    from pipelines.config.load import from_text
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import task_class

    words = ["taxi", "room", "breakfast", "wifi", "towels", "cancel", "book"]
    rows = [f"{one},{other},{int(one == other)}" for one in words for other in words for _ in range(1 + 5 * (one == other))]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,label", *rows]))
    known = from_text("task: nlp.pair_classification\ndata: {source: table, path: PATH, validation: 0, test: null, label_key: label}\n"
                      "model: {name: linear}\nevaluate: {bootstrap: 100}\n".replace("PATH", str(tmp_path / "pairs.csv")))
    place = RunFolder(tmp_path / "runs" / "pairs" / "one")
    train(known.experiment, place, Call("pairs", task_class(known.experiment.task), quiet=True))
    index = build_index(preset, str(notes), tmp_path / "index")
    hits = index.search("wifi", 4, rerank=Reranker(place))
    assert len(hits) == 4 and hits[0].row["text"] == "wifi towels" and hits[0].similarity > hits[1].similarity
    known = from_text("task: nlp.pair_regression\ndata: {source: table, path: PATH, validation: 0.3, test: null, label_key: label}\n"
                      "model: {name: linear}\nevaluate: {bootstrap: 100}\n".replace("PATH", str(tmp_path / "pairs.csv")))
    place = RunFolder(tmp_path / "runs" / "numbers" / "one")
    train(known.experiment, place, Call("numbers", task_class(known.experiment.task), quiet=True))
    by_number = Reranker(place)
    assert {"value", "low", "high"} <= set(by_number.predictor.columns)
    said = by_number.predictor.together([("pair", by_number.predictor.take(["wifi", "wifi towels"]))])[0].values
    (best, *_) = index.search("wifi", 4, rerank=by_number)
    assert best.row["text"] == "wifi towels" and best.similarity == pytest.approx(float(said["value"])) and said["value"] < said["high"]
    with pytest.raises(ConfigError, match="a run on pairs of texts is needed"):
        Reranker(RunFolder(finished_run.run()))
