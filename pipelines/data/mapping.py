"""tf.data's map, in order and with functions as they are written."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any], workers: int | None = None) -> tf.data.Dataset:
    """The results of `function`, in the order of the dataset; `workers` calls at once, or one after another.

    AutoGraph is left out: rewriting a function and all that it calls takes up to a second of a run's start, and nothing here branches on
    a tensor by Python's own `if`.
    """
    function = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(function, num_parallel_calls=workers, deterministic=None if workers is None else True)
