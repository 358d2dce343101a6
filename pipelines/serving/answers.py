"""From raw input to an answer in the user's terms: one function for prediction and for the saved model, and batches of raw examples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Tensors
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import WARNING
from pipelines.task.contract import Task

PADDED = 1 << 28  # bytes of one entry of a batch, about

def respond(run: LoadedRun, examples: Tensors) -> Tensors:
    """Examples as `Task.receive` gives them into the answer in the user's terms, with the `warning` that came with them; in graph, as
    judged."""
    own = {name: value for name, value in examples.items() if name != WARNING}
    inputs, _ = run.task.prepare(own)
    answers = run.task.output.answer(lambda batch: run.model(batch, training=False), inputs) | run.task.passed_by(own)
    answer = run.task.output.respond(answers)
    return answer | ({WARNING: examples[WARNING]} if WARNING in examples else {})


def stacked(task: Task, rows: Sequence[dict[str, Any]]) -> Tensors:
    """Raw examples, as `Task.read` gives them, as one batch: name -> [batch, ...] of the dtype in raw_spec.

    Where an entry's length is free and differs, shorter ones are padded with zeros (or empty strings) at the end.
    """
    return stacked_by(task.input.raw_spec(), rows, task.input.requests.fills)


def bounded_parts(specs: Mapping[str, tf.TensorSpec], rows: Sequence[dict[str, Any]]) -> Iterator[slice]:
    """The rows in parts, in order, so that padding to the longest of its part fills no more than PADDED: one long input then costs
    nothing to those it came with. A text or a file is taken apart into many bytes, and each string of a list is an object."""
    columns = []
    for name, spec in specs.items():
        text = spec.dtype == tf.string
        count, weight = len if text else np.size, (16 if spec.shape.rank == 1 else 256) if text else spec.dtype.size
        columns.append([weight * count(row[name]) for row in rows])
    sizes = columns[0] if len(columns) == 1 else [max(each) for each in zip(*columns)]
    start, longest = 0, 0
    for place, size in enumerate(sizes):
        if place > start and (place - start + 1) * max(longest, size) > PADDED:
            yield slice(start, place)
            start, longest = place, 0
        longest = max(longest, size)
    if start < len(rows):
        yield slice(start, len(rows))


def stacked_by(specs: Mapping[str, tf.TensorSpec], rows: Sequence[dict[str, Any]], fills: Mapping[str, Any]) -> Tensors:
    """As `stacked`, of specs by name; `fills` are what entries are padded with, where that is not zero."""
    batch = {}
    for name, spec in specs.items():
        if spec.dtype == tf.string and spec.shape.rank == 1:
            batch[name] = tf.constant([row[name] for row in rows], tf.string)
            continue
        values = [np.asarray(row[name], object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype) for row in rows]
        if len({value.shape for value in values}) > 1:
            shape = np.max([value.shape for value in values], axis=0)
            filler: Any = fills.get(name, "" if spec.dtype == tf.string else 0)
            values = [np.pad(value, [(0, full - there) for full, there in zip(shape, value.shape)], constant_values=filler)
                      for value in values]
        batch[name] = tf.constant(np.stack(values) if spec.dtype != tf.string else [value.tolist() for value in values], spec.dtype)
    return batch


def class_names(task: Task, width: int) -> list[str] | None:
    """Names of the entries of a vector of `width` probabilities, where the facts hold them."""
    classes = task.facts.get("classes")
    return [str(name) for name in classes] if isinstance(classes, list) and len(classes) == width else None
