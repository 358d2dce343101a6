"""Pairs of texts: as tokens, from tables and requests, what they have in common, and as vectors that are compared."""

import importlib.util
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from nlp import tokens
from nlp.data.requests import pair_example, read_texts
from nlp.metrics.ranks import of_ranks, ranks
from nlp.models import pair_overlap
from nlp.settings import Hashed, PairData
from nlp.tasks.pair_ranking import PairRanking
from nlp.tasks.pairs import PairClassification, PairRegression, out_of_order
from nlp.tokens.pairs import after, beside
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_dict, from_text
from pipelines.machine import devices
from pipelines.runs.folder import RunFolder
from pipelines.serving import embed
from pipelines.serving.load import LoadedRun
from pipelines.serving.predict import Predictor
from pipelines.training.totals import losses
from tests import numbers_made
from tests.encoders import tiny

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
extra = pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                           reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
FIRST = tf.ragged.constant([[8, 1, 2, 3, 9], [8, 9], [8, 1, 2, 3, 4, 5, 6, 7, 9]], dtype=tf.int32)
SECOND = tf.ragged.constant([[8, 7, 9], [8, 6, 6, 9], [8, 11, 12, 13, 14, 15, 16, 17, 9]], dtype=tf.int32)


def made(folder, task="pair_classification", **given):
    numbers_made.pairs(folder)
    data = {"source": "table", "path": str(folder / "pairs.csv"), "label_key": "label" if "class" in task else "score", "validation": 0.2,
            "test": 0.2, **given.pop("data", {})}
    return from_dict({"task": f"nlp.{task}", "data": data, "model": {"name": "linear"}, **given}, check_paths=False)


def test_two_texts_stand_beside_one_another():
    both, length = beside(FIRST, SECOND)
    assert both.shape == [3, 9, 2] and length.numpy().tolist() == [5, 4, 9]
    assert both[1].numpy().T[:, :5].tolist() == [[8, 9, 0, 0, 0], [8, 6, 6, 9, 0]]


def test_the_second_text_stands_behind_the_first_and_the_longer_one_is_cut():
    both, length = after(FIRST, SECOND, 11, (1, 1))
    assert both[:, :, 0].numpy().tolist() == [[8, 1, 2, 3, 9, 7, 9, 0, 0, 0, 0], [8, 9, 6, 6, 9, 0, 0, 0, 0, 0, 0],
                                              [8, 1, 2, 3, 4, 9, 11, 12, 13, 14, 9]]
    assert both[:, :, 1].numpy().tolist() == [[0] * 5 + [1] * 2 + [0] * 4, [0] * 2 + [1] * 3 + [0] * 6, [0] * 6 + [1] * 5]
    assert length.numpy().tolist() == [7, 5, 11]
    uneven, _ = after(FIRST[:1], SECOND[2:], 10, (1, 1))
    assert uneven[0, :, 0].numpy().tolist() == [8, 1, 2, 3, 9, 11, 12, 13, 14, 9]  # the short one is whole
    doubled, _ = after(FIRST[:1], SECOND[:1], 11, (1, 1), doubled=True)
    assert doubled[0, :, 0].numpy().tolist() == [8, 1, 2, 3, 9, 9, 7, 9]


def test_a_pair_is_sent_as_a_list_an_object_or_with_a_tab():
    data = PairData(source="table", path="x.csv", text_key=["one", "two"])
    wanted = {"text": "é".encode(), "text_pair": b"b"}
    for sent in (["é", "b"], ("é", "b"), {"one": "é", "two": "b"}, {"text": "é", "text_pair": "b"}, "é\tb", "é\tb".encode()):
        assert pair_example(sent, data) == wanted
    for wrong in ("a text", ["a"], ["a", "b", "c"], ["a", 1], 7, "a\tb\tc"):
        with pytest.raises(DataError, match="is no pair: give two texts in a list, an object with one and two, or both with a tab"):
            pair_example(wrong, data)
    with pytest.raises(DataError, match="there is no 'two'"):
        pair_example({"one": "a"}, data)


