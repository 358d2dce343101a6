"""A layer whose draws depend on the number of devices is named when a training begins."""

from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from pipelines.runs.run_display import _say_what_depends_on_devices
from pipelines.task.contract import Learning

layers = keras.layers


class Own(layers.Layer):
    def __init__(self, draw, name):
        super().__init__(name=name)
        self.draw, self.seeds = draw, keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        return x + self.draw(x, self.seeds) if training else x


INSIDE = tf.function(lambda x, _: tf.random.normal(tf.shape(x)))
DRAWS = {"plain": lambda x, _: tf.random.uniform(tf.shape(x)), "keras": lambda x, seed: keras.random.gamma(tf.shape(x), 1.0, seed=seed),
         "inside": INSIDE}


def said(*own, micro=None, mixes=None):
    model = keras.Sequential([keras.Input((6, 4)), layers.Dropout(0.1), *own, layers.GaussianNoise(0.1)])
    task = SimpleNamespace(output=SimpleNamespace(learning=Learning(mixes=mixes)), prepare=lambda examples: (examples["x"], None))
    lines = []
    _say_what_depends_on_devices(SimpleNamespace(
        learner=SimpleNamespace(model=model, task=task), plan=SimpleNamespace(micro=8, batch=32), machine=SimpleNamespace(replicas=4),
        step=SimpleNamespace(train=SimpleNamespace(micro_batch_size=micro)), feed=SimpleNamespace(spec={"x": tf.TensorSpec([6, 4])}),
    ), lines.append)
    return lines


@pytest.mark.parametrize("name", DRAWS)
def test_a_layer_that_draws_by_itself_is_named(name):
    line, = said(Own(DRAWS[name], "mine"))
    assert line.startswith("what mine draws in training depends on the number of devices")


def test_what_is_the_same_on_any_number_of_devices_is_not_remarked_on():
    assert said() == []
    assert said(layers.BatchNormalization(), micro=8, mixes="The softmax") == []
    assert said(layers.BatchNormalization(), mixes="The softmax")[0].startswith("BatchNormalization and The softmax see the 8 examples")
