"""What `Run.predict` is given, as inputs that a task reads: files, arrays, recordings, texts, ids, rows of a table."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.arrays import to_uint8
from pipelines.data.memory import Recordings, arrow, is_table, write_png
from pipelines.task.contract import Read, Task


def read(task: Task, inputs: Any) -> Iterator[Read]:
    """(name, raw example or why there is none, columns of its row if it came from a table) of each input, in order.

    Raises:
        DataError: inputs of no kind that is understood.
    """
    if isinstance(inputs, Recordings):
        for number, samples in enumerate(inputs.samples):
            yield _taken(task, str(number), _wav(np.asarray(samples), inputs.rate))
    elif is_table(inputs) and not isinstance(inputs, Mapping):
        for number, row in enumerate(rows(inputs)):
            yield (*_taken(task, str(number), row), row)
    elif isinstance(inputs, np.ndarray) and inputs.ndim > 1:
        for number, image in enumerate(_pixels(inputs)):
            yield _taken(task, str(number), _png(image))
    else:
        alone = isinstance(inputs, (str, bytes, Path, Mapping)) or np.ndim(inputs) == 0
        if isinstance(inputs, (list, tuple)) and inputs and all(_is_file(task, one) for one in inputs):
            yield from task.input.requests.read([str(one) for one in inputs])  # some tasks answer files together
            return
        for number, one in enumerate([inputs] if alone else inputs):
            yield from _one(task, number, one)


def rows(table: Any) -> list[dict[str, Any]]:
    """Those of a data frame whose columns hold several kinds of values as well."""
    try:
        rows: list[dict[str, Any]] = arrow(table).to_pylist()
    except DataError:
        if not hasattr(table, "iloc"):
            raise
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


def _is_file(task: Task, one: Any) -> bool:
    return isinstance(one, Path) or (isinstance(one, str) and task.input.requests.takes_files)


def _one(task: Task, number: int, one: Any) -> Iterator[Read]:
    if _is_file(task, one):
        yield from task.input.requests.read([str(one)])
    elif isinstance(one, np.ndarray) and one.ndim > 1:
        yield _taken(task, str(number), _png(_pixels(one[None])[0]))
    elif isinstance(one, Mapping):
        row, shown = dict(one), {name: value for name, value in one.items() if not isinstance(value, bytes)}
        taken = _taken(task, str(number), row)
        yield (*taken, shown) if shown else taken  # the bytes of files are not said again
    else:
        value = one.item() if isinstance(one, np.generic) else one
        yield _taken(task, str(number) if isinstance(value, bytes) else str(value), value)


def _taken(task: Task, name: str, sent: Any) -> tuple[str, dict[str, Any] | Exception]:
    try:
        return name, task.input.requests.take(sent)
    except DataError as error:
        return name, error


def _pixels(images: np.ndarray) -> np.ndarray:
    """Images as training reads them: uint8 [n, height, width, channels]."""
    return to_uint8(images, "the array of images")[0]


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    write_png(file, image)
    return file.getvalue()


def _wav(samples: np.ndarray, rate: int) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, int(rate), format="WAV", subtype="PCM_16" if samples.dtype == np.int16 else "FLOAT")
    return file.getvalue()
