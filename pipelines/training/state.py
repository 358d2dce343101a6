"""The state of a run, written whole: everything that the next step depends on.

A checkpoint is one .npz without pickled objects: weights, optimizer values, averages, the step's carry, and the
JSON of every hook; what stands still is in another one that it names (`still`). It is written beside its target and renamed, so that a
kill leaves the old one or the new.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import keras
import numpy as np
from pydantic import Field

from pipelines.base import npz
from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import finite, write_whole
from pipelines.base.stored import Count, Name, Record, Schema, Text
from pipelines.training.still import Still, Whole, opened


class Metered(Record):
    """What the meter had counted."""

    seconds: dict[Name, Annotated[float, Field(ge=0)]]
    examples: Count
    steps: Count


class Identity(Record):
    """What must not change over the life of a run."""

    precision: Literal["float32", "bfloat16", "float16"]
    data: dict[Name, Text]
    runs: dict[Name, Text] = {}  # checksums of other runs that it needs, by the setting that names one
    fingerprints: Count = 1  # the version of those of `data` (pipelines.data.fingerprint)
    order: Count = 1  # the version of that in which streams are read (pipelines.data.stream)
    transforms: dict[Name, dict[str, Any]] = {}  # what each keeps, by its name


class About(Identity):
    """What a checkpoint says of itself."""

    step: Count
    seconds: Annotated[float, Field(ge=0)]
    stopping: Text | None
    unjudged: bool = False
    meter: Metered
    hooks: dict[Name, dict[str, Any]]


def snapshot(groups: dict[str, list[keras.Variable]], carry: dict[str, np.ndarray], about: dict[str, Any]) -> dict[str, np.ndarray]:
    """A checkpoint's arrays by name, copied to the host: training may go on while they are written.

    Args:
        groups: group name -> variables, saved in their order.
        carry: named small arrays.
        about: JSON values: step, hooks' state, ...
    """
    arrays = {
        f"{group}/{number:04d}": np.array(variable.value)
        for group, variables in groups.items()
        for number, variable in enumerate(variables)
    }
    arrays.update({f"carry/{name}": value for name, value in carry.items()})
    arrays["about"] = np.frombuffer(json.dumps(finite(about)).encode(), np.uint8)
    return arrays


def write(path: Path, arrays: dict[str, np.ndarray], still: Still, names: Sequence[str], step: int) -> None:
    """Writes a checkpoint, the result of `snapshot`; in any thread.

    Args:
        still: keeps in a file of its own what of `names` is as it was at an earlier step.
        step: of which the checkpoint is.

    Raises:
        OSError: the disk is full or gone; the file before is still whole.
    """
    rest = still.without(arrays, names, step)
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **rest))  # type: ignore[arg-type]


def load(path: Path, groups: dict[str, list[keras.Variable]], *, carry: Mapping[str, np.ndarray] | None = None,
         schema: type[Schema] = Record, accept: Callable[[Schema], None] = lambda about: None,  # type: ignore[assignment]
         still: Still | None = None) -> tuple[dict[str, np.ndarray], Schema]:
    """Puts a checkpoint's values into the variables, once all of it is known to fit; returns (carry, about).

    Args:
        carry: arrays of the types and shapes that the carry must have; others in it are returned as they are.
        schema: of what the file says about itself.
        accept: looks at that before anything is assigned; raises where it does not fit.
        still: told what the checkpoint takes from its file.

    Raises:
        TrainingError: a file is damaged, or belongs to another model.
    """
    wanted: dict[str, keras.Variable] = {
        f"{group}/{number:04d}": variable for group, variables in groups.items() for number, variable in enumerate(variables)}
    with opened(path) as stored:
        about = _about(stored, schema, accept)
        for group, variables in groups.items():
            count = sum(name.startswith(f"{group}/") for name in stored.names)
            if count != len(variables):
                raise TrainingError(f"{path}: holds {count} values of {group}, this model has {len(variables)}; start anew with --fresh")
        for name, variable in wanted.items():
            _fits(stored, name, variable.path, _dtype(variable), tuple(variable.shape))
        for name, like in (carry or {}).items():
            _fits(stored, f"carry/{name}", name, like.dtype, like.shape)
        values = {name: stored.read(name) for name in wanted}  # all are whole before the first is used
        carried = {name.partition("/")[2]: stored.read(name) for name in stored.names if name.startswith("carry/")}
        if still is not None:
            still.resumed(stored.part)
    for name, variable in wanted.items():
        variable.assign(values.pop(name))
    return carried, about


def peek(path: Path, schema: type[Schema]) -> Schema:
    """What a checkpoint says about itself, without its arrays.

    Raises:
        TrainingError: the file is damaged.
    """
    with npz.opened(path) as stored:
        return _about(stored, schema)


def _about(stored: npz.Arrays | Whole, schema: type[Schema], accept: Callable[[Schema], None] = lambda about: None) -> Schema:
    try:
        about = stored.json("about", schema)
        accept(about)
        return about
    except ConfigError as error:
        raise npz.Damaged(stored.path, str(error).removeprefix(f"{stored.path}: ")) from None


def _fits(stored: Whole, name: str, called: str, dtype: Any, shape: tuple[int, ...]) -> None:
    if name not in stored.names:
        raise TrainingError(f"{stored.path}: a checkpoint without {called}; start anew with --fresh")
    there = stored.header(name)
    if there.shape != shape:
        raise TrainingError(f"{stored.path}: {called} is {list(there.shape)} there and {list(shape)} here; start anew with --fresh")
    if there.dtype != dtype:
        raise TrainingError(f"{stored.path}: {called} is {there.dtype} there and {dtype} here; start anew with --fresh")


def _dtype(variable: keras.Variable) -> np.dtype[Any]:
    return np.dtype(keras.backend.standardize_dtype(variable.dtype))
