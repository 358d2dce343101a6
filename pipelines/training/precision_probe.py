"""Which precision suits a network on this CPU: one with depthwise convolutions is timed itself.

That bfloat16 is faster is found by a plain convolution (pipelines.machine.precision). Depthwise ones have other kernels: of 5 x 5 they take
seventeen times as long in bfloat16 on processors whose plain ones take a third.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from pipelines.task.contract import Task

BATCH = 8  # examples in a step that is timed
FREE = 4  # units of length, of examples of no fixed length
TURNS = 3
DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D, keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)


def depthwise(model: keras.Model) -> bool:
    """Whether the network has such convolutions."""
    return any(isinstance(layer, DEPTHWISE) for layer in model._flatten_layers())


def gain(task: Task, first: keras.Model, second: keras.Model, spec: Mapping[str, tf.TensorSpec], batch: int) -> float:
    """How many times as fast as `second` the network `first` is in a training step, forward and backward, on examples of zeros.

    The two take turns and the best of each counts, so that other work on the machine does not decide.

    Args:
        spec: name -> spec of one decoded example.
        batch: examples of a step in training.
    """
    examples = _zeros(task, spec, min(batch, BATCH))
    runs = [_step(task, model, examples) for model in (first, second)]
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for number, run in enumerate(runs):
            began = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - began)
    return best[1] / best[0]


def _zeros(task: Task, spec: Mapping[str, tf.TensorSpec], batch: int) -> dict[str, tf.Tensor]:
    rule = task.input.lengths
    length = FREE * rule.unit if rule else 0
    shapes = {name: [batch, *(length if size is None else size for size in one.shape)] for name, one in spec.items()}
    return {name: tf.fill(shape, tf.cast(length, spec[name].dtype)) if rule and name == rule.entry else tf.zeros(shape, spec[name].dtype)
            for name, shape in shapes.items()}


def _step(task: Task, model: keras.Model, examples: Mapping[str, tf.Tensor]) -> Callable[[], Any]:
    """A compiled training step that changes nothing."""
    @tf.function(autograph=False)
    def run() -> Any:
        inputs, _ = task.prepare(dict(examples))
        weights = [tf.convert_to_tensor(weight) for weight in model.trainable_variables]
        still = [tf.convert_to_tensor(weight) for weight in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, _ = model.stateless_call(weights, still, inputs, training=True)
            total = tf.add_n([tf.reduce_sum(tf.cast(one, tf.float32)) for one in tf.nest.flatten(outputs)])
        slopes = tape.gradient(total, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return tf.add_n([total, *(tf.reduce_sum(tf.cast(slope, tf.float32)) for slope in slopes)])

    run()
    return run
