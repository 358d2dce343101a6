"""A task of somebody's own, in six definitions: a number for each row of four, from arrays."""

from typing import Literal

import keras
import numpy as np
import tensorflow as tf

import quartet


class Regression(quartet.Experiment):
    """A number for each row of numbers."""

    task: Literal["mine.regression"]
    rows: int = quartet.setting(400, "rows that are drawn", unit="examples", ge=20)
    hidden: int = quartet.setting(16, "units of the hidden layer", ge=1)


class Rows(quartet.Input):
    experiment: Regression

    def splits(self) -> quartet.Splits:
        x = np.random.default_rng(0).normal(size=(self.experiment.rows, 4)).astype("float32")
        return self.divided(quartet.ArraySource({"x": x, "y": x @ np.float32([1, -2, 3, 0]) + 5}), "the rows")

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"x": tf.TensorSpec([None, 4], tf.float32)}


class Sum(quartet.Output):
    watch = ("absolute_error", "min")

    def loss(self, outputs, targets, training):
        return tf.square(outputs[:, 0] - targets)

    def scores(self, outputs, targets):
        return {"absolute_error": tf.abs(outputs[:, 0] - targets)}


@quartet.register_task(Regression)
class RegressionTask(quartet.Task):
    input_class, output_class = Rows, Sum
    experiment: Regression

    def model(self) -> keras.Model:
        layers = [keras.Input((4,)), keras.layers.Dense(self.experiment.hidden, "relu"), keras.layers.Dense(1, dtype="float32")]
        return keras.Sequential(layers)
