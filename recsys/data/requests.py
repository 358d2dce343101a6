"""What `quartet predict` was given, as requests: a table of them, one as JSON, or a bare user id."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.tables import read_table

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
IDS = 200_000  # in one list of a request
Request = dict[str, Any]


def requests(
    inputs: Sequence[str], keys: Sequence[str], bare: str, *, text: Sequence[str], raw: Callable[[Request], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
    """(name, raw example or why there is none) of each input.

    Args:
        inputs: files (.csv, .tsv, .jsonl, .parquet: a request a row), JSON objects such as {"user": 42}, or bare values.
        keys: what a request may say.
        bare: the key that a bare value is for.
        text: columns of a table that are texts, such as ids.
        raw: makes the raw example of a request, or raises DataError.
    """
    for name, request in _all(inputs, keys, bare, text):
        try:
            yield name, request if isinstance(request, Exception) else raw(request)
        except DataError as error:
            yield name, error


def _all(inputs: Sequence[str], keys: Sequence[str], bare: str, text: Sequence[str]) -> Iterator[tuple[str, Request | Exception]]:
    for given in inputs:
        path = Path(given)
        if path.suffix.lower() in TABLES:
            yield from _from_table(path, keys, text)
        elif given.lstrip().startswith("{"):
            yield given, _from_json(given, keys)
        else:
            yield given, {bare: given}


def parsed(sent: Any, keys: Sequence[str], bare: str) -> Request:
    """What a client sent as a request: an object, UTF-8 of one, or a bare value. Raises DataError."""
    if isinstance(sent, bytes):
        try:
            sent = sent.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            raise DataError("the request is not UTF-8") from None
    if isinstance(sent, str) and sent.startswith("{"):
        try:
            sent = parse_json(sent)
        except ValueError as error:
            raise DataError(f"no JSON: {error}") from None
    if not isinstance(sent, dict):
        return {bare: sent}
    unknown = next((key for key in sent if key not in keys), None)
    if unknown is not None:
        raise DataError(f"{unknown!r} is nothing that can be asked{did_you_mean(unknown, keys)}; there are {listed(keys, 'and')}")
    return sent


def _from_json(text: str, keys: Sequence[str]) -> Request | Exception:
    try:
        return parsed(text.lstrip(), keys, "")
    except DataError as error:
        return error


def _from_table(path: Path, keys: Sequence[str], text: Sequence[str]) -> Iterator[tuple[str, Request | Exception]]:
    try:
        table = read_table(path, text=text)
    except DataError as error:
        yield str(path), error
        return
    names = [name for name in table.column_names if name in keys]
    if not names:
        yield str(path), DataError(f"has none of the columns {listed(keys)}; it has {listed(table.column_names, 'and')}")
        return
    number = 0
    for batch in table.select(names).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}", {key: value for key, value in row.items() if value is not None}


def as_id(value: Any, numeric: bool) -> Any:
    """An id as the run has them: a whole number, or text. Raises DataError for what is neither."""
    if numeric:
        try:
            number = int(str(value).strip())
        except ValueError:
            number = 1 << 63
        if not -(1 << 63) <= number < 1 << 63:
            raise DataError(f"{value!r:.60} is no id: the run's ids are whole numbers of 64 bits")
        return number
    return str(value)


def as_ids(value: Any, numeric: bool) -> list[Any]:
    """A list of ids from a list, or from text divided by commas or blanks."""
    if len(value) > IDS if isinstance(value, (list, tuple)) else str(value).count(",") + str(value).count(" ") > IDS:
        raise DataError(f"a list has over {IDS:,} ids")
    if isinstance(value, str):
        value = value.replace(",", " ").split() if numeric or "," not in value else [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)):
        value = [value]
    return [as_id(one, numeric) for one in value]