def test_predict_reads_pairs_from_arguments_lines_and_tables(tmp_path):
    data = PairData(source="table", path="x.csv", text_key=["one", "two"])
    (tmp_path / "lines.txt").write_text("a\tb\nno pair\n")
    (tmp_path / "rows.csv").write_text("more,two,one\n1,b,a\n")
    read = list(read_texts(['["a", "b"]', str(tmp_path / "lines.txt"), str(tmp_path / "rows.csv")], data))
    assert [one[1] for one in read[:2] + read[3:]] == [{"text": b"a", "text_pair": b"b"}] * 3
    assert isinstance(read[2][1], DataError) and read[3][2] == {"more": "1", "two": "b", "one": "a"}


def test_a_pair_without_its_second_text_is_named_by_its_line(tmp_path):
    rows = [("a b", "c d", "x"), ("no second", None, "y"), *[("e f", "g h", "y"), ("i j", "k l", "x")] * 4]
    lines = [json.dumps({"sentence1": first, "sentence2": second, "label": label}) for first, second, label in rows]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    experiment = from_dict({"task": "nlp.pair_classification", "model": {"name": "linear"}, "data": {
        "source": "table", "path": str(tmp_path / "t.jsonl"), "validation": 0, "test": 0.3}})
    with pytest.raises(DataError, match=r"t\.jsonl:2: no text"):
        PairClassification(experiment).splits()
    splits = PairClassification(experiment.model_copy(update={"data": experiment.data.model_copy(
        update={"on_bad_example": "skip"})})).splits()
    one = splits.train.gather(tf.constant([0], tf.int64))
    assert set(one) == {"text", "text_pair", "label", "weight"} and len(splits.train) + len(splits.test) == 9


@pytest.mark.parametrize(("data", "says"), [
    ({"text_key": ["a", "b", "c"]}, "data.text_key"), ({"text_key": "a"}, "data.text_key"),
    ({"join": "; "}, "texts of a pair are not joined"), ({"labels": "many"}, "a pair has one class")])
def test_settings_that_fit_no_pairs_are_errors(tmp_path, data, says):
    with pytest.raises(ConfigError, match=says):
        made(tmp_path, data=data)


def test_what_texts_share_is_measured_as_by_hand():
    cutter = tokens.make(Hashed(name="hashed", words=1, distinct=True, buckets=1 << 16), {})
    both = beside(cutter.ids(tf.constant(["a b c d", "x", ""])), cutter.ids(tf.constant(["b a e", "x", "y"])))[0]
    overlap = pair_overlap.Overlap(cutter.size, cutter.letters)
    overlap.build(None)
    weights = np.ones(cutter.size, np.float32)
    weights[cutter.ids(tf.constant(["a"]))[0].numpy()] = 2.0
    overlap.weight.assign(weights)
    first, same, nothing = overlap(both).numpy()
    np.testing.assert_allclose(first, [5 / np.sqrt(7 * 6), 2 / 5, 2 / 3, 5 / 6, np.log(2), np.log(4)], rtol=1e-5)
    np.testing.assert_allclose(same, [1, 1, 1, 1, 0, np.log(2)], rtol=1e-5)
    assert nothing[:2].tolist() == [0, 0]


@pytest.mark.parametrize("task", [PairClassification, PairRegression])
def test_a_linear_model_of_overlap_learns_what_is_shared(tmp_path, task):
    experiment = made(tmp_path, "pair_classification" if task is PairClassification else "pair_regression")
    one = task(experiment)
    splits = one.splits()
    one.facts = splits.facts
    model = one.model()
    assert "regression" in one.fit_at_once(model, splits.train, None)
    examples = one.input.receive({name: value for name, value in splits.test.gather(tf.range(len(splits.test), dtype=tf.int64)).items()
                                  if name in ("text", "text_pair")})
    targets = splits.test.gather(tf.range(len(splits.test), dtype=tf.int64))
    outputs = model(examples["tokens"]).numpy()
    if task is PairClassification:
        assert (outputs.argmax(1) == targets["label"].numpy()).mean() > 0.8
    else:
        assert np.corrcoef(outputs[:, 0], targets["target"][:, 0])[0, 1] > 0.8
    other = one.output.baseline(splits.train, None)
    assert other is None  # the model is the baseline


