"""Layers whose draws in training depend on how the batch is divided: those that do not draw with Keras' functions."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from pipelines.data.draws import Draws, by_example

_DRAWS = re.compile(r"(Stateless|Stateful)?(Random(?!Get)|StandardNormal|TruncatedNormal|ParameterizedTruncatedNormal|Uniform|Multinomial"
                    r"|Binomial|Shuffle|NonDeterministicInts)")


def other_draws(model: keras.Model, inputs_of: Callable[[Any], Any], examples: Any) -> list[str]:
    """Names of a model's layers whose draws in training are not by example, from a trace on symbols (nothing is computed).

    Args:
        inputs_of: examples -> inputs of the model; in graph.
        examples: tf.TensorSpec or a structure of them, [batch, ...].
    """
    def trained(examples: Any) -> Any:
        weights, state = ([tf.zeros(one.shape, one.dtype) for one in group] for group in (model.trainable_variables,
                                                                                        model.non_trainable_variables))
        inputs = inputs_of(examples)
        with by_example(Draws(tf.zeros([2], tf.int32), tf.range(tf.nest.flatten(inputs)[0].shape[0]))), _in_scopes(model):
            return model.stateless_call(weights, state, inputs, training=True)[0]

    graph = tf.function(trained, autograph=False).get_concrete_function(examples).graph
    functions = {one.signature.name for one in graph.as_graph_def().library.function if any(_DRAWS.match(node.op) for node in one.node_def)}
    layers = {layer.name for layer in model._flatten_layers()}
    found: dict[str, None] = {}
    for operation in graph.get_operations():
        called = operation.get_attr("f").name if "f" in operation.node_def.attr else ""
        if _DRAWS.match(operation.type) or called in functions:
            inner = [scope for scope in operation.name.split("/") if scope in layers]
            found[inner[-1] if inner else model.name] = None
    return list(found)


@contextlib.contextmanager
def _in_scopes(model: keras.Model) -> Iterator[None]:
    """While a model is traced within, its layers' operations bear their names."""
    def scoped(layer: keras.layers.Layer, call: Callable) -> Callable:
        @functools.wraps(call)
        def called(*arguments: Any, **options: Any) -> Any:
            with tf.name_scope(layer.name):
                return call(*arguments, **options)

        return called

    layers = [(layer, vars(layer).get("call")) for layer in model._flatten_layers()]
    try:
        for layer, _ in layers:
            layer.call = scoped(layer, layer.call)
        yield
    finally:
        for layer, own in layers:
            if own is None:
                del layer.call
            else:
                layer.call = own
