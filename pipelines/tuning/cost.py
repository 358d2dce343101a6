"""What a setting costs beside what it scores: operations, weights or time of an answer, and the front of the score against it.

A cost is that of the model as it is built: it is known before the first step, so that what costs too much is not trained.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.base import formatting, stored
from pipelines.base.errors import QuartetError
from pipelines.base.files import write_json
from pipelines.config.schema import Cost
from pipelines.monitoring.arithmetic import forward_operations
from pipelines.training.embedding_tables import all_variables
from pipelines.training.loop import Hook, Loop
from pipelines.tuning.front import UNITS

if TYPE_CHECKING:
    import keras

EXAMPLES = 16  # training examples that operations are counted of, padded together
CALLS, SECONDS = 200, 1.0  # of timing, at most


class Kept(stored.Record):
    """The file of a trial's cost."""

    cost: float


class TooCostly(QuartetError):
    """A setting whose model costs more than the search allows."""


class CostOfModel(Hook):
    """Measures the model before it trains, once: a trial that is resumed keeps its figure.

    Args:
        file: where that is kept.

    Raises:
        TooCostly: it is over the limit; nothing is trained.
    """

    def __init__(self, cost: Cost, file: Path):
        self.cost, self.file = cost, file

    def on_start(self, loop: Loop) -> None:
        step = loop.run_steps
        if not self.file.exists():
            _, examples = step.feed.sample(0, min(EXAMPLES, step.plan.micro))
            inputs, _ = step.task.prepare(examples)
            write_json(self.file, {"cost": measured(self.cost.measure, step.model, inputs)})
        value, limit = kept(self.file)["cost"], self.cost.limit
        if limit is not None and value > limit:
            raise TooCostly(f"{formatting.number(value)} {UNITS[self.cost.measure]}, and tune.cost.limit is {formatting.number(limit)}")


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


def kept(file: Path) -> dict[str, float]:
    """{"cost": ...} of a trial that measured its model; else empty."""
    return stored.read(file, Kept).model_dump() if file.exists() else {}