def test_the_order_of_answers_is_that_of_the_pairs_that_count():
    draw = np.random.default_rng(0)
    answers, truth = draw.normal(size=(6, 1)).astype(np.float32), np.array([[0.0], [1], [1], [3], [2], [9]], np.float32)
    wanted = np.log1p(sum(np.exp(answers[b, 0] - answers[a, 0]) for a in range(5) for b in range(5) if truth[a, 0] > truth[b, 0]))
    counts = np.array([[1.0]] * 5 + [[0.0]], np.float32)  # the last pads the batch
    assert out_of_order(*map(tf.constant, (answers, truth, counts))).numpy() == pytest.approx(wanted, rel=1e-5)
    assert out_of_order(*map(tf.constant, (answers, truth, 0 * counts))).numpy() == 0.0


def test_padding_does_not_change_a_loss_that_orders(tmp_path):
    facts = PairRegression(made(tmp_path, "pair_regression")).splits().facts
    one = PairRegression(made(tmp_path, "pair_regression", model={"name": "bi_encoder", "preset": "x"}, loss={"order": 1.0}), facts)
    outputs, targets = tf.constant([[0.5], [0.2], [7.0]]), tf.constant([[5.0], [2.0], [0.0]])
    whole = losses(one.output, outputs, targets, True, tf.constant([1.0, 1.0, 0.0]))[0].numpy()
    alone = losses(one.output, outputs[:2], targets[:2], True, tf.constant([1.0, 1.0]))[0].numpy()
    np.testing.assert_allclose(whole[:2], alone, rtol=1e-6)
    plain = one.output.loss(outputs, targets, True).numpy()
    assert (whole[:2] > plain[:2]).all() and one.output.learning.mixes
    np.testing.assert_allclose(losses(one.output, outputs, targets, False)[0], plain)


@extra
@pytest.mark.slow
def test_a_bi_encoder_compares_the_vectors_of_both_texts(tmp_path):
    tiny.bert(tmp_path / "bert")
    one = _encoded(tmp_path, {"name": "bi_encoder", "limit": 16}, "pair_regression")
    model = one.model()
    texts = {"text": tf.constant(["the room", "taxi please cancel", ""]), "text_pair": tf.constant(["the room", "wifi", "book"])}
    swapped = {"text": texts["text_pair"], "text_pair": texts["text"]}
    cosine, other = (model.get_layer("features")(one.input.receive(some)["tokens"]).numpy() for some in (texts, swapped))
    assert cosine.shape == (3, 1) and cosine[0, 0] == pytest.approx(1.0, abs=1e-5) and (np.abs(cosine) <= 1.0 + 1e-5).all()
    np.testing.assert_allclose(cosine, other, atol=1e-6)
    assert not [layer for layer in model.get_layer("head").layers if "dropout" in layer.name]
    vectors = _encoded(tmp_path, {"name": "bi_encoder", "limit": 16, "compare": "vectors"}, "pair_regression").model()
    assert vectors.get_layer("features").output_shape[-1] == 4 * 16


@extra
@pytest.mark.slow
def test_the_encoder_of_a_bi_encoder_makes_vectors_of_single_texts(tmp_path):
    """Their cosine is what the run compares pairs by."""
    tiny.bert(tmp_path / "bert")
    one = _encoded(tmp_path, {"name": "bi_encoder", "limit": 16}, "pair_regression")
    model = one.model()
    machine = devices.prepare(one.experiment.train.model_copy(update={"devices": 1}), precision="float32")
    run = embed.one_by_one(LoadedRun(one, model, one.experiment, RunFolder(tmp_path), machine, "float32", "pairs"))
    texts = ["the room please", "cancel the taxi"]
    first, second = (answer.values["vector"] for answer in Predictor(run, answer=embed.vectors).predict(texts))
    cosine = model.get_layer("features")(one.input.receive({"text": tf.constant(texts[:1]), "text_pair": tf.constant(texts[1:])})["tokens"])
    assert float(first @ second / np.linalg.norm(first) / np.linalg.norm(second)) == pytest.approx(cosine.numpy().item(), abs=1e-5)
    assert len({*first.tolist()}) > 1 and embed.one_by_one(run) is run


