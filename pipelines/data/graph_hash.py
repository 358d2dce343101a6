"""What a function computes, as a hash: the key of a cache of its results, the same in every process."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_NAMES_ONLY = ("_class", "shared_name", "_gradient_op_type", "_user_specified_name")  # attributes that hold names alone


def graph_hash(traced: Any) -> str:
    """Hash of a concrete function: its operations and the tensors that it holds, but not the values of variables.

    Operations, layers and functions are numbered in the order of their creation, in all of the process: names do not count.
    """
    graph = traced.graph.as_graph_def()
    functions = {function.signature.name for function in graph.library.function}
    parts = ["\n".join(_lines(graph.node, (), functions))]
    parts += sorted("\n".join(_lines(function.node_def, [one.name for one in function.signature.input_arg], functions))
                    for function in graph.library.function)
    values = [hashlib.sha256(value.numpy().tobytes()).hexdigest() for value in traced.captured_inputs
              if isinstance(value, tf.Tensor) and value.dtype not in (tf.resource, tf.variant, tf.string)]
    return hashlib.sha256("\n".join([*parts, *values, tf.__version__]).encode()).hexdigest()


def _lines(nodes: Any, arguments: Iterable[str], functions: set[str]) -> Iterator[str]:
    """A line for each operation; inputs by their place."""
    places = {name: f"argument {number}" for number, name in enumerate(arguments)}
    places |= {node.name: f"node {number}" for number, node in enumerate(nodes)}

    def place(name: str) -> str:
        producer, *output = name.removeprefix("^").split(":")
        return ":".join([places.get(producer, producer), *output])

    def unnumbered(value: Any) -> str:
        return re.sub(r'"([^"]+)_\d+"', lambda match: f'"{match[1]}"' if match[0].strip('"') in functions else match[0], str(value))

    for node in nodes:
        values = [f"{name}={unnumbered(node.attr[name])}" for name in sorted(node.attr) if name not in _NAMES_ONLY]
        yield " ".join([node.op, *map(place, node.input), *values])
