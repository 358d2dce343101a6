"""Answers that are bytes, such as pictures and sounds, as files of a folder. Imports no TensorFlow."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.serving.output import Prediction
from pipelines.stores.remote import OutputFolder
from pipelines.task.form import ending


def to_files(predictions: Iterable[Prediction], folder: OutputFolder, kinds: Mapping[str, str]) -> Iterator[Prediction]:
    """The predictions with the path of a file, `000001-mask.png` for the first input, in place of bytes; each is written whole.

    Args:
        kinds: as a task's answers have them; files of bytes of which nothing is said end in .bin.
    """
    def stored(value: Any, stem: str, suffix: str) -> Any:
        if isinstance(value, bytes):
            folder.write(stem + suffix, value)
            return f"{folder}/{stem}{suffix}"
        if isinstance(value, np.ndarray) and value.dtype == object:
            paths = np.empty(value.size, object)
            paths[:] = [stored(one, f"{stem}-{place}", suffix) for place, one in enumerate(value.flat, 1)]
            return paths.reshape(value.shape)
        return value

    for number, one in enumerate(predictions, 1):
        values = {name: stored(value, f"{number:06d}-{name}", ending(kinds.get(name)) or ".bin") for name, value in one.values.items()}
        yield replace(one, values=values)
