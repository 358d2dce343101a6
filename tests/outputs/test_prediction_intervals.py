"""Intervals hold what they promise, overall and for small and large answers, on data whose noise varies."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.outputs.prediction_intervals import margins, widened

SPLITS, JUDGED = 20, 2_000


def held(validation: int, draw: np.random.Generator, *, lower: float = 0.0) -> np.ndarray:
    """[quarters of the answers]: the share of truths inside of 90 % intervals, whose noise grows fourfold with the answer."""
    values = draw.uniform(0, 1, validation + JUDGED)
    truth = values + draw.normal(0, 0.1 + 0.3 * values)
    low, high = values - lower, values + lower
    own = slice(0, validation)
    found = margins(values[own], low[own], high[own], truth=truth[own], share=0.9)
    rest = [tf.constant(one[validation:], tf.float32) for one in (values, low, high)]
    ends = widened(found, *rest)
    inside = (truth[validation:] >= ends[0].numpy()) & (truth[validation:] <= ends[1].numpy())
    return np.array([inside[part].mean() for part in np.array_split(np.argsort(values[validation:]), 4)])


@pytest.mark.parametrize("validation, lower", [(100, 0.0), (400, 0.0), (1_000, 0.0), (400, 0.3)])
def test_intervals_hold_nine_tenths_overall_and_by_quarter(validation, lower):
    draw = np.random.default_rng(0)
    every = np.array([held(validation, draw, lower=lower) for _ in range(SPLITS)])
    assert 0.88 <= every.mean() <= 0.92
    if validation >= 400:  # four bins
        # of a bin of n the coverage is beta-distributed around 0.9, with this deviation
        deviation = np.sqrt(0.09 / (validation / 4) / SPLITS + 0.09 / (JUDGED / 4) / SPLITS)
        assert np.abs(every.mean(0) - 0.9).max() < 4 * deviation + 1 / (validation / 4)


def test_without_bins_the_largest_answers_are_held_too_rarely():
    """What the bins are for."""
    draw = np.random.default_rng(0)
    every = np.array([held(39, draw) for _ in range(200)])
    assert every[:, 0].mean() > 0.97 and every[:, 3].mean() < 0.85


def test_the_margin_is_the_finite_sample_quantile():
    values = np.zeros(19)
    found = margins(values, values, values, truth=np.arange(1.0, 20.0), share=0.9)
    assert found == {"share": 0.9, "edges": [], "margins": [18.0]}  # the ceil(20 x 0.9)-th smallest


def test_few_examples_promise_nothing():
    values = np.zeros(8)
    assert margins(values, values, values, truth=np.arange(8.0), share=0.9) is None
    assert margins(np.zeros(0), np.zeros(0), np.zeros(0), truth=np.zeros(0), share=0.9) is None


def test_missing_truths_do_not_count():
    draw = np.random.default_rng(0)
    values, truth = draw.normal(size=50), draw.normal(size=50)
    gaps = np.where(np.arange(60) < 50, np.resize(truth, 60), np.nan)
    more = np.resize(values, 60)
    assert margins(more, more, more, truth=gaps, share=0.9) == margins(values, values, values, truth=truth, share=0.9)


def test_equal_answers_are_one_bin():
    values = np.zeros(400)
    found = margins(values, values, values, truth=np.random.default_rng(0).normal(size=400), share=0.9)
    assert found["edges"] == [] and len(found["margins"]) == 1


def test_an_interval_holds_the_answer_where_learned_quantiles_are_too_wide():
    found = {"share": 0.9, "edges": [], "margins": [-5.0]}
    low, high = widened(found, *(tf.constant([value]) for value in (1.0, 0.0, 2.0)))
    assert low.numpy() <= 1.0 <= high.numpy()