@extra
@pytest.mark.slow
def test_a_cross_encoder_knows_which_text_is_the_second(tmp_path):
    tiny.bert(tmp_path / "bert")
    one = _encoded(tmp_path, {"name": "cross_encoder", "limit": 16}, "pair_classification")
    features = one.model().get_layer("features")
    given = one.input.receive({"text": tf.constant(["the room"]), "text_pair": tf.constant(["taxi"])})["tokens"].numpy()
    alone = given.copy()
    alone[:, :, 1] = 0
    assert given[0, :, 1].sum() == 2 and np.abs(features(given) - features(alone)).max() > 1e-4
    padded = np.pad(given, [(0, 0), (0, 5), (0, 0)])
    np.testing.assert_allclose(features(padded), features(given), atol=1e-5)


def _encoded(folder, model, task):
    experiment = made(folder, task, model={**model, "preset": str(folder / "bert")})
    one = {"pair_classification": PairClassification, "pair_regression": PairRegression}[task](experiment)
    one.facts = one.splits().facts
    return one


def test_ranks_are_those_that_sorting_gives():
    draw = np.random.default_rng(0)
    alike = draw.normal(size=(40, 40)).round(1)
    first, second = np.arange(40) // 2, np.arange(40) % 25  # two partners each, and partners of two
    alike[:, 25:] = alike[:, :15]  # equal texts are equally alike
    found, best = ranks(lambda some, others: alike[np.ix_(some, others)], first, second)
    for number in range(40):
        right = {int(second[other]) for other in range(40) if first[other] == first[number]}
        others = [alike[number, text] for text in range(25) if text not in right]
        own = alike[number, number]
        assert found[number] == 1 + sum(value > own for value in others) + (sum(value == own for value in others) + 1) // 2
        assert alike[number, best[number]] == max(others)
    metrics = of_ranks(np.array([1, 2, 11]))
    assert metrics["mrr@10"].tolist() == [1.0, 0.5, 0.0] and metrics["recall@10"].tolist() == [1, 1, 0]
    assert metrics["ndcg@10"].tolist() == pytest.approx([1.0, 1 / np.log2(3), 0.0])
    alone, nobody = ranks(lambda some, others: np.ones([len(some), len(others)]), np.array([5]), np.array([7]))
    assert alone.tolist() == [1] and nobody.tolist() == [0]


def _ranking(folder, **train):
    numbers_made.pairs(folder)
    values = {"task": "nlp.pair_ranking", "data": {"source": "table", "path": str(folder / "pairs.csv"), "validation": 0.2, "test": 0.2},
              "model": {"name": "bi_encoder", "preset": str(folder / "bert"), "limit": 16}, **train}
    return from_dict(values, check_paths=False)


