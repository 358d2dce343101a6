"""What a setting costs beside what it scores: operations, weights or time of an answer, and the front of the score against it.

A cost is that of the model as it is built: it is known before the first step, so that what costs too much is not trained.
"""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.base import formatting
from pipelines.base.errors import QuartetError
from pipelines.config.schema import Cost
from pipelines.monitoring.arithmetic import forward_operations
from pipelines.training.embedding_tables import all_variables
from pipelines.training.loop import Hook, Loop
from pipelines.tuning.front import UNITS

if TYPE_CHECKING:
    import keras

EXAMPLES = 16  # training examples that operations are counted of, padded together
CALLS, SECONDS = 200, 1.0  # of timing, at most


class TooCostly(QuartetError):
    """A setting whose model costs more than the search allows."""


class CostOfModel(Hook):
    """Measures the model before it trains.

    Raises:
        TooCostly: it is over the limit; nothing is trained.
    """

    def __init__(self, cost: Cost):
        self.cost, self.value = cost, math.nan

    def on_start(self, loop: Loop) -> None:
        step = loop.run_steps
        _, examples = step.feed.sample(0, min(EXAMPLES, step.plan.micro))
        inputs, _ = step.task.prepare(examples)
        self.value = measured(self.cost.measure, step.model, inputs)
        if self.cost.limit is not None and self.value > self.cost.limit:
            raise TooCostly(f"{formatting.number(self.value)} {UNITS[self.cost.measure]}, and tune.cost.limit is "
                            f"{formatting.number(self.cost.limit)}")


def measured(measure: str, model: "keras.Model", inputs: Any) -> float:
    """A model's cost.

    Args:
        measure: operations (multiplications and additions of an example), parameters, size (bytes of the weights) or latency (ms of one
            example, the median).
        inputs: examples as the model takes them.

    Raises:
        QuartetError: its operations cannot be counted.
    """
    if measure == "operations":
        whole = forward_operations(model, inputs)
        if whole is None:
            raise QuartetError("tune.cost.measure: operations cannot be counted of a model with loops (recurrent layers); take parameters "
                               "or latency")
        return whole / int(tf.nest.flatten(inputs)[0].shape[0])
    if measure == "latency":
        return _latency(model, tf.nest.map_structure(lambda each: each[:1], inputs))
    variables = [one for one in all_variables(model) if "seed_generator" not in one.path]
    counts = [int(np.prod(one.shape)) for one in variables]
    if measure == "parameters":
        return float(sum(counts))
    return float(sum(count * tf.as_dtype(one.dtype).size for count, one in zip(counts, variables)))


def _latency(model: "keras.Model", one: Any) -> float:
    call = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    tf.nest.map_structure(lambda each: each.numpy(), call(one))
    times: list[float] = []
    while len(times) < CALLS and sum(times) < SECONDS:
        began = time.perf_counter()
        tf.nest.map_structure(lambda each: each.numpy(), call(one))
        times.append(time.perf_counter() - began)
    return 1000.0 * float(np.median(times))


def of_hooks(hooks: Sequence[Hook]) -> dict[str, float]:
    """{"cost": ...} of a trial whose cost was measured; else empty."""
    values = [hook.value for hook in hooks if isinstance(hook, CostOfModel) and math.isfinite(hook.value)]
    return {"cost": values[0]} if values else {}
