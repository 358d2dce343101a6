"""Answers that are bytes, such as pictures and sounds, as files of a folder. Imports no TensorFlow."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.serving.output import Prediction
from pipelines.stores.output import OutputFolder


def to_files(predictions: Iterable[Prediction], folder: OutputFolder, endings: Mapping[str, str]) -> Iterator[Prediction]:
    """The predictions with the path of a file, `000001-mask.png` for the first input, in place of bytes; each is written whole.

    Args:
        endings: output -> the ending of its files, as a task has them; of others .bin.
    """
    def stored(value: Any, stem: str, ending: str) -> Any:
        if isinstance(value, bytes):
            folder.write(stem + ending, value)
            return f"{folder}/{stem}{ending}"
        if isinstance(value, np.ndarray) and value.dtype == object:
            places = np.empty(value.shape, object)
            places[...] = np.reshape([stored(one, f"{stem}-{place}", ending) for place, one in enumerate(value.flat, 1)], value.shape)
            return places
        return value

    for number, one in enumerate(predictions, 1):
        values = {name: stored(value, f"{number:06d}-{name}", endings.get(name, ".bin")) for name, value in one.values.items()}
        yield replace(one, values=values)
