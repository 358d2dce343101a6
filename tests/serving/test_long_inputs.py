"""One long input in a batch does not make all others as long."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.serving.answers import PADDED, bounded_parts

SPECS = {"ids": tf.TensorSpec([None, None], tf.string), "length": tf.TensorSpec([None], tf.int32)}


def parts(lengths, specs=SPECS):
    rows = [{"ids": ["a"] * length, "length": 1} for length in lengths]
    return [(one.start, one.stop) for one in bounded_parts(specs, rows)]


def test_usual_rows_stay_together():
    assert parts([3, 0, 500, 7] * 16) == [(0, 64)]
    assert parts([]) == [] and parts([10_000_000 // 8]) == [(0, 1)]


def test_a_long_row_is_alone():
    assert parts([5, 5, 700_000, 5, 5]) == [(0, 2), (2, 3), (3, 5)]


def test_all_parts_are_bounded_and_whole():
    lengths = [int(length) for length in np.random.default_rng(0).pareto(0.4, 500) * 20 if length < 500_000]
    found = parts(lengths)
    assert [place for start, stop in found for place in range(start, stop)] == list(range(len(lengths)))
    assert all(stop - start == 1 or (stop - start) * max(lengths[start:stop]) * 256 <= PADDED for start, stop in found)


@pytest.mark.parametrize("kind, value", [(tf.float32, np.zeros(1 << 25, np.float32)), (tf.int64, np.zeros(1 << 24, np.int64))])
def test_numbers_count_by_their_bytes(kind, value):
    rows = [{"samples": value} if place == 1 else {"samples": value[:1000]} for place in range(8)]
    found = list(bounded_parts({"samples": SimpleNamespace(dtype=kind, shape=tf.TensorShape([None, None]))}, rows))
    assert [(one.start, one.stop) for one in found] == [(0, 2), (2, 8)]