def test_a_text_is_told_from_the_others_of_the_micro_batch_but_not_from_its_equals(tmp_path):
    output = PairRanking(_ranking(tmp_path, loss={"scale": 3.0})).output
    vectors = np.random.default_rng(0).normal(size=(4, 2, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    targets = {"first": tf.constant([1, 2, 1, 4], tf.int64), "second": tf.constant([11, 12, 13, 14], tf.int64)}
    mask = tf.constant([1.0, 1.0, 1.0, 0.0])
    alike = 3.0 * vectors[:, 0] @ vectors[:, 1].T
    alike[:, 3] = alike[0, 2] = alike[2, 0] = -np.inf  # padding, and an equal first text
    back = 3.0 * vectors[:, 1] @ vectors[:, 0].T
    back[:, 3] = back[0, 2] = back[2, 0] = -np.inf
    wanted = [-(one - np.log(np.exp(row).sum()))[place] for place, row in enumerate(alike[:3]) for one in (row,)]
    other = [-(one - np.log(np.exp(row).sum()))[place] for place, row in enumerate(back[:3]) for one in (row,)]
    given = output.loss(tf.constant(vectors), targets, True, mask).numpy()
    np.testing.assert_allclose(given[:3], (np.array(wanted) + other) / 2, rtol=1e-5)
    padded = vectors.copy()
    padded[3] = -padded[3]
    np.testing.assert_allclose(output.loss(tf.constant(padded), targets, True, mask).numpy()[:3], given[:3], rtol=1e-6)
    plain = output.loss(tf.constant(vectors), targets, False).numpy()
    np.testing.assert_allclose(plain, 1 - (vectors[:, 0] * vectors[:, 1]).sum(-1), atol=1e-6)


def test_texts_that_do_not_belong_are_told_from_the_partner_too(tmp_path):
    from nlp.data.matching_pairs import number_of

    output = PairRanking(_ranking(tmp_path, loss={"scale": 3.0})).output
    vectors = np.random.default_rng(0).normal(size=(4, 3, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    # the first negative is the partner of the third pair, whose first text is that of the first; the second is empty; the last is padding
    none = int(number_of(tf.constant("")))
    targets = {"first": tf.constant([1, 2, 1, 4], tf.int64), "second": tf.constant([11, 12, 13, 14], tf.int64),
               "negative": tf.constant([13, none, 99, 77], tf.int64)}
    mask = tf.constant([1.0, 1.0, 1.0, 0.0])
    alike = 3.0 * vectors[:, 0] @ np.concatenate([vectors[:, 1], vectors[:, 2]]).T
    alike[:, [3, 5, 7]] = alike[0, 2] = alike[2, 0] = alike[0, 4] = alike[2, 4] = -np.inf
    back = 3.0 * vectors[:, 1] @ vectors[:, 0].T
    back[:, 3] = back[0, 2] = back[2, 0] = -np.inf
    wanted = [(np.log(np.exp(alike[place]).sum()) + np.log(np.exp(back[place]).sum())) / 2 - alike[place, place] for place in range(3)]
    np.testing.assert_allclose(output.loss(tf.constant(vectors), targets, True, mask).numpy()[:3], wanted, rtol=1e-5)
    np.testing.assert_allclose(output.scores(vectors, targets)["similarity"], (vectors[:, 0] * vectors[:, 1]).sum(-1), rtol=1e-5)


@pytest.mark.slow
def test_a_column_of_texts_that_do_not_belong_is_read_trained_on_and_left_out_of_answers(tmp_path):
    pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run

    tiny.bert(tmp_path / "bert")
    rows = [f"the room {word},book the {word} please,cancel taxi {word if number % 3 else ''}" for number in range(20)
            for word in ("taxi", "wifi", "towels")]
    (tmp_path / "triples.csv").write_text("\n".join(["anchor,positive,negative", *rows]))
    text = new("nlp", tmp_path / "triples.csv", encoder=str(tmp_path / "bert"))
    known = from_text(text, ["data.validation=0.2", "train.epochs=1", "evaluate.bootstrap=100"]).experiment
    assert known.task == "nlp.pair_ranking" and known.data.negative_key == "negative"
    task = PairRanking(known)
    splits = task.splits()
    task.facts = splits.facts
    rows = splits.train.gather(tf.range(4, dtype=tf.int64))
    batch = task.input.decode_batch(rows)
    assert batch["tokens"].shape[2] == 3 and set(batch) == {"tokens", "length", "first", "second", "negative"}
    one = task.input.decode({name: value[1] for name, value in rows.items()})
    np.testing.assert_array_equal(one["tokens"], batch["tokens"][1][:one["tokens"].shape[0]])
    place = RunFolder(tmp_path / "runs" / "triples" / "one")
    train(known, place, Call("triples", task_class(known.task), quiet=True))
    (answer,) = Predictor(load_run(place, where="cpu")).predict(['["the room", "book the taxi"]'])
    assert -1.0 <= answer.values["similarity"] <= 1.0


@pytest.mark.parametrize(("change", "said"), [
    ({"name": "linear"}, "model.name"), ({"compare": "vectors"}, "vectors are compared by their cosine"),
    ({"finetune": {"name": "frozen"}}, "without training the encoder nothing is learned"),
    ({"finetune": {"name": "whole"}}, "there is no last layer that could be fitted first")])
def test_settings_by_which_nothing_could_be_found_are_refused(tmp_path, change, said):
    with pytest.raises(ConfigError, match=said):
        _ranking(tmp_path, model={"name": "bi_encoder", "preset": str(tmp_path / "bert"), **change})
