"""What comes next is predicted from what came before, and from nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from recsys.models.sequential import SequentialModel
from recsys.settings import SEQUENTIAL_MODELS, Gru, Hstu, SampledSoftmax, Sasrec
from recsys.tasks.sequential import NextItems, Windows, WindowSource, pack


def made(name: str, taste: bool) -> SequentialModel:
    tf.random.set_seed(1)
    settings = {"sasrec": Sasrec, "gru": Gru, "hstu": Hstu}[name].model_validate({"name": name, "length": 6, "width": 8, "taste": taste})
    model = SEQUENTIAL_MODELS.build(settings, sampled=False, users=3, items=20, events=9, k=5, chunk=64)
    nothing = tf.zeros([1, 6], tf.int32)
    model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
    for weight in model.trainable_weights:  # small ones would make what is looked for here small, too
        if "vectors" not in weight.path and len(weight.shape) == 2:
            weight.assign(tf.random.stateless_normal(weight.shape, (1, 2), stddev=0.5))
    return model


@pytest.mark.parametrize("taste", [False, True])
@pytest.mark.parametrize("name", ["gru", "sasrec", "hstu"])
def test_later_items_change_nothing(name, taste):
    model = made(name, taste)
    history = np.array([[0, 0, 3, 7, 11, 2]], np.int32)
    other = np.array([[0, 0, 3, 7, 5, 19]], np.int32)
    ours, theirs = (model.hidden(tf.constant(one)).numpy()[0] for one in (history, other))
    np.testing.assert_allclose(ours[2:4], theirs[2:4], atol=1e-6)
    assert np.abs(ours[4:] - theirs[4:]).max() > 1e-2


def test_taste_remembers_what_the_network_forgot():
    """The order of earlier items means nothing to the taste, which items they were does."""
    model = made("gru", taste=True)
    without = made("gru", taste=False)
    for weight, given in zip(without.weights, [one for one in model.weights if "taste" not in one.path], strict=True):
        weight.assign(given)

    def taste(history: list[int]) -> np.ndarray:
        given = tf.constant([history], tf.int32)
        return (model.hidden(given) - without.hidden(given)).numpy()[0, -1]

    np.testing.assert_allclose(taste([4, 9, 0, 3, 7, 2]), taste([9, 3, 0, 7, 4, 2]), atol=1e-5)
    np.testing.assert_allclose(taste([0, 0, 4, 9, 3, 7]), taste([4, 9, 3, 7, 0, 0]), atol=1e-5)
    assert np.abs(taste([4, 9, 0, 3, 7, 2]) - taste([4, 9, 0, 3, 7, 12])).max() > 1e-2


@pytest.mark.parametrize("taste", [False, True])
@pytest.mark.parametrize("name", ["sasrec", "hstu"])
def test_windows_of_one_row_know_nothing_of_each_other(name, taste):
    """What each says is what it says alone, as a request does."""
    model = made(name, taste)
    items, offsets = np.arange(1, 20, dtype=np.int32), np.array([0, 0, 3, 5, 12, 19])
    source = WindowSource(items, offsets, 6, packed=True, place="made", fingerprint="x")
    rows = {name: value.numpy() for name, value in source.gather(tf.range(len(source), dtype=tf.int64)).items()}
    assert rows["segment"].max() > 1
    given = {name: tf.constant(value[:, :-1]) for name, value in rows.items()}
    together = model.hidden(given["window"], given["segment"], given["back"]).numpy()
    for row, place in np.argwhere((rows["segment"][:, 1:] == rows["segment"][:, :-1]) & (rows["window"][:, :-1] > 0)):
        mine = (rows["segment"][row, :-1] == rows["segment"][row, place]) & (np.arange(6) <= rows["back"][row, place] + place - 1)
        alone = np.zeros([1, 6], np.int32)
        alone[0, 6 - mine.sum():] = rows["window"][row, :-1][mine]
        # the window ends where it ends; what stands before the place asked for decides
        at = 6 - int(rows["back"][row, place])
        np.testing.assert_allclose(together[row, place], model.hidden(tf.constant(alone)).numpy()[0, at], atol=1e-5)


def test_nothing_follows_the_last_item_of_a_window():
    """Of a row the targets are those of its windows: the first item of the next one is none."""
    items, offsets = np.arange(1, 20, dtype=np.int32), np.array([0, 0, 3, 5, 12, 19])
    source = WindowSource(items, offsets, 6, packed=True, place="made", fingerprint="x")
    settings = SimpleNamespace(experiment=SimpleNamespace(loss=SimpleNamespace(name="full")))
    inputs, targets = Windows.learning(settings, source.gather(tf.range(len(source), dtype=tf.int64)), None)
    pairs = sorted((int(a), int(b)) for a, b in zip(tf.reshape(inputs["history"], [-1]), tf.reshape(targets["positive"], [-1])) if b)
    assert pairs == [(item, item + 1) for item in range(1, 19) if item not in (3, 5, 12)]


def test_a_new_network_knows_the_latest_item():
    """Blocks add nothing at first: what comes next depends on the latest item and its place alone."""
    settings = Hstu(name="hstu", length=6, width=8, taste=False)
    model = SEQUENTIAL_MODELS.build(settings, sampled=False, users=3, items=20, events=9, k=5, chunk=64)
    ours, other = (model.hidden(tf.constant([history], tf.int32)).numpy()[0, -1] for history in ([0, 0, 3, 7, 11, 2], [0, 0, 0, 0, 0, 2]))
    np.testing.assert_allclose(ours, other, atol=1e-6)


def test_histories_and_answers_have_vectors_of_their_own_unless_tied():
    for tied in (False, True):
        settings = Hstu(name="hstu", length=6, width=8, tied=tied)
        model = SEQUENTIAL_MODELS.build(settings, sampled=False, users=3, items=20, events=9, k=5, chunk=64)
        nothing = tf.zeros([1, 6], tf.int32)
        model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
        same = np.array_equal(model.catalogue()[0], model.vectors.own.embeddings)
        assert same == tied and sum("answer_vectors" in weight.path for weight in model.weights) == (not tied)


def test_rows_are_few_and_hold_what_fits():
    sizes = np.random.default_rng(0).integers(2, 51, 4000)
    rows = pack(sizes, 50)
    filled = np.bincount(rows, sizes)
    assert filled.max() <= 50 and filled.min() > 0
    assert len(filled) <= 1.02 * sizes.sum() / 50
    assert pack(np.array([50, 50, 2]), 50).tolist() == [0, 1, 2] and not len(pack(np.zeros(0, np.int64), 50))


@pytest.mark.parametrize("tied", [False, True])
def test_features_of_items_add_to_their_vectors(tied):
    features = [{"name": "year", "kind": "number", "of": "item", "mean": 2000.0, "std": 10.0},
                {"name": "genres", "kind": "list", "of": "item", "values": ["drama", "war"], "length": 2},
                {"name": "mood", "kind": "category", "of": "event", "values": ["good"]}]
    settings = Hstu(name="hstu", length=6, width=8, tied=tied)
    model = SEQUENTIAL_MODELS.build(settings, sampled=True, features=features, users=3, items=4, events=9, k=3, chunk=64)
    nothing = tf.zeros([1, 6], tf.int32)
    model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
    assert set(model.columns.arrays) == {"year", "genres"}
    bare = model.catalogue()[0].numpy()
    model.columns.fill({"year": np.float32([0, 1, 0, 0, 0]), "genres": np.int32([[0, 0], [0, 0], [1, 2], [0, 0], [2, 0]])})
    told = model.catalogue()[0].numpy()
    changed = np.abs(told - bare).max(1) > 1e-4
    assert changed.tolist() == [False, True, True, False, True]
    np.testing.assert_allclose(model.answers(tf.range(5))[0], told, atol=1e-6)
    drama, war = model.answers.columns.layers[1].embeddings.numpy()[1:]
    np.testing.assert_allclose((told - bare)[2], (drama + war) / 2, atol=1e-6)
    assert (model.answers is model.vectors) == tied


def test_generalised_cross_entropy_is_that_of_its_probabilities():
    rng = np.random.default_rng(0)
    own, others = rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 4))
    for calibration, power in ((0.0, 1.0), (1.0, 4 / 10), (0.75, 1 - 0.75 * 0.6)):
        settings = SampledSoftmax(name="gbce", negatives=4, calibration=calibration)
        output = SimpleNamespace(experiment=SimpleNamespace(loss=settings), facts={"item_ids": list(range(13)), "new_items": 2})
        probability, missed = (1 / (1 + np.exp(-scores - np.log(power / 4))) for scores in (own, others))
        wanted = -(np.log(probability**power) + np.log(1 - missed).sum(-1))
        found = NextItems.generalised(output, tf.constant(own), tf.constant(others))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    lost = NextItems.generalised(output, tf.constant([200.0, -200.0]), tf.fill([2, 4], -1e9)).numpy()  # -1e9: a draw of the true item
    assert lost[0] == 0.0 and 0 < lost[1] < 150
