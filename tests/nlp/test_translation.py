"""Texts that are written from texts: pieces, the model and its kept states, the search, BLEU and chrF, files, `new` and `check`."""

import itertools
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from nlp.check import CHECKS
from nlp.metrics import translation_memory, translations
from nlp.models import translator
from nlp.settings import Pieces, Translator
from nlp.tasks.translation import Translation
from nlp.tokens import written
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_dict, from_text
from pipelines.outputs.search import beam
from pipelines.outputs.tokens import behind, cross_entropy
from tests import numbers_made

SENTENCES = ["Ein Hund läuft (schnell).", "“Ja”, sagt sie; 3.5 km/h!", "猫が好きです。 Ok?", "a\t b\n\nc", "Größe: 10%"]


@pytest.fixture(scope="module")
def pieces():
    return written.learn(Pieces(vocabulary=120), [tf.constant(SENTENCES * 3)])


def test_pieces_write_what_was_read_but_for_blanks(pieces):
    ids = written.make(pieces, 200).ids(tf.constant(SENTENCES)).to_tensor(0)
    assert int(tf.reduce_max(ids)) < 2 + len(pieces) and int(tf.reduce_sum(tf.cast(ids == 1, tf.int32))) == 0
    texts = [text.decode() for text in written.texts(ids, pieces).numpy()]
    assert texts == [" ".join(text.split()) for text in SENTENCES]


def test_what_no_piece_begins_writes_nothing_and_a_text_has_a_token(pieces):
    tokenizer = written.make(pieces, 200)
    ids = tokenizer.ids(tf.constant(["", "Hund Ж Hund", "a▁b", "\ue000a"]))
    assert ids.row_lengths().numpy().min() == 1
    texts = written.texts(ids.to_tensor(0), pieces).numpy().tolist()
    assert [text.decode() for text in texts[:2]] == ["", "Hund  Hund"] and texts[3] == b"a"
    assert tf.reduce_all(written.make(pieces, 3).ids(tf.constant(SENTENCES)).row_lengths() <= 3)


def test_too_few_texts_to_learn_pieces_from_are_named():
    with pytest.raises(DataError, match=r"tokens: .*; set a smaller tokens\.vocabulary"):
        written.learn(Pieces(vocabulary=400), [tf.constant([""])])


