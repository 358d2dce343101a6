"""Every model: padding changes nothing, an empty text has an answer, the parts give what the whole gives, and rows learn sparsely."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nlp import models
from nlp.models.bag import count_tokens, set_rarity, set_ratios
from nlp.models.parts import DropTokens
from nlp.settings import Bag, Cnn, Lstm, Transformer
from pipelines.base.errors import ConfigError
from pipelines.training.embedding_tables import all_variables, tables_of

pytestmark = pytest.mark.slow

MODELS = [Bag(name="bag", width=6), Bag(name="bag", width=6, hidden=5, pool="root", drop_tokens=0.3, dropout=0.2),
          Bag(name="bag", naive_bayes=True), Bag(name="bag", rarity=True, linear=True, drop_tokens=0.2),
          Cnn(name="cnn", width=8, filters=5, kernels=[1, 2, 3, 4]),
          Lstm(name="lstm", width=8, units=4, layers=2),
          Transformer(name="transformer", width=8, heads=2, hidden=16)]
IDS = np.array([[3, 4, 5, 6, 7], [8, 9, 2, 0, 0], [1, 0, 0, 0, 0]], np.int32)


def built(settings, classes=3, seed=0):
    keras.utils.set_random_seed(seed)
    model = models.build(settings, size=20, classes=classes, limit=32)
    draw = np.random.default_rng(1)
    for variable in all_variables(model):
        if variable.dtype == "float32":
            variable.assign(draw.normal(0.0, 0.3, variable.shape))
    return model


@pytest.mark.parametrize("settings", MODELS, ids=lambda one: f"{one.name}{MODELS.index(one)}")
def test_a_model_keeps_its_promises(settings, tmp_path):
    model = built(settings)
    logits = model(IDS, training=False).numpy()
    assert logits.shape == (3, 3) and logits.dtype == np.float32 and np.isfinite(logits).all()
    padded = model(np.pad(IDS, [(0, 0), (0, 11)]), training=False).numpy()
    np.testing.assert_allclose(padded, logits, atol=1e-6)
    for row, length in zip(range(3), (5, 3, 1)):
        np.testing.assert_allclose(model(IDS[row:row + 1, :length], training=False)[0], logits[row], atol=1e-6)
    # the two parts are the whole
    vectors = model.get_layer("embedding")(IDS)
    np.testing.assert_allclose(model.get_layer("encoder")([vectors, tf.constant(IDS)], training=False), logits, atol=1e-6)
    assert [table.name for table in tables_of(model)] == ["embedding"]
    # what is saved is what is loaded
    model.save(tmp_path / "model.keras")
    other = built(settings, seed=9)
    other.load_weights(tmp_path / "model.keras")
    np.testing.assert_allclose(other(IDS, training=False), logits, atol=1e-6)


def test_a_batch_may_be_padded_beyond_the_limit_of_places():
    """Batches are padded to a multiple of 8, whatever tokens.limit is."""
    model = models.build(Transformer(name="transformer", width=8, heads=2, hidden=16), size=20, classes=3, limit=13)
    ids = np.random.default_rng(0).integers(2, 20, (2, 13)).astype(np.int32)
    padded = np.pad(ids, [(0, 0), (0, 3)])
    np.testing.assert_allclose(model(padded, training=False), model(ids, training=False), atol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.function(model)(tf.constant(padded), training=True) ** 2)
    places = next(weight for weight in model.trainable_weights if weight.name == "places")
    assert places.shape == (13, 8) and np.abs(tape.gradient(loss, places.value)).max(axis=1).min() > 0


def test_padding_changes_nothing_in_training_either():
    """Gradients of the mean loss, with the same dropped tokens, do not see padding."""
    model = built(Lstm(name="lstm", width=8, units=4, dropout=0.0))

    def gradients(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids, training=True) ** 2)
        return [gradient.numpy() for gradient in tape.gradient(loss, [weight.value for weight in model.trainable_variables])]

    for one, other in zip(gradients(IDS), gradients(np.pad(IDS, [(0, 0), (0, 3)]))):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_dropped_tokens_leave_one_and_never_touch_padding():
    keras.utils.set_random_seed(0)
    layer = DropTokens(0.9, 0)
    ids = np.tile(IDS, [200, 1])
    left = layer(ids, training=True).numpy()
    assert ((left != 0).sum(axis=1) >= 1).all() and (left[ids == 0] == 0).all() and ((left == ids) | (left == 0)).all()
    assert 0.0 < (left[ids != 0] != 0).mean() < 0.5
    np.testing.assert_array_equal(layer(ids, training=False), ids)


def test_naive_bayes_ratios_are_the_paper_s():
    model = models.build(Bag(name="bag", naive_bayes=True), size=6, classes=2, limit=9)
    batches = [(tf.constant([[2, 3, 3], [2, 4, 0]]), {"label": tf.constant([0, 1])}),
               (tf.constant([[3, 0, 0]]), {"label": tf.constant([1])})]
    counts = count_tokens(iter(batches), 6, 2)
    np.testing.assert_array_equal(counts, [[0, 0], [0, 0], [1, 1], [1, 1], [0, 1], [0, 0]])
    set_ratios(model, counts)
    p, q = counts[:, 1] + 1.0, counts[:, 0] + 1.0
    ratios = np.log(p / p.sum()) - np.log(q / q.sum())
    ratios[counts.sum(axis=1) == 0] = 0
    found = model.get_layer("encoder").get_layer("ratios").ratios.numpy()
    np.testing.assert_allclose(found[:, 1], ratios, atol=1e-6)
    np.testing.assert_allclose(found[:, 0], -ratios, atol=1e-6)
    assert not model.get_layer("encoder").get_layer("ratios").trainable_variables


def test_a_linear_bag_of_rarity_is_linear_on_tf_idf():
    """Of words and of characters each, as scikit-learn has them: a token that train lacks counts for nothing."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    texts = np.array([[2, 3, 7, 8, 0], [3, 4, 8, 9, 9], [4, 4, 7, 0, 0]], np.int32)
    asked = np.array([[2, 4, 5, 7, 9], [5, 9, 0, 0, 0], [5, 6, 0, 0, 0]], np.int32)  # 5 and 6 stand in no text of train
    model = models.build(Bag(name="bag", rarity=True, linear=True), size=10, classes=2, limit=9, letters=7)
    assert not model(asked, training=False).numpy().any(), "no evidence before training"
    set_rarity(model, count_tokens(iter([(tf.constant(texts), {})]), 10, 1)[:, 0], len(texts))
    rows = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    model.get_layer("embedding").variable.assign(rows)
    known, wanted = ((ids[:, :, None] == np.arange(1, 10)).sum(axis=1).astype(float) for ids in (texts, asked))
    features = normalize(TfidfTransformer(norm=None).fit(known).transform(wanted).toarray() * (known.sum(axis=0) > 0) * (
        np.arange(1, 10) < 7)) + normalize(TfidfTransformer(norm=None).fit(known).transform(wanted).toarray() * (np.arange(1, 10) >= 7))
    np.testing.assert_allclose(model(asked, training=False), features @ rows[1:], atol=1e-5)
    assert not model(asked, training=False)[2].numpy().any()


def test_too_many_ratios_are_refused():
    with pytest.raises(ConfigError, match=r"tokens\.buckets"):
        models.build(Bag(name="bag", naive_bayes=True), size=1 << 22, classes=150, limit=9)


def test_bfloat16_gives_float32_logits_near_those_of_float32():
    for settings in (Cnn(name="cnn", width=8, filters=5), Transformer(name="transformer", width=8, heads=2, hidden=16)):
        exact = built(settings)(IDS, training=False).numpy()
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            rough = built(settings)(IDS, training=False)
        finally:
            keras.config.set_dtype_policy("float32")
        assert rough.dtype == tf.float32
        np.testing.assert_allclose(rough, exact, atol=0.15)
