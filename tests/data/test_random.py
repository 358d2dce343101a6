"""Draws from example keys: uniform, independent, and pure functions of the key."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from pipelines.data import draws, order

EXAMPLES = 50_000


@pytest.fixture(scope="module")
def keys() -> tf.Tensor:
    return order.example_keys(0, tf.constant(3, tf.int64), tf.range(EXAMPLES, dtype=tf.int64))


def test_uniform_fills_the_unit_interval_evenly(keys):
    drawn = draws.uniform(keys, 0, 16).numpy()
    assert drawn.shape == (16, EXAMPLES) and drawn.dtype == np.float32
    assert drawn.min() >= 0.0 and drawn.max() < 1.0
    pvalues = [stats.kstest(row, "uniform").pvalue for row in drawn]
    assert min(pvalues) > 1e-4  # 16 tests: chance fails this once in 600 keys, and the keys are fixed
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3


def test_streams_epochs_and_neighbours_are_independent(keys):
    drawn = draws.uniform(keys, 0, 8).numpy()
    later = draws.uniform(order.example_keys(0, tf.constant(4, tf.int64), tf.range(EXAMPLES, dtype=tf.int64)), 0, 8).numpy()
    bound = 5.0 / np.sqrt(EXAMPLES)  # five standard errors of a correlation
    assert np.abs(np.corrcoef(drawn) - np.eye(8)).max() < bound
    assert max(abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(drawn, later)) < bound
    assert max(abs(np.corrcoef(row[1:], row[:-1])[0, 1]) for row in drawn) < bound
    joint = np.histogram2d(drawn[0], drawn[1], bins=16)[0]
    assert stats.chisquare(joint.ravel()).pvalue > 1e-4


def test_every_bit_is_a_fair_coin(keys):
    words = draws.bits(keys, 5)[0].numpy()
    ones = ((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(EXAMPLES)


def test_one_changed_bit_of_a_key_moves_half_of_the_bits(keys):
    words = draws.bits(keys, 0)[0].numpy()
    for word in range(2):
        for bit in (0, 7, 30):
            changed = tf.constant(keys.numpy() ^ np.array([[1 << bit if word == 0 else 0, 1 << bit if word == 1 else 0]], np.int32))
            moved = np.bitwise_count(words ^ draws.bits(changed, 0)[0].numpy()).mean() / 32
            assert abs(moved - 0.5) < 0.005, (word, bit, moved)


def test_integers_hit_both_ends_equally_often(keys):
    values, counts = np.unique(draws.integers(keys, 2, -2, 2).numpy(), return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_draw_depends_on_its_own_key_only_and_compiles(keys):
    whole = draws.uniform(keys, 3).numpy()
    some = tf.constant([17, 4, 49_999])
    assert np.array_equal(draws.uniform(tf.gather(keys, some), 3).numpy(), whole[some.numpy()])
    assert np.array_equal(tf.function(lambda k: draws.uniform(k, 3), jit_compile=True)(keys).numpy(), whole)
    assert np.array_equal(draws.uniform(keys, 2, 4).numpy()[1], whole)
