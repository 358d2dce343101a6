"""What weights may be: no more than memory holds, and numbers. Checked before they are created, and when they are read."""

import contextlib
import math
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import keras
import tensorflow as tf

from pipelines.base import formatting
from pipelines.base.encryption import readable
from pipelines.base.errors import ConfigError
from pipelines.machine import memory
from pipelines.training.embedding_tables import all_variables

MOST_VARIABLES = 50_000  # of a model; a setting that asks for more layers would build them for hours


@contextlib.contextmanager
def bounded(what: str) -> Iterator[None]:
    """Inside, no Keras variable is created that memory does not hold, together with those created before it.

    Args:
        what: is being built, for the message.

    Raises:
        ConfigError: at the first that is too much, before it takes any memory.
    """
    limit, total, count = memory.free(), 0, 0
    make = keras.Variable.__init__

    def counted(self: keras.Variable, initializer: object, shape: tuple[int, ...] | None = None, dtype: str | None = None,
                *further: object, **options: object) -> None:
        nonlocal total, count
        if shape is not None and (callable(initializer) or isinstance(initializer, str)):  # else the values are there already
            size = math.prod(max(0, int(each)) for each in shape) * tf.as_dtype(dtype or keras.backend.floatx()).size
            total, count = total + size, count + 1
            if total > limit or count > MOST_VARIABLES:
                name = options.get("name") or "a variable"
                asked = (f"{formatting.size(total)} of weights and {formatting.size(limit)} of memory are free" if total > limit else
                         f"over {MOST_VARIABLES:,} variables")
                raise ConfigError(f"{what}: too large for this machine: {asked}, at {name} of {list(shape)} ({formatting.size(size)}); "
                                  "set a smaller model (its width, depth, vocabulary, or the size of its input)")
        make(self, initializer, shape, dtype, *further, **options)  # type: ignore[arg-type]

    keras.Variable.__init__ = counted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        keras.Variable.__init__ = make  # type: ignore[method-assign]


def not_finite(variables: list[keras.Variable]) -> str | None:
    """The first weight that holds what is no finite number, and how much of it; None where all are finite."""
    for variable in variables:
        value = tf.convert_to_tensor(variable.value)
        if not value.dtype.is_floating:
            continue
        wrong = int(tf.math.count_nonzero(~tf.math.is_finite(value)))
        if wrong:
            return f"{variable.path} has {wrong:,} of {int(tf.size(value)):,} values that are no finite numbers"
    return None


def read_weights(model: keras.Model, file: Path) -> None:
    """Loads a model.keras file's numbers into a model of the same experiment; no code of the file is executed.

    Raises:
        Encrypted: it is encrypted, and the key is missing.
        ConfigError: it holds other weights, or such as are no finite numbers.
    """
    try:
        with readable(file) as plain, warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*freshly-initialized weights")  # Keras would keep layers without stored weights
            model.load_weights(plain)
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, TypeError, AttributeError, UserWarning, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{file}: does not hold the weights of this experiment's model ({reason}); "
                          "the file is damaged, or of another version") from error
    wrong = not_finite(all_variables(model))
    if wrong is not None:
        raise ConfigError(f"{file}: {wrong}: its answers would mean nothing; train the run anew (--fresh), at a lower "
                          "train.learning_rate.peak where the loss grew")
