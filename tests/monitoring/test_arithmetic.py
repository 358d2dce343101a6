"""The count of a model's arithmetic, the measured matrix product, and what is said of both."""

import json

import keras
import pytest
import tensorflow as tf

from pipelines.monitoring.arithmetic import arithmetic, forward_operations, matrix_rate
from pipelines.reports import words


def dense(*units: int) -> keras.Model:
    return keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(count, use_bias=False) for count in units)])


def test_dense_and_convolution_are_counted_as_multiplications_and_additions():
    assert forward_operations(dense(128, 10), tf.ones((32, 64))) == 2 * 32 * (64 * 128 + 128 * 10)
    convolution = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(16, 3, padding="same", use_bias=False)])
    assert forward_operations(convolution, tf.ones((4, 8, 8, 3))) == 2 * 4 * 8 * 8 * 16 * 27


def test_a_recurrent_model_is_not_counted():
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.GRU(4)])
    assert forward_operations(model, tf.ones((2, 5, 3))) is None


def test_the_matrix_product_is_measured_once(tmp_path):
    file = tmp_path / "matrix-product.json"
    rate = matrix_rate("CPU:0", "float32", cache=file)
    assert rate > 1e8
    stored = json.loads(file.read_text())
    assert list(stored.values()) == [rate] and "float32" in next(iter(stored))
    file.write_text(json.dumps(dict.fromkeys(stored, 5.0)))
    assert matrix_rate("CPU:0", "float32", cache=file) == 5.0
    file.write_text("damaged")
    assert matrix_rate("CPU:0", "float32", cache=file) > 1e8


def test_what_a_run_reaches(tmp_path, monkeypatch):
    class Machine:
        precision, devices = "float32", ("CPU:0", "CPU:1")

    monkeypatch.setattr("pipelines.monitoring.arithmetic.matrix_rate", lambda device, precision: 1e9)
    found = arithmetic(dense(100), tf.ones((10, 64)), 10, 2000.0, Machine)
    assert found["operations_per_example"] == 3 * 2 * 64 * 100
    assert found["share"] == pytest.approx(3 * 2 * 64 * 100 * 2000 / 2e9)
    said = words.used({"arithmetic": found})
    assert said == "76.8 MFLOP/s in training, 4 % of the 2 GFLOP/s that a matrix product reaches here"
    assert arithmetic(keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4)]), tf.ones((2, 5, 3)), 2, 10.0, Machine) is None


def test_shares_of_time():
    assert words.shares({"step": 0.621, "setup": 0.3, "input": 0.001}) == "step 62 %, setup 30 %"
