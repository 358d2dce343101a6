"""Intervals against theory, against a plain loop, and by how often they cover the truth."""

import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import binom, norm

from pipelines.task import intervals
from pipelines.task.results import Metric
from pipelines.task.units import grouped


def test_mean_agrees_with_the_normal_interval():
    values = np.random.default_rng(0).normal(3.0, 2.0, 4000)
    found = intervals.mean(values, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.value == pytest.approx(values.mean()) and found.n == 4000
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_share_agrees_with_the_binomial():
    hits = np.arange(1000) < 730
    found = intervals.share(hits, resamples=20_000)
    assert (found.low, found.high) == pytest.approx(binom.ppf([0.025, 0.975], 1000, 0.73) / 1000, abs=0.002)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        found = intervals.mean(rng.exponential(1.0, 200), resamples=300, seed=trial)
        covered += found.low <= 1.0 <= found.high
    assert 0.89 <= covered / 300 <= 0.98


def test_counts_are_multinomial_and_rows_sum_to_n():
    counts = np.concatenate(list(intervals.resample_counts(50, resamples=4000)))
    assert counts.shape == (4000, 50) and (counts.sum(axis=1) == 50).all()
    assert counts.var() == pytest.approx(50 * (1 / 50) * (49 / 50), rel=0.03)


def test_the_same_seed_draws_the_same_whatever_the_block_and_the_form(monkeypatch):
    values = np.random.default_rng(0).random((300, 3))
    whole = intervals.resampled_sums(values, resamples=64, seed=5)
    monkeypatch.setattr(intervals, "_CELLS", 1000)
    assert np.allclose(intervals.resampled_sums(values, resamples=64, seed=5), whole, rtol=1e-12)
    assert np.allclose(intervals.resampled_sums(csr_matrix(values), resamples=64, seed=5), whole, rtol=1e-12)
    assert not np.array_equal(intervals.resampled_sums(values, resamples=64, seed=6), whole)


def test_a_ratio_by_hand():
    errors, lengths = np.array([1.0, 0, 3, 2]), np.array([10.0, 5, 6, 9])
    found = intervals.interval(np.stack([errors, lengths], 1), lambda sums: sums[:, 0] / sums[:, 1], resamples=2000)
    drawn = intervals.resampled_sums(np.stack([errors, lengths], 1), resamples=2000)
    assert found.value == pytest.approx(6 / 30)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975]))


def test_groups_are_drawn_whole():
    rng = np.random.default_rng(0)
    speakers = np.repeat(np.arange(20), 50)
    values = rng.normal(size=20)[speakers] + 0.1 * rng.normal(size=1000)
    alone, together = intervals.mean(values), intervals.mean(values, units=grouped(speakers, "speaker"))
    assert together.value == pytest.approx(alone.value) and together.n == 1000
    assert (together.high - together.low) > 4 * (alone.high - alone.low)
    names = np.array([f"s{number}" for number in speakers])
    assert intervals.mean(values, units=grouped(names, "speaker")).value == pytest.approx(alone.value)


@pytest.mark.parametrize("all_right", [True, False])
def test_a_share_without_spread_has_wilsons_interval(all_right):
    found = intervals.share(np.full(360, all_right))
    far = 360 / (360 + 1.959964**2)
    expected = (far, 1.0) if all_right else (0.0, 1 - far)
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-6)


def test_nothing_can_be_said_of_one_example_or_none():
    assert intervals.mean(np.array([2.5])) == Metric(2.5, None, None, 1)
    none = intervals.mean(np.array([]))
    assert np.isnan(none.value) and none.low is None and none.n == 0
    assert intervals.share(np.array([True])).low == pytest.approx(0.2065, abs=1e-3)


def test_resamples_without_value_are_left_out():
    assert intervals.bounds(np.array([np.nan, 1.0, 2.0, 3.0]), 2.0) == pytest.approx((1.05, 2.95))
    assert intervals.bounds(np.array([np.nan, np.nan]), 2.0) == (None, None)


def test_the_basic_interval_contains_the_value_and_starts_at_zero():
    low, high = intervals.bounds(np.array([0.03, 0.04, 0.05]), 0.02, kind="basic")
    assert low == 0.0 and high == 0.02


def test_counts_agree_with_sums():
    hits = np.random.default_rng(0).random(800) < 0.8
    by_sum = intervals.share(hits, resamples=400)
    by_counts = intervals.resampled_by_counts(lambda counts: counts @ hits / 800, 800, resamples=400)
    assert (by_counts.value, by_counts.low, by_counts.high) == pytest.approx((by_sum.value, by_sum.low, by_sum.high))
    assert np.allclose(by_counts.drawn, by_sum.drawn)  # the same examples were drawn


def test_intervals_of_columns_are_those_of_each():
    drawn = np.random.default_rng(0).random((200, 4))
    drawn[:50, 1], drawn[:, 2], drawn[:, 3] = np.nan, np.nan, 0.5
    low, high = intervals.bounds_of_columns(drawn)
    assert [(low[k], high[k]) for k in (0, 1)] == [pytest.approx(intervals.bounds(drawn[:, k], 0.5)) for k in (0, 1)]
    assert np.isnan(low[2:]).all() and np.isnan(high[2:]).all()


def test_wilson_against_its_definition():
    low, high = intervals.wilson(np.array([0, 7, 10, 0]), np.array([10, 10, 10, 0]))
    z = norm.ppf(0.975)
    for k, p in enumerate([0.0, 0.7, 1.0]):  # the bounds are the roots of |p - p0| = z sqrt(p0 (1 - p0) / n)
        for bound in (low[k], high[k]):
            assert abs(p - bound) == pytest.approx(z * np.sqrt(bound * (1 - bound) / 10), abs=1e-7)
    assert (low[3], high[3]) == (0.0, 1.0)


def test_spread():
    assert intervals.spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert intervals.spread([0.8, 0.8, 0.8])[1] == 0.0
    assert np.isnan(intervals.spread([0.7])[1])


def test_ten_thousand_examples_take_little():
    values = np.random.default_rng(0).random(10_000)
    intervals.mean(values[:10])
    began = time.process_time()
    intervals.mean(values)
    assert time.process_time() - began < 5.0  # a tenth of it on a quiet machine
