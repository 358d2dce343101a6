"""Order as a pure function of (seed, epoch, step), whatever the batch size, the replicas and the step begun with."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.data import order
from pipelines.data.order import Plan


def batch(plan: Plan, seed: int, step: int, **options) -> tuple[np.ndarray, np.ndarray]:
    numbers, weights = order.batch_numbers(plan, seed, tf.constant(step, tf.int64), **options)
    return numbers.numpy(), weights.numpy()


def epoch_of(plan: Plan, seed: int, epoch: int) -> np.ndarray:
    """Numbers that count, in their order."""
    first = epoch * plan.steps_per_epoch
    parts = [batch(plan, seed, step) for step in range(first, first + plan.steps_per_epoch)]
    return np.concatenate([numbers[weights == 1] for numbers, weights in parts])


@pytest.mark.parametrize(("examples", "size"), [(100, 10), (101, 10), (7, 16), (1, 4), (3, 3), (2, 7), (1000, 999),
                                                (65536, 4096), (65537, 4096), (65538, 4096), (262145, 50_000)])
def test_every_example_once_an_epoch(examples, size):
    plan = Plan(examples, size)
    for epoch in (0, 1, 5):
        np.testing.assert_array_equal(np.sort(epoch_of(plan, 3, epoch)), np.arange(examples))


@pytest.mark.parametrize(("examples", "size"), [(101, 10), (7, 16), (1, 4), (2, 7)])
def test_filler_rows_weigh_nothing_and_are_the_epochs_first(examples, size):
    plan = Plan(examples, size)
    last = 2 * plan.steps_per_epoch - 1  # of epoch 1
    numbers, weights = batch(plan, 0, last)
    real = examples - (plan.steps_per_epoch - 1) * size
    assert numbers.shape == weights.shape == (size,)
    np.testing.assert_array_equal(weights, [1] * real + [0] * (size - real))
    np.testing.assert_array_equal(numbers[real:], np.resize(epoch_of(plan, 0, 1), size - real))


def test_seeds_and_epochs_differ_and_calls_repeat():
    plan = Plan(500, 50)
    orders = {(seed, epoch): tuple(epoch_of(plan, seed, epoch)) for seed in (0, 1, 2**31 - 1) for epoch in (0, 1, 2)}
    assert len(set(orders.values())) == len(orders)
    assert orders == {key: tuple(epoch_of(plan, *key)) for key in orders}
    for found in orders.values():  # and none is near the stored order
        assert np.mean(np.array(found) == np.arange(500)) < 0.02
        assert abs(np.corrcoef(found, np.arange(500))[0, 1]) < 0.2


def test_places_and_neighbours_are_uniform():
    """An example stands anywhere with equal chance, and so does its neighbour from there: chi-squared over the epochs."""
    orders = np.stack([epoch_of(Plan(60, 60), 0, epoch) for epoch in range(900)])
    for values in [orders[:, place] for place in (0, 7, 31, 59)] + [(orders[:, place + 1] - orders[:, place]) % 60 for place in (0, 1, 30)]:
        counts = np.bincount(values // 4, minlength=15)
        assert np.sum((counts - 60) ** 2 / 60) < 45  # about 14 degrees of freedom: 99.99 % lie below


def test_a_step_does_not_depend_on_the_steps_before_and_graph_equals_eager():
    plan = Plan(1000, 64)
    graph = tf.function(lambda step: order.batch_numbers(plan, 7, step))
    for step in (4321, 0, 15, 16, 10**6):
        np.testing.assert_array_equal(graph(tf.constant(step, tf.int64))[0], batch(plan, 7, step)[0])


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_same_global_batch_for_any_number_of_replicas(accumulation):
    first = None
    for replicas in (1, 2, 3, 4):
        plan = Plan(100, 24, replicas, accumulation)
        assert plan.replicas * plan.local == 24
        assert plan.local == plan.micro * accumulation
        parts = [batch(plan, 5, step) for step in range(12)]
        if first is None:
            first = parts
        for one, other in zip(first, parts):
            np.testing.assert_array_equal(one, other)


def test_stored_order_for_judging():
    numbers, weights = batch(Plan(7, 5), 0, 1, shuffle=False)
    np.testing.assert_array_equal(numbers, [5, 6, 0, 1, 2])
    np.testing.assert_array_equal(weights, [1, 1, 0, 0, 0])


def test_keys_belong_to_example_and_epoch():
    numbers = tf.constant([5, 3, 5, 10_000_000], tf.int64)
    keys = order.example_keys(0, tf.constant(2), numbers).numpy()
    np.testing.assert_array_equal(keys[0], keys[2])
    np.testing.assert_array_equal(order.example_keys(0, tf.constant(2, tf.int64), numbers[1:2]).numpy()[0], keys[1])
    seen = {tuple(key) for seed in (0, 1) for epoch in range(5)
            for key in order.example_keys(seed, tf.constant(epoch), tf.range(200, dtype=tf.int64)).numpy()}
    assert len(seen) == 2 * 5 * 200


def test_seeds_of_steps_differ_from_each_other_and_from_the_order():
    seen = {tuple(order.step_seed(seed, tf.constant(step, tf.int64)).numpy()) for seed in (0, 1) for step in range(20)}
    seen |= {tuple(order.fold(seed, tf.constant(epoch), purpose).numpy()) for seed in (0, 1) for epoch in range(20)
             for purpose in (order.ORDER, order.EXAMPLE)}
    assert len(seen) == 2 * 20 * 3
