"""One long input in a batch does not make all others as long; a broken one among inputs of different lengths fails alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.serving.answers import PADDED, bounded_parts
from pipelines.serving.predict import Predictor

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


def test_a_broken_row_among_rows_of_different_lengths_fails_alone():
    predictor = Predictor.__new__(Predictor)

    def receive(rows):
        if any(row["ids"] is None for row in rows):
            raise ValueError("no ids")
        return {"ids": np.stack([row["ids"] for row in rows])}

    predictor._receive_rows = receive
    rows = [("a", {"ids": np.ones(2)}), ("b", {"ids": None}), ("c", {"ids": np.ones(3)})]
    decoded = predictor._decode(rows)
    assert decoded.places == [0, 2] and decoded.errors == {1: "no ids"}
    assert decoded.examples["ids"].tolist() == [[1, 1, 0], [1, 1, 1]]
