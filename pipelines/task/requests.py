"""How what a person gives to `predict`, or a client to a server, becomes raw examples."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.base.json_text import parse_json
from pipelines.task.form import Field, fields_of

# what `Requests.read` gives of an input
Read = tuple[str, dict[str, Any] | Exception] | tuple[str, dict[str, Any] | Exception, dict[str, Any]]


class Requests:
    """By default inputs are JSON: an object with a value of each entry of `raw_spec`, or of a single one its value.

    Args:
        input: an `input.Input`, whose raw examples are read.
    """

    read_at_once: ClassVar[tuple[int, int]] = (16, 64)  # inputs of `predict` decoded in one call, and answered in one
    takes_files: ClassVar[bool] = False  # an input is a file, and a text given to `Run.predict` its path; False: the text is the input
    decodes_uploads: ClassVar[bool] = False  # `take` decodes the file that a client sent: it runs beside the server's own work
    sends: ClassVar[str] = "an object with a value of each input; of a single input, its value"  # what a client of `quartet serve` sends

    def __init__(self, input: Any):
        self.input = input
        self.notes: list[str] = []  # what `read` has to say besides its inputs, such as how many files of a folder are none

    @property
    def fills(self) -> Mapping[str, Any]:
        """Raw inputs whose free length is filled up, in a batch, with something other than 0 or the empty text."""
        return {}

    def read(self, inputs: list[str]) -> Iterator[Read]:
        """What `predict` was given (paths, globs, texts) as (name, one raw example, or why it cannot be read).

        A third entry holds the columns of the row it came from, which are written beside the answer in place of the name; for a row that
        cannot be read their names, with None. By default each input is JSON as `take` has it, or a .json or .jsonl file of such.
        """
        for given in inputs:
            try:
                texts = _texts(given)
            except (OSError, UnicodeDecodeError, DataError) as error:
                yield given, error
                continue
            for name, text in texts:
                try:
                    sent = decoded(parse_json(text))
                    yield name, sent if isinstance(sent, DataError) else self.take(sent)
                except DataError as error:
                    yield name, error
                except ValueError as error:
                    yield name, DataError(f"is no JSON: {error}")

    def take(self, sent: Any) -> dict[str, Any]:
        """What a client of `quartet serve` sent for one input, the bytes of a file or a JSON value, as one raw example.

        Opens no file and no address that `sent` names. Raises DataError for what it is not.
        """
        return raw_example(sent, self.input.raw_spec())

    def slow_upload(self, sent: bytes) -> bool:
        """Whether `take` takes so long for a file that others should not wait: a look at its header. Asked where `decodes_uploads`."""
        return False

    def form(self) -> list[Field]:
        """What a person enters for one input, as `take` has it. By default the raw inputs."""
        return fields_of(self.input.raw_spec(), self.input.signature.meanings)

    def sample(self) -> dict[str, Any]:
        """One raw example of no meaning, to answer before the first that counts: zeros, and empty texts."""
        row = {}
        for name, spec in self.input.raw_spec().items():
            kind = object if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype
            row[name] = np.full([1 if size is None else size for size in spec.shape[1:]], b"" if kind is object else 0, kind)[()]
        return row

    def typical(self) -> list[dict[str, Any]]:
        """Raw examples such as clients send, made up: by these, forms of a model are compared and timed."""
        return [self.sample()]


def decoded(value: Any) -> Any:
    """JSON with bytes in place of {"b64": ...}, as TensorFlow Serving's REST interface has them, alone or as values of an object; a
    DataError where they are none."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"b64"}:
        values = {name: _bytes(one) for name, one in value.items()}
        return next((DataError(f"{name}: {one}") for name, one in values.items() if isinstance(one, DataError)), values)
    return _bytes(value)


def _bytes(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            return DataError(f"b64: {error}")
    return value


def raw_example(sent: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    """A raw example from an object with a value of each input, or of a single input its value.

    Args:
        specs: name -> spec with its batch. Raises DataError for what is not of them.
    """
    values = sent if isinstance(sent, dict) and (len(specs) > 1 or set(sent) == set(specs)) else {next(iter(specs)): sent}
    if set(values) != set(specs):
        raise DataError(f"send an object with {', '.join(specs)}")
    return {name: _as_array(name, values[name], one) for name, one in specs.items()}


def _texts(given: str) -> list[tuple[str, str]]:
    """(name, JSON) of what a person named: a file of one or, with a line each, of many; or the JSON itself."""
    path = Path(given)
    if path.suffix not in (".json", ".jsonl"):
        return [(given, given)]
    check_regular(path)
    content = path.read_text(encoding="utf-8")
    lines = [content] if path.suffix == ".json" else content.splitlines()
    return [(given if len(lines) == 1 else f"{given}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]


def _as_array(name: str, value: Any, spec: Any) -> Any:
    if spec.dtype.name == "string":
        if len(spec.shape) == 1:
            return _as_text(name, value)
        if not isinstance(value, list):
            raise DataError(f"{name}: a list of texts is asked for")
        texts = np.empty(len(value), object)
        texts[:] = [_as_text(name, one) for one in value]
        return texts
    try:
        array = np.asarray(value, spec.dtype.as_numpy_dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name}: {value!r:.100} is not of type {spec.dtype.name}") from error
    if not spec.shape[1:].is_compatible_with(array.shape):
        raise DataError(f"{name}: has the shape {list(array.shape)}; {list(spec.shape[1:])} is asked for")
    return array


def _as_text(name: str, value: Any) -> bytes:
    if not isinstance(value, (str, bytes)):
        raise DataError(f"{name}: {value!r:.100} is no text")
    return value.encode() if isinstance(value, str) else value
