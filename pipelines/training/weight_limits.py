"""What weights may be: no more than memory, or the file that they are read from, holds, and numbers. Checked before they are created,
and when they are read."""

import contextlib
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import keras
import tensorflow as tf

from pipelines.base import formatting
from pipelines.base.errors import ConfigError
from pipelines.base.storage import readable
from pipelines.machine import memory
from pipelines.training.embedding_tables import all_variables

MOST_VARIABLES = 50_000  # of a model; a setting that asks for more layers would build them for hours
# a model may be built with more than its file holds, such as a decoder beside the encoder that is used: so many bytes and times that
_ASIDE, _TIMES = 256 << 20, 8


@contextlib.contextmanager
def bounded(what: str, stored: int | None = None) -> Iterator[None]:
    """Inside, no Keras variable is created that memory does not hold, together with those created before it.

    Args:
        what: is being built, for the message.
        stored: bytes of weights in the file that the model is filled from, which bound it, too.

    Raises:
        ConfigError: at the first that is too much, before it takes any memory.
    """
    limit, total, count = memory.free(), 0, 0
    most = math.inf if stored is None else _ASIDE + _TIMES * stored
    make = keras.Variable.__init__

    def counted(self: keras.Variable, initializer: object, shape: tuple[int, ...] | None = None, dtype: str | None = None,
                *further: object, **options: object) -> None:
        nonlocal total, count
        if shape is not None and (callable(initializer) or isinstance(initializer, str)):  # else the values are there already
            size = math.prod(max(0, int(each)) for each in shape) * tf.as_dtype(dtype or keras.backend.floatx()).size
            total, count = total + size, count + 1
            if total > most:
                raise ConfigError(f"{what}: its settings ask for {formatting.size(total)} of weights or more, and its model.keras holds "
                                  f"{formatting.size(stored or 0)}; its experiment.yaml was changed, or is of another run")
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


def filled(build: Callable[[], keras.Model], file: Path, what: str) -> keras.Model:
    """Builds the model of a run and loads its numbers.

    Args:
        file: model.keras, as `read_weights` takes it.
        what: the run, for messages.

    Raises:
        ConfigError: as `bounded` and `read_weights`.
    """
    with readable(file) as plain:
        with _whole(file):
            stored = _stored(plain)
        with bounded(what, stored):
            model = build()
        _load(model, plain, file)
    return model


def read_weights(model: keras.Model, file: Path) -> None:
    """Loads a model.keras file's numbers into a model of the same experiment; no code of the file is executed.

    Raises:
        Closed: it has the form of a storage that cannot be read here.
        ConfigError: it holds other weights, or such as are no finite numbers.
    """
    with readable(file) as plain:
        with _whole(file):
            _stored(plain)
        _load(model, plain, file)


def _load(model: keras.Model, plain: Path, file: Path) -> None:
    with _whole(file), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*freshly-initialized weights")  # Keras would keep layers without stored weights
        model.load_weights(plain)
    wrong = not_finite(all_variables(model))
    if wrong is not None:
        raise ConfigError(f"{file}: {wrong}: its answers would mean nothing; train the run anew (--fresh), at a lower "
                          "train.learning_rate.peak where the loss grew")


def _stored(file: Path) -> int:
    """Bytes of all arrays in a model.keras. Raises ValueError where they are to be more than the file holds: Keras packs none."""
    size = 0

    def add(_: str, item: object) -> None:
        nonlocal size
        if isinstance(item, h5py.Dataset):
            size += item.size * item.dtype.itemsize

    with zipfile.ZipFile(file) as archive, archive.open("model.weights.h5") as member, h5py.File(member, "r") as arrays:
        arrays.visititems(add)
    if size > file.stat().st_size:
        raise ValueError(f"its arrays are to have {formatting.size(size)}, and it has {formatting.size(file.stat().st_size)}")
    return size


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[None]:
    """What reading a damaged file raises as a ConfigError."""
    try:
        yield
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, TypeError, AttributeError, NotImplementedError, UserWarning,
            zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{file}: does not hold the weights of this experiment's model ({reason}); "
                          "the file is damaged, or of another version") from error
