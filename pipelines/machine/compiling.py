"""XLA: tf.functions that know whether they are compiled, parts that are compiled by themselves, and models that cannot be;
weights that a graph takes for constants."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_FOR_XLA = contextvars.ContextVar("for_xla", default=False)
_PARTS = contextvars.ContextVar("parts", default=False)


def function(pure: Callable, *, xla: bool, parts: bool = False) -> Any:
    """`pure` as a tf.function, compiled by XLA or not; while it is traced, `for_xla` says which.

    Args:
        parts: where it is not compiled as a whole, each `part` in it is compiled by itself.
    """

    def traced(*arguments: Any) -> Any:
        tokens = _FOR_XLA.set(xla), _PARTS.set(parts and not xla)
        try:
            return pure(*arguments)
        finally:
            _FOR_XLA.reset(tokens[0])
            _PARTS.reset(tokens[1])

    return tf.function(traced, jit_compile=xla, autograph=False)


class Once:
    """A tf.function that is traced once for all who call it with tensors of the same shapes, where it is a function of these alone.

    A strategy traces a replica's functions anew in the scope of each device, though TensorFlow leaves these scopes out of the trace; so do
    the graphs of several functions that call one. What captures a variable or a tensor from around it - a replica's copy of a table - is
    traced by each.
    """

    def __init__(self, function: Any):
        self._function = function
        self._known: dict[str, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        key = repr(tf.nest.map_structure(_signature, arguments))
        if key not in self._known:
            concrete = self._function.get_concrete_function(*arguments)
            self._known[key] = self._function if concrete.captured_inputs else concrete
        return self._known[key](*arguments)


def _signature(value: Any) -> Any:
    return (value.dtype.name, value.shape) if tf.is_tensor(value) else value


def part(body: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """A function of tensors, elementwise or by rows, that a `function` with `parts` compiles: one kernel forward, one backward.

    The kernel of the gradient computes what it needs again from the inputs. Inputs that are no floating-point numbers have none.
    """

    def slopes(inputs: list[tf.Tensor], upstream: tf.Tensor) -> list[tf.Tensor]:
        learning = [one for one in inputs if one.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(learning)
            output = body(*inputs)
        found: list[tf.Tensor] = tape.gradient(output, learning, upstream)
        return found

    forward, backward = (tf.function(one, jit_compile=True, autograph=False) for one in (body, slopes))

    @tf.custom_gradient
    def compiled(*inputs: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
            found = iter(backward(list(inputs), upstream))
            return [next(found) if one.dtype.is_floating else None for one in inputs]

        return forward(*inputs), gradient

    return lambda *inputs: compiled(*inputs) if in_parts() else body(*inputs)


def in_parts() -> bool:
    """Whether each `part` of the current trace will be compiled by itself, and operations may be grouped at the price of other rounding."""
    return _PARTS.get()


def for_xla() -> bool:
    """Whether the current trace will be compiled by XLA, which lacks some of TensorFlow's operations."""
    return _FOR_XLA.get()


def obstacles(model: keras.Model) -> list[str]:
    """Names of the model's layers that XLA cannot compile, as Keras marks them: on a GPU each LSTM and GRU that cuDNN can compute."""
    return [layer.name for layer in model._flatten_layers() if not layer.supports_jit]


@contextlib.contextmanager
def without_cudnn(model: keras.Model) -> Iterator[None]:
    """Within, the model's recurrent layers are traced with operations that every device has, not with cuDNN's."""
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "use_cudnn")]
    chosen = [(layer, layer.use_cudnn, layer.supports_jit) for layer in layers]
    try:
        for layer in layers:
            layer.use_cudnn = False
        yield
    finally:
        for layer, use, supports in chosen:
            layer.use_cudnn, layer.supports_jit = use, supports


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
