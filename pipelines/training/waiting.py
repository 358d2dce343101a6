"""The next batch of an iterator, and the time for which the device waited for it."""

import time
from typing import Any

import tensorflow as tf

from pipelines.data.input import Feed


def fetched(feed: Feed, iterator: Any, strategy: tf.distribute.Strategy, *, deterministic: bool) -> tuple[Any, tf.Tensor]:
    """(each replica's part of the next batch, None where the device holds the examples; seconds waited, float64); in graph."""
    if feed.on_device:
        return None, tf.zeros([], tf.float64)
    # nothing else orders a clock and an iterator within a graph
    asked = _now(deterministic)
    with tf.control_dependencies([asked]):
        examples = next(iterator)
    with tf.control_dependencies(tf.nest.flatten(tf.nest.map_structure(strategy.experimental_local_results, examples))):
        return examples, _now(deterministic) - asked


def _now(deterministic: bool) -> tf.Tensor:
    """Seconds, float64, in graph. TensorFlow's own clock cannot be read with determinism on."""
    if deterministic:
        return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])
    return tf.timestamp()