def test_smoothing_is_that_of_the_dense_target():
    logits, truth = tf.Variable(tf.random.normal([2, 3, 7])), tf.constant([[1, 2, 3], [4, 0, 6]])
    weights = tf.constant([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
    dense = 0.9 * tf.one_hot(truth, 7) + 0.1 / 7
    found = []
    for loss in (lambda: cross_entropy(logits, truth, 0.1), lambda: tf.nn.softmax_cross_entropy_with_logits(dense, logits)):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(loss() * weights)
        found.append((loss().numpy(), tape.gradient(total, logits).numpy()))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_text_that_is_cut_has_no_end():
    _, truth, own = behind(tf.zeros([2, 3, 9]), tf.constant([[5, 6], [7, 0]]), tf.constant([2, 1]), 8, tf.constant([0, 1]))
    assert truth.numpy().tolist() == [[5, 6, 8], [7, 8, 0]] and own.numpy().tolist() == [[1, 1, 0], [1, 1, 0]]


def made(size=30, how=None, **more):
    keras.utils.set_random_seed(1)
    settings = Translator(**{"name": "transformer", "width": 16, "depth": 2, "writing_depth": 2, "heads": 2, "hidden": 32, **more})
    how = {"beam": 1, "ratio": 2.0, "length_penalty": 1.0, "fewest": 1, **(how or {})}
    return translator.build(settings, size=size, most=12, writing=SimpleNamespace(**how))


def test_kept_states_give_what_a_whole_pass_gives():
    model, draw = made(), np.random.default_rng(0)
    tokens = tf.constant(draw.integers(2, 29, (3, 7)) * (np.arange(7) < [[7], [4], [1]]), tf.int32)
    text = tf.constant(draw.integers(2, 29, (3, 6)), tf.int32)
    whole = model({"tokens": tokens, "written": text}).numpy()
    missing = tf.where(tokens == 0, -1e9, 0.0)[:, None, None]
    read = model.table(tokens)
    for block in model.readers:
        read = block(read, missing)
    decoder = model.decoder(tokens, model.norms[0](read), 9)
    cache, before = decoder.empty(3), tf.pad(text, [[0, 0], [1, 0]], constant_values=model.end)
    for place in range(7):
        logits, cache = decoder(before[:, place:place + 1], place, cache)
        np.testing.assert_allclose(logits.numpy(), whole[:, place], atol=1e-4)
    np.testing.assert_allclose(decoder(before, 0, decoder.empty(3))[0].numpy(), whole[:, -1], atol=1e-4)
    longer = model({"tokens": tf.pad(tokens, [[0, 0], [0, 3]]), "written": text}).numpy()
    np.testing.assert_allclose(longer, whole, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_an_answer_has_as_many_tokens_as_it_must(beam):
    """As many as `fewest` says; where a short text may not have so many, as many as it may."""
    tokens = tf.constant([[5, 6, 7, 8], [9, 0, 0, 0]])

    def lengths(**how):
        model = made(how={"beam": beam, "ratio": 0.5, **how})
        model.norms[1].beta.assign(tf.ones([16]))  # with the next line, the end is what is most probable everywhere
        model.table.vectors.assign(tf.tensor_scatter_nd_add(model.table.vectors, [[model.end]], [tf.ones([16])]))
        return np.sum(model({"tokens": tokens})["tokens"].numpy() > 0, 1)

    assert np.all(lengths(fewest=8) >= 8) and np.all(lengths(fewest=12) >= 10) and np.all(lengths(fewest=1) == 1)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_texts(penalty):
    most, size, end = 3, 4, 3
    table = np.random.default_rng(5).normal(0, 2, (most + 1, size, size)).astype(np.float32)
    shares = table - np.log(np.exp(table).sum(-1, keepdims=True))

    def following(ids, at, cache):
        return tf.gather_nd(table, tf.stack([tf.fill(tf.shape(ids)[:1], at), ids[:, -1]], 1)), cache

    texts, _ = beam(following, tf.constant([[end], [end]]), [tf.zeros([2, 2, 1])], lambda logits, *_: logits, width=64, most=most, end=end,
                    length_penalty=penalty)
    best = (-np.inf, ())
    for count in range(most + 1):
        for text in itertools.product(range(3), repeat=count):
            path = (end, *text, *((end,) if count < most else ()))
            total = sum(shares[place, before, token] for place, (before, token) in enumerate(itertools.pairwise(path)))
            best = max(best, (total / max(count, 1) ** penalty, text))
    assert texts.numpy().tolist() == [[token + 1 for token in best[1]] + [0] * (most - len(best[1]))] * 2


def test_an_answer_does_not_depend_on_what_stands_beside_it():
    model = made(how={"beam": 3})
    tokens = tf.constant(np.random.default_rng(1).integers(2, 29, (4, 5)) * (np.arange(5) < [[5], [2], [1], [3]]), tf.int32)
    together = model({"tokens": tokens})
    assert together["tokens"].shape[1] <= 12 and int(tf.reduce_max(together["tokens"])) < model.end
    assert tf.reduce_all(together["tokens"][:, 0] >= 2)  # never empty, never padding or what is unknown
    for row, count in enumerate((5, 2, 1, 3)):
        alone = model({"tokens": tokens[row:row + 1, :count]})
        width = alone["tokens"].shape[1]
        assert together["tokens"][row, :width].numpy().tolist() == alone["tokens"][0].numpy().tolist()
        assert not tf.reduce_any(together["tokens"][row, width:] > 0)
        np.testing.assert_allclose(together["confidence"][row], alone["confidence"][0], atol=1e-5)


def test_it_learns_to_write_a_text_the_other_way_round():
    model, draw = made(size=12, dropout=0.0, width=32), np.random.default_rng(0)
    optimizer = keras.optimizers.Adam(0.005)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(tokens):
        with tf.GradientTape() as tape:
            logits, truth, own = behind(model({"tokens": tokens, "written": tokens[:, ::-1]}, training=True), tokens[:, ::-1],
                                        tf.fill([tf.shape(tokens)[0]], 4), model.end)
            loss = tf.reduce_sum(cross_entropy(logits, truth, 0.1) * own) / tf.reduce_sum(own)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))

    for _ in range(250):
        step(tf.constant(draw.integers(2, 11, (64, 4)), tf.int32))
    asked = tf.constant(draw.integers(2, 11, (100, 4)), tf.int32)
    given = model({"tokens": asked})["tokens"].numpy()
    right = [row[row > 0].tolist() == one[::-1].tolist() for row, one in zip(given, asked.numpy())]
    assert np.mean(right) > 0.9


def test_bleu_and_chrf_are_those_of_sacrebleu():
    from sacrebleu.metrics import BLEU, CHRF

    texts = ["The cat is on the mat.", "A dog runs fast!", "", "There is a cat on the mat, it seems."]
    true = ["There is a cat on the mat.", "A dog is running fast.", "Nothing.", "There is a cat on the mat, it seems."]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        ours = translations.corpus(translations.scorer(name, "13a"), texts, true)
        assert ours == pytest.approx(metric.corpus_score(texts, [true]).score)
    one = translations.counts(translations.scorer("chrf", "13a"), texts, true)
    assert translations.score(translations.scorer("chrf", "13a"), one)[3] == pytest.approx(100.0)


def settings(folder, **more):
    data = {"source": "table", "path": str(folder / "translations.tsv"), "validation": 0.2, "test": 0.2}
    return {"task": "nlp.translation", "data": data, "tokens": {"vocabulary": 120, "limit": 24},
            "model": {"name": "transformer", "width": 16, "heads": 2}, **more}


def test_the_baseline_gives_what_train_has_for_the_most_similar_text(tmp_path):
    numbers_made.translations(tmp_path)
    task = Translation(from_dict(settings(tmp_path), []))
    splits = task.splits()
    task.facts = splits.facts
    baseline = task.output.baseline(splits.train, None)
    train = task.output.judge(baseline.answers(splits.train), {}, splits.train)
    assert train.metrics["bleu"].value > 95.0 and "memory" in translation_memory.__doc__
    report = task.output.judge(baseline.answers(splits.test), {}, splits.test)
    assert report.metrics["bleu"].low <= report.metrics["bleu"].value <= report.metrics["bleu"].high
    assert {"by_length", "worst_mistakes", "typical_answers"} <= set(report.tables)


def test_long_texts_are_counted_and_their_ends_not_learned(tmp_path):
    numbers_made.translations(tmp_path)
    task = Translation(from_dict(settings(tmp_path, tokens={"vocabulary": 60, "limit": 4}), []))
    splits = task.splits()
    assert [note for note in splits.notes if "that are written have more than 4 tokens" in note]
    task.facts = splits.facts
    examples = task.input.decode_batch(splits.train.gather(tf.range(8, dtype=tf.int64)))
    assert examples["written"].shape[1] == 4 and 0 in examples["whole"].numpy()
    sent = task.input.receive({"text": tf.constant(["a", "a golden bed in Bern.", ""])})
    assert sent["tokens"].shape[1] == 4
    assert [b"longer than the 4" in warning or warning for warning in sent["warning"].numpy()] == [b"", True, b"the text is empty"]
    one = task.input.decode({name: value[0] for name, value in splits.train.gather(tf.range(1, dtype=tf.int64)).items()})
    counts = {"tokens": "length", "written": "count"}
    for name, value in examples.items():
        own = value[0, :one[counts[name]]] if name in counts else value[0]
        assert one[name].numpy().tolist() == own.numpy().tolist()


@pytest.mark.parametrize(("change", "message"), [
    ("writing: {most: 300}", r"writing\.most.*tokens\.limit, 256"),
    ("model: {name: transformer, width: 30, heads: 4}", r"model\.width.*multiple"),
    ("data: {source: table, path: /, text_key: [a]}", r"data\.text_key"), ("loss: {smoothing: 1.0}", r"loss\.smoothing"),
    ("evaluate: {tokenize: 14a}", r"evaluate\.tokenize.*13a"), ("model: {name: transformers}", r"did you mean transformer\?")])
def test_wrong_settings_are_named(change, message):
    sections = {"task": "task: nlp.translation", "data": "data: {source: table, path: /}", "model": "model: {name: transformer}"}
    sections[change.partition(":")[0]] = change
    with pytest.raises(ConfigError, match=message):
        from_text("\n".join(sections.values()) + "\n", file="x.yaml")


@pytest.mark.parametrize(("header", "asked", "columns"), [
    ("en\tde", {}, ["en", "de"]), ("id\tsource\ttarget", {}, ["source", "target"]), ("Article\tHighlights", {}, ["Article", "Highlights"]),
    ("first\tsecond", {"task": "translation"}, ["first", "second"]),
    ("de\ten", {"columns": {"text": "en", "label": "de"}, "task": "translation"}, ["en", "de"])])
def test_new_knows_columns_that_belong_together(tmp_path, header, asked, columns):
    rows = [(f"this is text {number}", f"das ist Text {number}") for number in range(40)]
    rows = [(f"{number}", *row) for number, row in enumerate(rows)] if header.startswith("id") else rows
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join([header, *("\t".join(row) for row in rows)]))
    experiment = from_text(new("nlp", file, **asked), file="x.yaml").experiment
    assert experiment.task == "nlp.translation" and experiment.data.text_key == columns


def test_pairs_with_something_said_of_them_are_no_translations(tmp_path):
    file = tmp_path / "pairs.tsv"
    rows = [f"this is text {number}\tthat is text {number % 7}\t{number % 2}" for number in range(60)]
    file.write_text("\n".join(["source\ttarget\tlabel", *rows]))
    assert "nlp.translation" not in new("nlp", file)


def test_check_names_what_does_not_belong_together(tmp_path):
    numbers_made.translations(tmp_path)
    with (tmp_path / "translations.tsv").open("a") as file:
        file.write("a lamp in Bern, please\ta lamp in Bern, please\na bed in Rome.\t" + "bett " * 60 + "\n")
    known = from_dict(settings(tmp_path), ["data.validation=null", "data.test=null"])
    found = [str(finding) for finding in CHECKS["nlp.translation"](known).findings]
    assert any("are to be written as they are read" in one for one in found) and any("4 times as long or short" in one for one in found)
