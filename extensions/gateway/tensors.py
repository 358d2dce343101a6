"""Between what the tensor protocols carry and what a model takes and gives: rows in, one array for each output back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.serving.http.bodies import Refused
from pipelines.serving.output import Prediction
from pipelines.task.form import ending
from pipelines.task.requests import decoded, raw_example

if TYPE_CHECKING:
    import tensorflow as tf

    from pipelines.serving.answerer import Answerer

Specs = Mapping[str, "tf.TensorSpec"]


def row_of(value: Any, specs: Specs) -> dict[str, Any] | DataError:
    """A raw example from a JSON value: an object with a value of each input, or of a single input its value; {"b64": ...} is bytes."""
    value = decoded(value)
    if isinstance(value, DataError):
        return value
    try:
        return raw_example(value, specs)
    except DataError as error:
        return error
    except (RecursionError, ValueError, TypeError, OverflowError) as error:
        return DataError(f"cannot be read ({type(error).__name__})")


def rows_of(columns: Mapping[str, np.ndarray], specs: Specs) -> list[dict[str, Any]]:
    """The raw examples of tensors [batch, ...] of the kinds in `specs`. Raises Refused."""
    if set(columns) != set(specs):
        raise Refused(f"the model takes {', '.join(specs)}; the request has {', '.join(columns) or 'no inputs'}")
    counts = {len(column) if column.ndim else 0 for column in columns.values()}
    if len(counts) != 1 or not min(counts):
        raise Refused("each input needs the same number of examples, at least one, as its first dimension")
    for name, column in columns.items():
        wanted = list(specs[name].shape)
        if len(wanted) != column.ndim or any(size is not None and size != there for size, there in zip(wanted, column.shape)):
            raise Refused(f"{name}: has the shape {list(column.shape)}; {sizes(specs[name])} is asked for (-1: any)")
    return [{name: column[row] for name, column in columns.items()} for row in range(counts.pop())]


def columns_of(predictions: Sequence[Prediction], specs: Specs) -> dict[str, np.ndarray]:
    """Each output as an array [batch, ...]; where rows differ in length, shorter ones are padded with zeros or empty strings.

    Strings are bytes. Raises Refused where an input has an error: these protocols answer all inputs of a request, or none.
    """
    for one in predictions:
        if one.error is not None:
            raise Refused(f"{one.name}: {one.error}")
    return {name: _column([one.values[name] for one in predictions], is_text(spec), spec.dtype.as_numpy_dtype)
            for name, spec in specs.items()}


def as_texts(column: np.ndarray, model: "Answerer", name: str) -> Any:
    """The strings [batch, ...] of an output, bytes, as lists of what JSON has: text; or bytes where the output is of files, or one that
    is no text is among them."""
    def listed(value: Any, text: bool) -> Any:
        return [listed(each, text) for each in value] if isinstance(value, list) else value.decode() if text else value

    if ending(model.kinds.get(name)) is None and not name.endswith("_bytes"):  # as TensorFlow Serving has it
        with suppress(UnicodeDecodeError):
            return listed(column.tolist(), True)
    return listed(column.tolist(), False)


def _column(values: list[Any], text: bool, kind: Any) -> np.ndarray:
    rows = [np.vectorize(_bytes, otypes=[object])(np.asarray(value, object)) if text else np.asarray(value, kind) for value in values]
    if len({row.shape for row in rows}) > 1:
        shape = np.max([row.shape for row in rows], axis=0)
        filler: Any = b"" if text else 0
        rows = [np.pad(row, [(0, full - there) for full, there in zip(shape, row.shape)], constant_values=filler) for row in rows]
    return np.stack(rows)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def is_text(spec: "tf.TensorSpec") -> bool:
    return spec.dtype.name == "string"


def sizes(spec: "tf.TensorSpec") -> list[int]:
    """A shape as the protocols write it: -1 where any size will do."""
    return [-1 if size is None else size for size in spec.shape]
