"""Questions whose answers stand in passages: files, places, windows, the search for an answer, exact match and F1."""

import json
import re
import string
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from nlp.check import CHECKS
from nlp.data.answers import Reading, answers_of, occurrences, read, split_files
from nlp.metrics import answer_judging
from nlp.metrics.exactness import compare
from nlp.models import reader
from nlp.settings import AnswerData
from nlp.tokens import passages
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_dict, from_text

PASSAGE = "Anna lives in Bern. She has 2 dogs, and a cat!"


def squad(*asked, passage=PASSAGE):
    return {"version": "v2.0", "data": [{"title": "Anna", "paragraphs": [{"context": passage, "qas": list(asked)}]}]}


def asked(number, text, start, question="Where?", **more):
    return {"id": f"q{number}", "question": question, "answers": [] if text is None else [{"text": text, "answer_start": start}], **more}


def data_of(path, **more):
    return AnswerData(**{"source": "squad", "path": str(path), **more})


def rows_of(path, **more):
    data = data_of(path, **more)
    reading = read(split_files(path, data), data)
    return reading.rows, reading


def test_answers_of_squad_stand_where_they_say(tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(squad(
        asked(1, "Bern", 14), asked(2, None, 0, is_impossible=True), asked(3, " 2 dogs", 27), asked(4, "Anna", 3), asked(5, "Rome", 14),
        asked(6, "Bern", 14, is_impossible=True), {"id": "q7", "question": None, "answers": []}, {"id": "q8", "question": "Who?"})))
    rows, reading = rows_of(file)
    one = rows["all"]
    assert one.labels == [[(14, 18)], [], [(28, 34)], [(0, 4)], [], []] and reading.moved == 1
    assert one.bad == [(f"{file}: q5", "answer 'Rome' is not in the passage; at character 14 stands 'Bern'"),
                       (f"{file}: q8", "no answers; [] where the passage has none")]
    assert one.places(0) == f"{file}: q1" and len(set(one.groups)) == 1
    assert rows_of(file, group_by="title")[0]["all"].groups[0] == "Anna"
    assert any("stand elsewhere" in note for note in reading.notes())
    file.write_text('{"data": [{"title": "x"}]}')
    with pytest.raises(DataError, match="not as SQuAD has it"):
        rows_of(file)


def test_files_of_a_folder_are_joined_by_the_split_in_their_names(tmp_path):
    for name in ("reddit_train", "shop-train", "dev-v2.0", "new_wiki_test", "readme"):
        (tmp_path / f"{name}.json").write_text(json.dumps(squad(asked(name, "Bern", 14))))
    files = split_files(tmp_path, data_of(tmp_path))
    assert {role: [file.stem for file in every] for role, every in files.items()} == {
        "train": ["reddit_train", "shop-train"], "validation": ["dev-v2.0"], "test": ["new_wiki_test"]}
    assert {role: len(rows.labels) for role, rows in rows_of(tmp_path)[0].items()} == {"train": 2, "validation": 1, "test": 1}
    for file in files["train"]:
        file.unlink()
    with pytest.raises(DataError, match="has the word train"):
        split_files(tmp_path, data_of(tmp_path))


@pytest.mark.parametrize(("stored", "places"), [
    ("Bern", [(14, 18)]), ('["Bern", "Anna"]', [(14, 18), (0, 4)]), ('{"text": ["cat"], "answer_start": [42]}', [(42, 45)]),
    ("", []), ("a", [(40, 41)]), ('{"text": [], "answer_start": []}', [])])
def test_answers_of_tables_are_texts_lists_or_objects(tmp_path, stored, places):
    import csv

    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "context", "answers"), ("Where?", PASSAGE, stored)])
    rows, _ = rows_of(tmp_path / "a.csv", source="table")
    assert rows["all"].labels == [places] and rows["all"].texts == [("Where?", PASSAGE)]


