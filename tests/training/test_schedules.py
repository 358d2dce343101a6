"""Learning-rate schedules against their formulas, written out here by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.train_settings import LearningRate
from pipelines.training.links import learning_rate

STEPS = 101


def rates(steps: int = STEPS, **settings) -> np.ndarray:
    made = LearningRate(peak=0.5, **settings)
    return np.array([learning_rate(made, steps, tf.constant(step, tf.int64)).numpy() for step in range(steps)])


def test_constant():
    np.testing.assert_array_equal(rates(schedule="constant"), np.full(STEPS, 0.5, np.float32))


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine(final):
    expected = [0.5 * (final + (1 - final) * (1 + math.cos(math.pi * step / 100)) / 2) for step in range(STEPS)]
    np.testing.assert_allclose(rates(schedule="cosine", final=final), expected, atol=1e-7)


@pytest.mark.parametrize("final", [0.0, 0.2])
def test_linear(final):
    expected = [0.5 * (1 - (1 - final) * step / 100) for step in range(STEPS)]
    np.testing.assert_allclose(rates(schedule="linear", final=final), expected, atol=1e-7)


@pytest.mark.parametrize("start", [0.0, 0.3])
@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_warm_up_then_the_schedule_over_the_rest(schedule, start):
    warm = 0.2 * STEPS  # 20.2 steps

    def after(t: float) -> float:
        return {"constant": 1.0, "cosine": (1 + math.cos(math.pi * t)) / 2, "linear": 1 - t}[schedule]

    expected = [start + (1 - start) * (step + 1) / (warm + 1) if step < warm else after((step - warm) / (100 - warm))
                for step in range(STEPS)]
    found = rates(schedule=schedule, warmup=0.2, start=start)
    np.testing.assert_allclose(found, 0.5 * np.array(expected), atol=1e-6)
    assert found[0] > 0  # the first step already moves
    assert (np.diff(found[:21]) > 0).all()
    assert found.max() <= 0.5 + 1e-7
    if schedule != "constant":
        assert found[-1] == pytest.approx(0.0, abs=1e-7)


def test_one_cycle():
    warm = 0.3 * STEPS
    expected = [(1 - math.cos(math.pi * (step + 1) / (warm + 1))) / 2 if step < warm else
                0.01 + 0.99 * (1 + math.cos(math.pi * (step - warm) / (100 - warm))) / 2 for step in range(STEPS)]
    np.testing.assert_allclose(rates(schedule="one_cycle", warmup=0.3, final=0.01), 0.5 * np.array(expected), atol=1e-6)


def test_step():
    found = rates(100, schedule="step", milestones=[0.5, 0.75], factor=0.1)
    np.testing.assert_allclose(found, [0.5] * 50 + [0.05] * 25 + [0.005] * 25, rtol=1e-6)


def test_step_with_warm_up_and_unsorted_milestones():
    found = rates(100, schedule="step", milestones=[0.8, 0.4], factor=0.5, warmup=0.1)
    np.testing.assert_allclose(found[:10], [0.5 * (step + 1) / 11 for step in range(10)], rtol=1e-6)
    np.testing.assert_allclose(found[10:], [0.5] * 30 + [0.25] * 40 + [0.125] * 20, rtol=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "one_cycle"])
def test_one_and_two_steps(schedule):
    for steps in (1, 2):
        found = rates(steps, schedule=schedule, warmup=0.5)
        assert np.isfinite(found).all()
        assert found[0] > 0


def test_a_long_run_ends_exactly():
    """Steps beyond float32's whole numbers do not occur; at ten million the last rate is still the final one."""
    made = LearningRate(peak=1.0, schedule="cosine", final=0.25, warmup=0.01)
    assert learning_rate(made, 10_000_000, tf.constant(9_999_999, tf.int64)).numpy() == pytest.approx(0.25, abs=1e-6)


def test_in_graph_as_eager():
    made = LearningRate(schedule="one_cycle", warmup=0.1)
    graph = tf.function(lambda step: learning_rate(made, 50, step), autograph=False)
    for step in (0, 4, 5, 49):
        assert graph(tf.constant(step, tf.int64)).numpy() == learning_rate(made, 50, tf.constant(step, tf.int64)).numpy()
