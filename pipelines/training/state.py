"""The state of a run, written whole: everything that the next step depends on.

A checkpoint is one .npz without pickled objects: weights, optimizer values, averages, the step's carry, and the
JSON of every hook. It is written beside its target and renamed, so that a kill leaves the old one or the new.
"""

import contextlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipelines.data.reasons import reason
from pipelines.errors import TrainingError
from pipelines.files import finite, write_whole


def save(path: Path, groups: dict[str, list[keras.Variable]], carry: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Writes a checkpoint.

    Args:
        path: the file.
        groups: group name -> variables, saved in their order.
        carry: named small arrays.
        about: JSON values: step, hooks' state, ...

    Raises:
        OSError: the disk is full or gone; the file before is still whole.
    """
    arrays = {
        f"{group}/{number:04d}": np.asarray(variable.value)
        for group, variables in groups.items()
        for number, variable in enumerate(variables)
    }
    arrays.update({f"carry/{name}": value for name, value in carry.items()})
    arrays["about"] = np.frombuffer(json.dumps(finite(about)).encode(), np.uint8)
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def load(path: Path, groups: dict[str, list[keras.Variable]]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Puts a checkpoint's values into the variables; returns (carry, about).

    Raises:
        TrainingError: the file is damaged, or belongs to another model.
    """
    with _opened(path) as stored:
        values = dict(stored)
        about = json.loads(values["about"].tobytes())
    for group, variables in groups.items():
        count = sum(name.startswith(f"{group}/") for name in values)
        if count != len(variables):
            raise TrainingError(f"{path}: holds {count} values of {group}, this model has {len(variables)}; start anew with --fresh")
        for number, variable in enumerate(variables):
            value = values[f"{group}/{number:04d}"]
            if value.shape != tuple(variable.shape):
                raise TrainingError(
                    f"{path}: {variable.path} is {list(value.shape)} there and {list(variable.shape)} here; start anew with --fresh"
                )
            variable.assign(value)
    carry = {name.partition("/")[2]: value for name, value in values.items() if name.startswith("carry/")}
    return carry, about


def peek(path: Path) -> dict[str, Any]:
    """The JSON of a checkpoint, without its arrays.

    Raises:
        TrainingError: the file is damaged.
    """
    with _opened(path) as stored:
        return json.loads(stored["about"].tobytes())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            yield stored
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise TrainingError(f"{path}: not a readable checkpoint ({reason(error)}); start anew with --fresh") from error
