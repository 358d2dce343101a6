"""Embedding tables: only looked-up rows move, as the optimizers' formulas say, and everything that keeps a model keeps its tables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.train_settings import Train
from pipelines.training.embedding_tables import Lookups, Table, TableOptimizer, recorded, summed, tables_of
from pipelines.training.session import assemble
from tests.training.toy import WORDS, TableToyTask, experiment

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)


def updated(optimizer: str, steps: int = 3) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """(rows before, rows after, [(ids, gradient)] of each step) of a table of 7 x 3 at rate 0.1."""
    table = Table(7, 3, initializer=keras.initializers.RandomNormal(seed=1))
    before = np.array(table.variable.value)
    made = TableOptimizer([table], Train(tables={"optimizer": optimizer}), None, None)
    rng, given = np.random.default_rng(1), []
    for step in range(steps):
        ids, gradient = np.array([5, 1 + step]), rng.normal(size=(2, 3)).astype("float32")
        made.update_rows(0, tf.constant(ids), tf.constant(gradient), tf.constant(0.1), tf.constant(step, tf.int64), lambda one: one.value)
        given.append((ids, gradient))
    return before, np.array(table.variable.value), given


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad", "adam"])
def test_updates_follow_their_formulas(optimizer):
    before, after, given = updated(optimizer)
    expected, first, second = before.astype(np.float64), np.zeros((7, 3)), np.zeros((7, 3))
    for step, (ids, gradient) in enumerate(given, 1):
        for row, g in zip(ids, gradient.astype(np.float64)):
            if optimizer == "sgd":
                change = g
            elif optimizer == "adam":
                first[row], second[row] = 0.9 * first[row] + 0.1 * g, 0.999 * second[row] + 0.001 * g**2
                change = (first[row] / (1 - 0.9**step)) / np.sqrt(second[row] / (1 - 0.999**step))
            else:
                second[row] += (g**2).mean() if optimizer == "rowwise_adagrad" else g**2
                change = g / np.sqrt(second[row])
            expected[row] -= 0.1 * change
    np.testing.assert_allclose(after, expected, atol=2e-5)
    untouched = [0, 4, 6]
    assert np.array_equal(after[untouched], before[untouched])


def test_gradients_of_several_lookups_are_those_of_an_embedding():
    table, plain = Table(WORDS, 4), keras.layers.Embedding(WORDS, 4)
    plain.build(None)
    plain.embeddings.assign(table.variable.value)
    ids, more = RNG.integers(0, WORDS, (6, 5)), RNG.integers(0, WORDS, 9)
    weights = tf.constant(RNG.normal(size=(6, 5, 4)).astype("float32"))

    def loss(layer):
        return tf.reduce_sum(layer(ids) * weights) + tf.reduce_sum(tf.square(layer(more)))

    with tf.GradientTape() as tape, recorded(Lookups(tape)) as lookups:
        value = loss(table)
    found = lookups.gradients([table], tape.gradient(value, lookups.vectors))
    rows, gradient = summed(found)
    with tf.GradientTape() as tape:
        value = loss(plain)
    expected = tf.convert_to_tensor(tape.gradient(value, plain.embeddings.value)).numpy()
    assert len(set(rows.numpy().tolist())) == len(rows)
    dense = np.zeros((WORDS, 4), np.float32)
    dense[rows.numpy()] = gradient.numpy()
    np.testing.assert_allclose(dense, expected, atol=1e-5)


def test_a_table_is_no_weight_of_the_model_and_yet_saved_with_it(tmp_path):
    def build():
        ids = keras.Input((3,), dtype="int32")
        return keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(Table(9, 2, name="table")(ids))))

    model, other = build(), build()
    assert len(model.variables) == 2 and len(tables_of(model)) == 1
    model.save(tmp_path / "model.keras")
    other.load_weights(tmp_path / "model.keras")
    ids = np.array([[0, 3, 8]])
    assert np.array_equal(model(ids), other(ids))
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert np.array_equal(model(ids), loaded(ids))
    with pytest.raises(ValueError, match="the file holds"):
        Table(5, 2).load_own_variables({"rows": np.zeros((4, 2))})


@pytest.mark.parametrize("change", [{}, {"train": {"accumulation": 2, "batch_size": 48, "epochs": 2}}])
def test_training_moves_tables_and_counts_them_into_the_gradient_norm(change):
    made = assemble(experiment(model="table", **change), TableToyTask)
    table = made.update.tables.tables[0]
    assert any(one is table.variable for one in made.all_weights) and made.feed.spec["words"].shape.as_list() == [None]
    before = np.array(table.variable.value)
    step, carry = made.step(made.feed.iterator(0, made.steps), 0, made.steps, made.step.fresh())
    after = np.array(table.variable.value)
    assert step == made.steps and np.isfinite(carry.loss)
    assert np.array_equal(before[0], after[0])  # padding, which the model masks
    assert (np.abs(after[1:] - before[1:]).max(-1) > 0).mean() > 0.9


def test_a_frozen_table_stands_still():
    made = assemble(experiment(model="table", train={"freeze": {"layers": ["words_table"]}}), TableToyTask)
    before = np.array(made.update.tables.tables[0].variable.value)
    for hook in made.freezing:
        hook.on_start(type("Loop", (), {"epoch": 0, "step": 0, "run_steps": made.step})())
    made.step(made.feed.iterator(0, 2), 0, 2, made.step.fresh())
    assert np.array_equal(before, made.update.tables.tables[0].variable.value)
