"""Inference with weights that no longer change, as constants of the graph.

On CPUs oneDNN then lays a kernel out once, not at every call, casts to the run's precision are computed once, and more operations become
one: MiniLM-L6 in bfloat16 takes half of the time. The numbers are the same but for rounding.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

MOST = 1 << 29  # bytes of constants: a graph holds 2 GiB at most, and its optimizer copies it


def constant(model: keras.Model, devices: tuple[str, ...]) -> Callable[[Any], Any]:
    """The model's outputs for its inputs in inference, with the weights of now; traced once, on CPUs they stay what they are."""
    tables = _tables(model)
    size = sum(variable.numpy().nbytes for variable in model.variables if id(variable) not in tables)
    if devices[0].startswith("GPU") or size > MOST:
        return lambda inputs: model(inputs, training=False)
    values = [[tf.convert_to_tensor(variable.value) if id(variable) in tables else variable.numpy() for variable in some]
              for some in (model.trainable_variables, model.non_trainable_variables)]

    def outputs(inputs: Any) -> Any:
        weights, state = ([tf.constant(value) if isinstance(value, np.ndarray) else value for value in some] for some in values)
        return model.stateless_call(weights, state, inputs, training=False)[0]

    return outputs


def _tables(model: keras.Model) -> set[int]:
    """ids of tables of which rows are looked up as they are stored: an embedding's, and what a layer calls `looked_up`. As constants they
    would gain nothing, and the graph's optimizer would take longer over MiniLM's one table than over all of its layers."""
    found: set[int] = set()
    for layer in model._flatten_layers():
        found.update(id(table) for table in getattr(layer, "looked_up", ()))
        table = layer.embeddings if isinstance(layer, keras.layers.Embedding) else None
        if isinstance(table, keras.Variable) and (layer.compute_dtype == layer.variable_dtype or not table._autocast):
            found.add(id(table))
    return found
