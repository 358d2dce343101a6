"""XLA: tf.functions that know whether they are compiled, and models that cannot be."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

_FOR_XLA = contextvars.ContextVar("for_xla", default=False)


def function(pure: Callable, *, xla: bool) -> Any:
    """`pure` as a tf.function, compiled by XLA or not; while it is traced, `for_xla` says which."""

    def traced(*arguments: Any) -> Any:
        token = _FOR_XLA.set(xla)
        try:
            return pure(*arguments)
        finally:
            _FOR_XLA.reset(token)

    return tf.function(traced, jit_compile=xla, autograph=False)


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
