"""Stored files of runs and searches: checked against a schema before anything in them is used, as an experiment is.

A run may come from a stranger, from a disk that was full, or from another version: what is wrong with a file is one ConfigError that
names the file, the field and the value. Fields that a schema does not know are kept as they are. Imports no TensorFlow.
"""

import errno
import json
import os
import stat
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.base import storage
from pipelines.base.errors import ConfigError

LARGEST = 1 << 30  # bytes of a file that is read whole
_SHOWN = 3  # problems named in one message
_DAMAGED = "the file is damaged, or was written by another version"

Number = int | float
Count = Annotated[int, Field(ge=0, le=2**53)]
Text = Annotated[str, Field(max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
# a name directly below a folder
FolderName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^./\\\x00][^/\\\x00]*$")]


class Record(BaseModel):
    """The base of stored files' schemas: types are exact, numbers finite; further fields are kept."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


Schema = TypeVar("Schema", bound=BaseModel)


class StoredMetric(Record):
    """A metric; null stands for what is not a number."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: Count | None = None
    unit: Text | None = None
    units: Count | None = None


class Judged(Record):
    """The examples that a split was judged on."""

    fingerprint: Text


class Spread(Record):
    """Of a metric over seeds."""

    mean: float | None = None
    std: Annotated[float, Field(ge=0)] | None = None
    n: Count

    @model_validator(mode="after")
    def _several(self) -> "Spread":
        if self.n > 1 and (self.mean is None or self.std is None):
            raise ValueError("mean and std are missing")
        return self


class StoredSeed(Record):
    """One of several seeds, in the report over all of them."""

    seed: Count
    run: FolderName
    metrics: dict[Name, float | None] = {}


class Arithmetic(Record):
    """How far a run used its device."""

    rate: float
    share: float
    reachable: float


class Time(Record):
    """Where the time went."""

    shares: dict[Name, float] = {}
    seconds: dict[Name, float] = {}
    arithmetic: Arithmetic | None = None


class Report(Record):
    """report.json."""

    task: Text = ""
    experiment: Text = ""
    run: Text = ""
    metrics: Annotated[dict[Name, StoredMetric], Field(max_length=100_000)]
    timing: dict[Name, Number | None] = {}
    time: Time = Time()
    judged: dict[Name, Judged] = {}
    spread: dict[Name, Spread] = {}
    seeds: list[StoredSeed] = []
    notes: list[Text] = []


class Revision(Record):
    """The source revision that a run used."""

    revision: Text
    changed: bool | None = None


class UsedExtension(Record):
    """Somebody's own file or package that a run used. No path stands here: a run does not say where code lies."""

    name: Name
    version: Text | None = None
    sha256: Text | None = None
    registers: list[Text] = []


class Environment(Record):
    """environment.json."""

    precision: Literal["float32", "bfloat16", "float16"] | None = None
    data: dict[Name, Text] = {}
    runs: dict[Name, Text] = {}  # checksums of the other runs that it was made with, by the setting that names one
    fingerprints: Count = 1  # version of those of `data` (pipelines.data.fingerprint)
    devices: list[Text] = []
    source: Revision | None = None
    extensions: list[UsedExtension] = []


class Row(Record):
    """A line of metrics.jsonl."""

    step: Count
    epoch: Annotated[int, Field(ge=0, le=2**53)] | Annotated[float, Field(ge=0, le=1e12)] | None = None

    @model_validator(mode="after")
    def _metrics(self) -> "Row":
        for name, value in (self.model_extra or {}).items():
            if "/" in name and (isinstance(value, bool) or not isinstance(value, (int, float, NoneType))):
                raise ValueError(f"{name} is no number")
        return self


class Outcome(Record):
    """The outcome of a trial's process, as far as a list of runs shows it; the search needs more."""

    status: Literal["completed", "failed"]
    reason: Text | None = None


class Checkpointed(Record):
    """A checkpoint's own facts, as far as a list of runs shows them; the training needs more."""

    step: Count | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None


def open_regular(path: Path | str) -> BinaryIO:
    """A file for reading; of one that has the form of a storage, its content.

    Raises:
        OSError: as `open` does, and for anything but a regular file: a pipe would never answer.
        Closed: the storage cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return storage.opened(os.fdopen(descriptor, "rb"), path)


def read_bytes(path: Path | str) -> bytes:
    """A regular file, whole.

    Raises:
        ConfigError: it is missing, cannot be read, is not a regular file, or is larger than any file written here.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise ConfigError(f"{path}: cannot be read: {size:,} bytes, and {LARGEST:,} are the most; {_DAMAGED}")
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def read(path: Path | str, schema: type[Schema]) -> Schema:
    """A JSON file as its schema has it.

    Raises:
        ConfigError: as `read_bytes`, or it does not fit the schema: names file, field and value.
    """
    return parsed(read_bytes(path), schema, str(path))


def parsed(content: bytes | str, schema: type[Schema], place: str, because: str = _DAMAGED) -> Schema:
    """JSON as its schema has it; `place` names it in messages, which end in `because`. Raises ConfigError."""
    try:
        return schema.model_validate_json(content)
    except ValidationError as error:
        raise ConfigError(f"{place}: {why(error)}; {because}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{place}: cannot be read: {error}; {because}") from None


def checked(values: Any, schema: type[Schema], place: str, because: str = _DAMAGED) -> Schema:
    """Plain values as their schema has them. Raises ConfigError as `parsed`."""
    try:
        text = json.dumps(values, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from None
    return parsed(text, schema, place, because)


def why(error: ValidationError) -> str:
    """The first problems: field, what is wrong, the value."""
    problems = error.errors(include_url=False, include_context=False)
    texts: dict[str, str] = {}
    for each in problems:
        field = ".".join(str(step)[:60] for step in each["loc"] if step not in ("int", "float"))  # what a number was tried as
        message = each["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        given = each.get("input")
        scalar = given is None or isinstance(given, (str, int, float, bool))
        value = f", not {repr(given)[:60]}" if scalar and each["type"] not in ("missing", "json_invalid") else ""
        texts.setdefault(field, f"{field}: {message}{value}" if field else f"cannot be read: {message}")
    return "; ".join(list(texts.values())[:_SHOWN]) + (f"; and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else "")