def test_a_column_of_splits_divides_one_table_and_no_folder(tmp_path):
    parts = ["train", "train", "train", "dev"]
    rows = ["question,context,answers,part", *(f"q{number},Anna {number},Anna,{part}" for number, part in enumerate(parts))]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    how = {"source": "table", "split_key": "part"}
    assert {name: len(part.labels) for name, part in rows_of(tmp_path / "a.csv", **how)[0].items()} == {"train": 3, "dev": 1}
    (tmp_path / "a.csv").write_text("\n".join([*rows, "q,Anna,Anna,"]))
    with pytest.raises(DataError, match="csv:6: no value in column part"):
        rows_of(tmp_path / "a.csv", **how)
    (tmp_path / "a.csv").rename(tmp_path / "train.csv")
    with pytest.raises(DataError, match="has files for each split already"):
        rows_of(tmp_path, **how)


def test_an_answer_without_a_place_is_looked_for_as_a_word():
    assert occurrences("an", "an Ann ran an ox") == [(0, 2), (11, 13)]
    assert occurrences("nn", "an Ann") == [(4, 6)]
    with pytest.raises(DataError, match="is no answer"):
        answers_of([{"text": 7}])
    assert Reading().notes() == []


def official(text):
    """A second implementation, step by step."""
    text = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def official_f1(given, true):
    own, other = official(given).split(), official(true).split()
    same = sum((Counter(own) & Counter(other)).values())
    if not own or not other:
        return int(own == other)
    if same == 0:
        return 0
    precision, recall = same / len(own), same / len(other)
    return 2 * precision * recall / (precision + recall)


def test_exact_match_and_f1_are_those_of_squad():
    draw = np.random.default_rng(0)
    words = ["The", "a", "an", "dog", "Dog's", "U.S.", "cat,", "$5", "well-known", "!", "half", "the-end"]
    for _ in range(500):
        given, *true = (" ".join(draw.choice(words, draw.integers(0, 5))) for _ in range(3))
        f1, exact = compare(given, true)
        assert f1 == pytest.approx(max(official_f1(given, one) for one in true)) and 0 <= f1 <= 1
        assert exact == max(official(given) == official(one) for one in true)
    assert compare("", []) == (1.0, 1.0) and compare("x", []) == (0.0, 0.0)
    assert compare("北京市", ["北京"])[0] == pytest.approx(0.8)  # characters of scripts without blanks are words


def ragged(*rows):
    return tf.ragged.constant(rows, tf.int32)


def test_a_passage_stands_behind_its_question_with_the_places_of_its_words():
    question, ids = ragged([101, 1, 2, 3, 102], [101, 4, 102]), ragged([101, 10, 11, 12, 13, 102], [101, 20, 102])
    starts, ends = ragged([0, 0, 5, 5, 9, 12], [0, 2, 4]), ragged([0, 4, 8, 8, 12, 12], [0, 4, 4])
    how = {"limit": 9, "asked": 2, "marks": (1, 1)}
    tokens, kinds, begin, end = passages.behind(question, (ids, starts, ends), **how)
    assert tokens.to_list() == [[101, 1, 2, 102, 10, 11, 12, 13, 102], [101, 4, 102, 20, 102]]
    assert kinds.to_list() == [[0, 0, 0, 0, 2, 2, 1, 2, 3], [0, 0, 0, 2, 3]]
    assert begin.to_list() == [[0, 0, 0, 0, 0, 5, 5, 9, 0], [0, 0, 0, 2, 0]]
    assert end.to_list() == [[0, 0, 0, 0, 4, 8, 8, 12, 0], [0, 0, 0, 4, 0]]
    doubled = passages.behind(question, (ids, starts, ends), doubled=True, **how)[0].to_list()
    assert doubled == [[101, 1, 2, 102, 102, 10, 11, 12, 102], [101, 4, 102, 102, 20, 102]]


