"""Texts without TensorFlow, as the copy beside a converted model cuts them: as the run cuts them."""

import numpy as np
import pytest
import tensorflow as tf

from extensions.convert.core import core_of, input_of
from extensions.convert.decoders.texts import decode, farmhash, words
from extensions.convert.decoding import decoder_of
from extensions.convert.quick import QuickPredictor
from nlp import tokens
from nlp.settings import Hashed, Words
from nlp.tasks.classification import Classification
from nlp.tasks.translation import Translation
from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict
from pipelines.machine import devices
from pipelines.runs.folder import RunFolder
from pipelines.serving.forms import difference
from pipelines.serving.load import LoadedRun
from pipelines.serving.predict import Predictor

TEXTS = ["is there a 24-hour gym, and what's the price?", "", "   ", "CAPITALS <br /> and <b>tags</b> a<b", "Über naïve cafés, ﬁne Ａ!",
         "日本語 テスト ok", "soft\u00adhyphen zero\u200bwidth", "tab\tnew\nline", "x" * 200 + " " + "word" * 9, "don't   stop"]


@pytest.mark.parametrize("size", [*range(0, 20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 300])
def test_the_hash_is_tensorflows(size):
    data = bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    assert farmhash(data) % (1 << 62) == int(tf.strings.to_hash_bucket_fast(tf.constant([data]), 1 << 62)[0])


@pytest.mark.parametrize("settings", [
    Hashed(name="hashed", words=2, buckets=5000), Hashed(name="hashed", words=1, buckets=300, characters=[2, 4], html=True),
    Hashed(name="hashed", words=3, buckets=900, characters=[3, 3], character_buckets=700, distinct=True, limit=4),
    Hashed(name="hashed", words=1, buckets=900, lower=False), Words(name="words", limit=5),
], ids=["pairs", "letters", "apart", "case", "words"])
def test_as_the_run_cuts(settings):
    facts = {"vocabulary": ["is", "there", "cafés", "?", "日", "ok"]}
    cut = tokens.make(settings, facts).ids(tf.constant(TEXTS))
    for text, expected in zip(TEXTS, cut.to_list()):
        found = decode({**settings.model_dump(mode="json"), "facts": facts}, text)
        assert found.dtype == np.int32 and found.tolist() == [expected], text


def test_labels_and_rejection():
    facts, shares = {"classes": ["a", "b", "c"], "threshold": 0.6}, np.array([0.1, 0.55, 0.35], np.float32)
    assert words({"facts": facts, "many": False, "outside": "none of these"}, {"probabilities": shares})["label"] == "none of these"
    assert words({"facts": facts, "many": False, "outside": None}, {"probabilities": shares})["label"] == "b"
    assert words({"facts": {**facts, "threshold": 0.3}, "many": True, "outside": None}, {"probabilities": shares})["labels"] == ["b", "c"]


def test_the_short_way_is_taken_for_plain_texts_alone():
    task = Classification(from_dict({"task": "nlp.classification", "data": {"source": "table", "path": "x.csv"},
                                     "tokens": {"name": "words", "limit": 5}, "model": {"name": "bag"}}, check_paths=False),
                          {"classes": ["a", "b"], "vocabulary": ["is", "there"]})
    decoder = decoder_of(task)
    found = decoder.decode({"text": b"is that there?"})
    assert found.tolist() == task.input.receive({"text": tf.constant(["is that there?"])})["tokens"].numpy().tolist() == [[2, 1, 3, 1]]
    for text in ("", " ", "nothing known", "caf\u00e9 is"):  # of the first three is warned
        assert decoder.decode({"text": text.encode()}) is None


def test_a_model_that_writes_texts_is_served_as_it_is():
    values = {"task": "nlp.translation", "data": {"source": "table", "path": "x.csv"},
              "model": {"name": "transformer", "width": 16, "heads": 2}}
    experiment = from_dict(values, check_paths=False)
    with pytest.raises(ConfigError, match=r"takes its input by name \(tokens\).*--for server"):
        input_of(Translation(experiment, {"vocabulary": ["a", "b", "\u2581a"]}))


@pytest.mark.parametrize("threshold", [0.4, 0.9])
def test_rejection_is_worded_by_numpy_as_in_graph(threshold):
    values = {"task": "nlp.classification", "data": {"source": "table", "path": "x.csv"}, "model": {"name": "bag"},
              "reject": {"label": "oos"}}
    task = Classification(from_dict(values, check_paths=False), {"classes": ["a", "b"], "threshold": threshold})
    shares = {"probabilities": np.array([[0.3, 0.7], [0.95, 0.05]], np.float32)}
    expected, found = task.output.respond({name: tf.constant(one) for name, one in shares.items()}), decoder_of(task).word(shares)
    assert found["label"].tolist() == expected["label"].numpy().tolist()
    np.testing.assert_array_equal(found["confidence"], expected["confidence"])


@pytest.mark.parametrize("settings, classes", [
    ({"tokens": {"name": "hashed"}, "model": {"name": "bag", "width": 8}, "reject": {"label": "nothing"}}, {"threshold": 0.34}),
    ({"tokens": {"name": "words", "limit": 32}, "model": {"name": "cnn", "width": 8, "filters": 4}}, {}),
    ({"tokens": {"name": "subwords", "vocabulary": 40}, "model": {"name": "bag", "width": 8}, "data": {"labels": "many"}}, {}),
], ids=["rejecting", "words", "many"])
def test_a_server_takes_short_ways_to_the_same_answers(settings, classes, tmp_path):
    data = {"source": "table", "path": "x.csv", **settings.get("data", {})}
    experiment = from_dict({"task": "nlp.classification", **settings, "data": data}, check_paths=False)
    vocabulary = ["is", "room", "two", "breakfast", *"abcdefghijklmnopqrstuvwxyz,!?"]
    task = Classification(experiment, {"classes": ["a", "b", "c"], "class_counts": [1, 1, 1], "vocabulary": vocabulary, **classes})
    machine = devices.prepare(experiment.train.model_copy(update={"devices": "cpu"}), precision="float32")
    run = LoadedRun(task, task.model(), experiment, RunFolder(tmp_path), machine, "float32", "nlp/texts")
    usual, core = Predictor(run), core_of(run)
    texts = ["a room for two, please!", "When is breakfast?", "zebra quantum 7", "\u00e9t\u00e9 \u00e0 la mer", "", "zzzz qqqq"]
    rows = [(text, task.input.requests.take(text)) for text in texts]
    together = usual.together(rows)
    for quick in (QuickPredictor(run, core, core.answers, by_numpy=by_numpy) for by_numpy in (True, False)):
        assert max(difference(*quick.together([row]), one) for row, one in zip(rows, together)) <= 1e-5
