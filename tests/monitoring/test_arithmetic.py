"""The count of a model's arithmetic, the measured matrix product, and what is said of both."""

import json

import keras
import pytest
import tensorflow as tf

from pipelines.base import formatting
from pipelines.monitoring.arithmetic import arithmetic, forward_operations, matrix_rate


def dense(*units: int) -> keras.Model:
    return keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(count, use_bias=False) for count in units)])


def test_dense_and_convolution_are_counted_as_multiplications_and_additions():
    assert forward_operations(dense(128, 10), tf.ones((32, 64))) == 2 * 32 * (64 * 128 + 128 * 10)
    convolution = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(16, 3, padding="same", use_bias=False)])
    assert forward_operations(convolution, tf.ones((4, 8, 8, 3))) == 2 * 4 * 8 * 8 * 16 * 27


def test_a_recurrent_model_is_not_counted():
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.GRU(4)])
    assert forward_operations(model, tf.ones((2, 5, 3))) is None


def test_a_model_whose_products_are_as_large_as_values_say_is_not_counted(capfd):
    class Filled(keras.layers.Layer):
        def call(self, inputs):
            return tf.boolean_mask(inputs, inputs[:, 0] > 0.0)

    model = keras.Sequential([keras.Input((64,)), Filled(), keras.layers.Dense(10)])
    assert forward_operations(model, tf.ones((32, 64))) is None
    assert "incomplete shapes" not in capfd.readouterr().err


def test_the_best_of_the_first_measurements_is_kept(tmp_path, monkeypatch):
    file, measured = tmp_path / "matrix-product.json", iter([2e9, 1e9, 5e9, 3e9, 4e9])  # the first two on a busy machine
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.monitoring.arithmetic._measure", lambda device, precision: next(measured))
        assert [matrix_rate("CPU:0", "float32", cache=file) for _ in range(7)] == [2e9, 2e9, 5e9, 5e9, 5e9, 5e9, 5e9]
    (key, kept), = json.loads(file.read_text()).items()
    assert kept == {"rate": 5e9, "times": 5} and "float32" in key
    for damaged in ("damaged", json.dumps({key: 5.0})):  # the second as it was kept before
        file.write_text(damaged)
        assert matrix_rate("CPU:0", "float32", cache=file) > 1e8


def test_another_number_of_threads_is_measured_by_itself(tmp_path, monkeypatch):
    file = tmp_path / "matrix-product.json"
    monkeypatch.setattr("pipelines.monitoring.arithmetic._measure", lambda device, precision: 1e9)
    for threads in ("1", "2", None):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", threads) if threads else monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
        matrix_rate("CPU:0", "float32", cache=file)
    assert len(json.loads(file.read_text())) == 3


def test_what_a_run_reaches(tmp_path, monkeypatch):
    class Machine:
        precision, working = "float32", ("CPU:0", "CPU:1")

    monkeypatch.setattr("pipelines.monitoring.arithmetic.matrix_rate", lambda device, precision: 1e9)
    found = arithmetic(dense(100), tf.ones((10, 64)), 10, 2000.0, Machine)
    assert found["operations_per_example"] == 3 * 2 * 64 * 100
    assert found["share"] == pytest.approx(3 * 2 * 64 * 100 * 2000 / 2e9)
    said = formatting.used({"arithmetic": found})
    assert said == "76.8 MFLOP/s in training, 4 % of the 2 GFLOP/s that a matrix product reaches here"
    assert arithmetic(keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4)]), tf.ones((2, 5, 3)), 2, 10.0, Machine) is None


def test_shares_of_time():
    assert formatting.shares({"step": 0.621, "setup": 0.3, "input": 0.001}) == "step 62 %, setup 30 %"