def long_texts(lengths, front=4):
    """Tokens of texts whose passages have these lengths; those of the passage are their places from 10 on."""
    rows = [[1, *[2] * (front - 2), 3, *range(10, 10 + length), 4] for length in lengths]
    kinds = [[0] * front + [2, 1] * (length // 2) + [2] * (length % 2) + [3] for length in lengths]
    return np.array(passages.padded(ragged(*rows), ragged(*kinds)))


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize(("size", "overlap"), [(12, 2), (10, 4), (40, 5)])
def test_windows_have_the_question_and_words_count_where_they_stand_in_the_middle(size, overlap, xla, monkeypatch):
    monkeypatch.setattr("nlp.models.reader.for_xla", lambda: xla)
    tokens = long_texts([23, 3, 0, 9])
    how = {"size": size, "overlap": overlap, "question": 2}
    windows, back = reader.PassageWindows(**how), reader.PassageUnwindowed(**how)
    for training in (False, True):
        rows = windows(tokens, training=training).numpy()
        there = rows[rows[:, 0, 0] > 0]
        assert rows.shape[1] <= size and (there[:, :4, 0] == [1, 2, 2, 3]).all()
        assert ((there[:, :, 0] == 4).sum(1) == 1).all() and ((there[..., 1] == 3) == (there[..., 0] == 4)).all()
        # each row says its tokens and where in the window they stand
        marked = np.stack([rows[..., 0], np.broadcast_to(np.arange(rows.shape[1]), rows.shape[:2])], -1).astype(np.float32)
        found = back([marked, tokens]).numpy()
        own = tokens[..., 1] != 3
        np.testing.assert_array_equal(found[..., 0][own], tokens[..., 0][own])
        if size < 20:
            inner = found[0, 4 + overlap:-1 - overlap, 1]  # away from the passage's own ends
            assert (inner - 4 >= overlap // 2).all() and (size - 2 - inner >= (overlap - 1) // 2).all()


def settings(**more):
    return {"task": "nlp.question_answering", "data": {"source": "squad", "path": "x"},
            "model": {"name": "pretrained", "preset": "x"}, **more}


def spans(**facts):
    from nlp.tasks.question_answering import Spans

    class Task:
        input, experiment = None, from_dict(settings(answer={"longest": 3, "best": 3}), [], check_paths=False)

    Task.facts = facts
    return Spans(Task)


def test_the_most_probable_answers_are_found_among_all():
    draw = np.random.default_rng(0)
    tokens = long_texts([7, 4, 0], front=3)
    for unanswerable in (False, True):
        output = spans(unanswerable=unanswerable)
        logits = reader.Ends(unanswerable)([draw.normal(size=(3, 11, 2)).astype(np.float32), tokens]).numpy()
        found = {name: value.numpy() for name, value in output.answer(lambda inputs: inputs, logits).items()}
        for row in range(3):
            every = {(first, last): np.exp(logits[row, first, 0] + logits[row, last, 1]) for first in range(1, 11)
                     for last in range(first, min(first + 3, 11)) if logits[row, first, 0] > -1e8 and logits[row, last, 1] > -1e8}
            assert all(tokens[row, first, 1] == 2 for first, _ in every)
            nothing = np.exp(logits[row, 0].sum()) if unanswerable else 0.0
            best = sorted(every, key=every.get, reverse=True)[:3]
            total = sum(every.values()) + nothing
            assert [(first, last) for first, last, chance in zip(*(found[name][row] for name in ("first", "last", "chances")))
                    if chance > 0] == best
            np.testing.assert_allclose(found["chances"][row, :len(best)], [every[one] / total for one in best], rtol=1e-4)
            np.testing.assert_allclose(found["nothing"][row], nothing / total if total else 0.0, rtol=1e-4)


def test_the_loss_is_that_of_any_true_answer():
    output = spans(unanswerable=True)
    draw = np.random.default_rng(1)
    logits = draw.normal(size=(4, 6, 2)).astype(np.float32)
    # four words behind a question of one token, the third in two pieces; of the last text all answers lie behind what is read
    starts, ends = (np.tile(np.array(places, np.int32), (4, 1)) for places in ([0, 0, 4, 8, 8, 13], [0, 3, 7, 12, 12, 15]))
    answers = np.array([[[8, 12], [0, 7]], [[13, 15], [0, 0]], [[0, 0], [0, 0]], [[40, 44], [0, 0]]], np.int32)
    targets = {"answers": tf.constant(answers), "starts": tf.constant(starts), "ends": tf.constant(ends)}
    loss, count = output.loss(tf.constant(logits), targets, training=True)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    tokens = [[(3, 4), (1, 2)], [(5, 5)], [(0, 0)]]
    expected = [-np.log(sum(np.exp(logs[row, first, 0] + logs[row, last, 1]) for first, last in every)) for row, every in enumerate(tokens)]
    np.testing.assert_allclose(loss, [*expected, 0.0], rtol=1e-5)
    assert count.numpy().tolist() == [1, 1, 1, 0]
    right = np.full((4, 6, 2), -9.0, np.float32)
    for row, (first, last) in enumerate([(3, 4), (5, 5), (0, 0), (2, 2)]):
        right[row, first, 0] = right[row, last, 1] = 9.0
    assert {name: value.numpy().tolist() for name, value in output.scores(right, targets).items()} == {
        "start_accuracy": [1, 1, 1, 0], "end_accuracy": [1, 1, 1, 0]}


def test_the_threshold_of_no_answer_is_the_best_on_validation():
    answers = {"nothing": np.array([0.9, 0.8, 0.8, 0.3, 0.1]), "f1": np.array([0.0, 0.5, 0.0, 1.0, 0.0]),
               "answerable": np.array([False, True, False, True, False])}
    answers["exact"] = answers["f1"]
    threshold = answer_judging.threshold_of(answers)
    assert 0.3 < threshold < 0.8
    best = max(answer_judging.scored(answers, one)[0].mean() for one in np.linspace(0, 1, 101))
    f1, exact, none = answer_judging.scored(answers, threshold)
    assert f1.mean() == best == pytest.approx(3 / 5) and none.tolist() == [True, True, True, False, False]
    assert exact.tolist() == [1, 0, 1, 1, 0]


@pytest.mark.slow
def test_answers_are_characters_of_the_passage_as_sent(tmp_path):
    """Whatever bytes a character has, alone and in a batch, with the sentence around."""
    pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    from nlp.tasks.question_answering import QuestionAnswering
    from tests import numbers_made
    from tests.contract_cases import ANSWERS
    from tests.encoders import tiny

    given = [*numbers_made.answers(tmp_path), f"model.preset={tiny.bert(tmp_path / 'bert')}"]
    task = QuestionAnswering(from_text(ANSWERS, given, file="x").experiment)
    task.facts = task.splits().facts
    assert task.facts["unanswerable"] and task.facts["window"] == 28
    texts = ["  😀 Köln\u00a0à Bern. ok is it! ", "Bern", "", "die Stadt Köln。北京\nno. Rome vs. U.S. x"]
    sentences = {"Köln": ["😀 Köln\u00a0à Bern.", None, None, "die Stadt Köln。"], "Bern": ["😀 Köln\u00a0à Bern.", "Bern", None, None],
                 "ok": ["ok is it!", None, None, None], "Rome": [None, None, None, "Rome vs."]}

    def respond(rows, word):
        examples = task.input.receive({"text": tf.constant(["which?"] * len(rows)), "text_pair": tf.constant(rows)})
        starts, ends = examples["starts"].numpy(), examples["ends"].numpy()
        first, last = np.zeros((2, len(rows), 1), np.int32)
        for row, text in enumerate(rows):
            at = text.find(word)
            if at >= 0:
                own = np.flatnonzero((starts[row] >= at) & (ends[row] <= at + len(word)) & (ends[row] > starts[row]))
                first[row, 0], last[row, 0] = own[0], own[-1]
        there = (first > 0).astype(np.float32)
        answers = {"first": first, "last": last, "chances": there, "nothing": 1.0 - there[:, 0]}
        return {name: np.asarray(value) for name, value in task.output.respond({**answers, **task.passed_by(examples)}).items()}

    sent = ["the taxi is red. \u200b\n", "room " * 80, ""]
    beyond = task.input.receive({"text": tf.constant(["a?"] * 3), "text_pair": tf.constant(sent)})
    assert [one.decode()[:21] for one in beyond["warning"].numpy()] == ["", "the passage is longer", "the text is empty"]
    for word, wanted in sentences.items():
        for rows, expected in ((texts, wanted), *(([text], [one]) for text, one in zip(texts, wanted))):
            found = respond(rows, word)
            for row, (text, sentence) in enumerate(zip(rows, expected)):
                start = -1 if sentence is None else text.find(word)
                assert found["count"][row] == (start >= 0)
                assert found["answer"][row].decode() == (word if start >= 0 else "")
                assert found["sentence"][row].decode() == (sentence or "")
                assert (found["starts"][row, 0], found["ends"][row, 0]) == ((start, start + len(word)) if start >= 0 else (0, 0))


def test_new_proposes_to_find_answers(tmp_path):
    for name, count in (("a_train", 30), ("b_train", 12), ("dev", 10), ("test", 12)):
        every = [asked(number, *(("Bern", 14) if number % 6 else (None, 0))) for number in range(count)]
        (tmp_path / f"{name}.json").write_text(json.dumps(squad(*every, passage=f"{PASSAGE} {name}")))
    text = new("nlp", tmp_path, encoder="none")
    known = from_text(text).experiment
    assert known.task == "nlp.question_answering"
    assert (known.data.source, known.data.validation, known.data.test, known.data.group_by) == ("squad", "validation", "test", "passage")
    assert "42 training questions on 2 passages" in text and "7 questions have no answer" in text and "hf://" in known.model.preset
    result = CHECKS["nlp.question_answering"](known)
    assert not result.failed and result.splits["train"]["examples"] == 42
    assert any("7 of 42 questions have no answer" in one.text for one in result.findings)
    (tmp_path / "test.json").write_text(json.dumps(squad(asked(1, "Rome", 3), *(asked(number, "Bern", 14) for number in range(9)))))
    assert any("cannot be read" in one.text and one.level == "error" for one in CHECKS["nlp.question_answering"](known).findings)
    assert from_text(new("nlp", tmp_path, encoder="none")).experiment.data.on_bad_example == "skip"
    lines = [{"question": "Where?", "passage": f"{PASSAGE} {number}", "answer": "Bern"} for number in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    known = from_text(new("nlp", tmp_path / "a.jsonl", encoder="none")).experiment
    assert (known.data.source, known.data.text_key, known.data.answer_key) == ("table", ["question", "passage"], "answer")
    (tmp_path / "b.csv").write_text("text,label\n" + "".join(f"a{number} b,{'xy'[number % 2]}\n" for number in range(40)))
    assert "task: nlp.classification" in new("nlp", tmp_path / "b.csv", encoder="none")
    with pytest.raises(DataError, match="no questions with answers in passages"):
        new("nlp", tmp_path / "b.csv", task="question_answering", encoder="none")


def test_other_data_of_the_same_form_are_judged(tmp_path):
    """No ending tells SQuAD's JSON, and columns of tags, from others."""
    from pipelines.serving.evaluate import experiment_for

    (tmp_path / "other.json").write_text(json.dumps(squad(asked(1, "Bern", 14))))
    known = from_dict(settings(model={"name": "pretrained", "preset": "x"}), [], check_paths=False)
    other = experiment_for(known, {}, tmp_path / "other.json", None, []).data
    assert (other.source, other.path, other.group_by, other.validation) == ("squad", str(tmp_path / "other.json"), "passage", 0.0)
    (tmp_path / "other.csv").write_text("question,context,answers\na,b,b\n")
    assert experiment_for(known, {}, tmp_path / "other.csv", None, []).data.source == "table"
    tags = from_dict({"task": "nlp.tagging", "data": {"source": "conll", "path": "x"}, "model": {"name": "pretrained", "preset": "x"}}, [],
                     check_paths=False)
    (tmp_path / "other.txt").write_text("a\tO\n")
    assert experiment_for(tags, {}, tmp_path / "other.txt", None, []).data.source == "conll"


def test_settings_that_would_do_nothing_are_named():
    tags = {"task": "nlp.tagging", "data": {"source": "conll", "path": "x"}, "loss": {"label_smoothing": 0.1},
            "model": {"name": "pretrained", "preset": "x", "chain": True}}
    with pytest.raises(ConfigError, match="label_smoothing"):
        from_dict(tags, [], check_paths=False)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"answer": {"longest": 2, "best": 3}}, "answer.best"), ({"data": {"source": "squad", "path": "x", "group_by": "id"}}, "group_by"),
    ({"model": {"name": "pretrained", "preset": "x", "window": 64}}, "no room for a question"),
    ({"model": {"name": "pretrained", "preset": "x", "finetune": {"name": "frozen"}}}, "the encoder trains under a new head")])
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(settings(**wrong), [], check_paths=False)
