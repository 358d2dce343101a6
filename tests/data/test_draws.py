"""What layers draw in training: for each example by its place, however its batch is divided and padded."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.data.draws import Draws, by_example, seeded
from pipelines.machine import compiling

layers = keras.layers
X = np.random.default_rng(0).normal(size=(12, 6, 4)).astype("float32") + 1.0


class Own(layers.Layer):
    """A layer that draws with one of Keras' functions."""

    def __init__(self, draw, seeded=True):
        super().__init__()
        self.draw, self.seeds = draw, keras.random.SeedGenerator(1) if seeded else None

    def call(self, x, training=False):
        return x + tf.cast(self.draw(x, self.seeds), x.dtype) if training else x


def flat(x, seed):  # as where a layer sees [batch x time, width]
    return tf.reshape(keras.random.uniform((tf.shape(x)[0] * x.shape[1], x.shape[2]), seed=seed), tf.shape(x))


LAYERS = {
    "dropout": lambda: layers.Dropout(0.4),
    "dropout of paths": lambda: layers.Dropout(0.4, noise_shape=(None, 1, 1)),
    "spatial dropout": lambda: layers.SpatialDropout1D(0.4),
    "gaussian noise": lambda: layers.GaussianNoise(0.4),
    "gaussian dropout": lambda: layers.GaussianDropout(0.4),
    "alpha dropout": lambda: layers.AlphaDropout(0.4),
    "recurrent": lambda: layers.LSTM(4, dropout=0.4, recurrent_dropout=0.4, return_sequences=True),
    "whole numbers": lambda: Own(lambda x, seed: keras.random.randint((tf.shape(x)[0], 1, 1), 0, 9, seed=seed)),
    "truncated": lambda: Own(lambda x, seed: keras.random.truncated_normal(tf.shape(x), seed=seed)),
    "without a seed": lambda: Own(lambda x, seed: keras.random.uniform((tf.shape(x)[0], 1, 1)), seeded=False),
    "examples in several rows": lambda: Own(flat),
    "no example's": lambda: Own(lambda x, seed: keras.random.uniform((1, 1, 4), seed=seed)),
    "a number of all": lambda: Own(lambda x, seed: keras.random.uniform((), seed=seed)),
}


def outputs(model, x, places, seed=(-5, 2), xla=False):
    def step(x, places, seed):
        given = Draws(seed, places)
        state = seeded(model.non_trainable_variables, model.non_trainable_variables, given.seed)
        with by_example(given):
            return model.stateless_call(model.trainable_variables, state, x, training=True)[0]

    return compiling.function(step, xla=xla)(tf.constant(x), tf.constant(places, tf.int32), tf.constant(seed)).numpy()


@pytest.mark.parametrize("name", LAYERS)
def test_a_part_of_a_batch_draws_what_the_whole_one_draws_for_it(name):
    model = keras.Sequential([keras.Input((None, 4) if name not in ("examples in several rows",) else (6, 4)), LAYERS[name]()])
    whole = outputs(model, X, range(12))
    assert abs(whole - model(X).numpy()).max() > 1e-2  # it does draw
    parts = [outputs(model, X[first:first + 4], range(first, first + 4)) for first in (0, 4, 8)]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)
    assert abs(outputs(model, X, range(12), seed=(1, 3)) - whole).max() > 1e-2  # another step
    if name not in ("no example's", "a number of all"):
        assert abs(outputs(model, X, range(20, 32)) - whole).max() > 1e-2  # other places
    np.testing.assert_allclose(outputs(model, X, range(12), xla=True), whole, atol=1e-5)  # also where a word of the seed is negative


def test_padding_changes_no_draw():
    attention = layers.MultiHeadAttention(2, 2, dropout=0.5)
    x = keras.Input((None, 4))
    mask = keras.Input((1, None), dtype="bool")
    model = keras.Model([x, mask], attention(x, x, attention_mask=mask))
    shown = np.ones((12, 1, 6), bool)
    there = [np.concatenate([value, np.zeros_like(value)], axis) for value, axis in ((X, 1), (shown, 2))]
    wide = _outputs_of(model, there)
    np.testing.assert_allclose(wide[:, :6], _outputs_of(model, [X, shown]), atol=1e-6)


def _outputs_of(model, inputs):
    given = Draws(tf.constant([1, 2]), tf.range(12))
    state = seeded(model.non_trainable_variables, model.non_trainable_variables, given.seed)
    with by_example(given):
        return model.stateless_call(model.trainable_variables, state, inputs, training=True)[0].numpy()


def test_the_numbers_are_independent_and_of_their_distributions():
    from scipy import stats

    with by_example(Draws(tf.constant([5, 6]), tf.range(300))):
        ones = tf.ones([300, 333])
        dropped = [(keras.random.dropout(ones, 0.1, seed=seed).numpy() == 0) - 0.1 for seed in (1, 2)]
        normal, truncated = (draw((300, 333), 1.0, 2.0, seed=3).numpy() for draw in (keras.random.normal, keras.random.truncated_normal))
        whole = keras.random.randint((300, 333), -2, 5, seed=4).numpy()
        half = keras.random.uniform((300, 333), dtype="bfloat16", seed=5)
    for one in dropped:
        assert abs(one.mean()) < 0.005 and abs(one.mean(0)).max() < 0.1 and abs(one.mean(1)).max() < 0.1
        for neighbour in (one[:, 1:] * one[:, :-1], one[1:] * one[:-1], one[:, 16:] * one[:, :-16]):  # none tells of another
            assert abs(neighbour.mean()) < 0.002
    assert abs((dropped[0] * dropped[1]).mean()) < 0.002
    assert stats.kstest(normal.ravel()[:20_000], stats.norm(1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(truncated.ravel()[:20_000], stats.truncnorm(-2, 2, 1, 2).cdf).pvalue > 1e-3
    assert stats.chisquare(np.bincount(whole.ravel() + 2, minlength=7)).pvalue > 1e-3
    assert half.dtype == tf.bfloat16 and float(tf.reduce_max(half)) < 1.0


def test_outside_of_a_step_keras_draws_as_ever():
    x, layer = tf.ones([4, 5]), layers.Dropout(0.5, seed=7)
    with by_example(Draws(tf.constant([1, 2]), tf.range(4))):
        pass
    expected = tf.nn.experimental.stateless_dropout(x, rate=0.5, seed=[7, 0])
    np.testing.assert_array_equal(layer(x, training=True), expected)
