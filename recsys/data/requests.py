"""What `quartet predict` was given, as requests: a table of them, one as JSON, or a bare user id."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.messages import did_you_mean, listed
from pipelines.data import text_rows
from pipelines.data.dialect import JSON_LINES, ending
from pipelines.task.contract import Read

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
SUBJECTS = ("user", "item", "history", "similar")  # of which a row names one at least, where it has columns of its own
ALIKE = 0.75  # of a misspelt key
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
COLUMN_MEANINGS = {"number": "a number; NaN where it is missing", "category": "a text; empty where it is missing",
                   "list": "texts; empty ones fill up"}
IDS = 200_000  # in one list of a request
Request = dict[str, Any]


def requests(inputs: Sequence[str], keys: Mapping[str, str], bare: str, *, raw: Callable[[Request], dict[str, Any]],
             subjects: Collection[str] = SUBJECTS) -> Iterator[Read]:
    """(name, raw example or why there is none) of each input; of a row of a table also all of its columns, so that answers can be joined.

    Args:
        inputs: files (.csv, .tsv, .jsonl, .parquet: a request a row), JSON objects such as {"user": 42}, or bare values.
        keys: what a request may say -> the raw input it is.
        bare: the key that a bare value is for.
        raw: makes the raw example of a request, or raises DataError.
        subjects: raw inputs of which a table with columns of its own must name one.
    """
    for name, request, *fields in _all(inputs, keys, bare, subjects):
        try:
            yield name, request if isinstance(request, Exception) else raw(request), *fields  # type: ignore[misc]
        except DataError as error:
            yield name, error, *fields  # type: ignore[misc]


def _all(inputs: Sequence[str], keys: Mapping[str, str], bare: str, subjects: Collection[str]) -> Iterator[Read]:
    for given in inputs:
        path = Path(given)
        if path.suffix.lower() in TABLES:
            yield from _from_table(path, keys, subjects)
        elif given.lstrip().startswith("{"):
            yield given, _from_json(given, list(keys))
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


def _from_table(path: Path, keys: Mapping[str, str], subjects: Collection[str]) -> Iterator[Read]:
    """A request a row; lines of JSON may each say something else, a table's heading holds for all of its rows."""
    try:
        records = text_rows.records(path, named=True, lenient=True)
        names = next(records)[1]
        if ending(path) not in JSON_LINES:
            _check_names(names, keys, subjects)
        for line, record in records:
            if isinstance(record, str):
                yield f"{path}:{line}", DataError(record), dict.fromkeys(names)
                continue
            row = dict(zip(names, record))
            said = {name: value for name, value in row.items() if value is not None and value != ""}
            try:
                _check_names(said if ending(path) in JSON_LINES else names, keys, subjects)
                yield f"{path}:{line}", {key: value for key, value in said.items() if key in keys}, row
            except DataError as error:
                yield f"{path}:{line}", error, row
    except DataError as error:
        yield str(path), error


def _check_names(names: Collection[str], keys: Mapping[str, str], subjects: Collection[str]) -> None:
    """Raises DataError where a name that is no key seems to be meant as one, or no user, item or history is named at all. Others, such as
    numbers to join the answers by, may stand beside."""
    meant = {keys[name] for name in names if name in keys}
    absent = [key for key, name in keys.items() if name not in meant]
    for name in names:
        if name not in keys and (hint := did_you_mean(name, absent, ALIKE)):
            raise DataError(f"{name!r} is nothing that can be asked{hint} There are {listed(keys, 'and')}; rename a column that means "
                            "something else")
    if meant.isdisjoint(subjects) and any(name not in keys for name in names):
        raise DataError(f"has none of {listed([key for key, name in keys.items() if name in subjects])}; it has {listed(names, 'and')}")


def as_flag(name: str, value: Any) -> bool:
    """Raises DataError for what is neither true nor false."""
    flag = FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise DataError(f"{name}: {value!r:.60} is neither true nor false")
    return flag


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


def column_value(column: Mapping[str, Any], value: Any, separator: str) -> Any:
    """What a request says of a feature column, as the saved model takes it; None: nothing.

    Args:
        column: facts of the column.
        separator: between the values of a list that is given as one text.

    Raises:
        DataError: no number where one is needed.
    """
    if column["kind"] == "number":
        try:
            return float("nan") if value is None else float(value)
        except (TypeError, ValueError):
            raise DataError(f"{value!r:.60} in {column['name']} is no number") from None
    if column["kind"] == "category":
        return "" if value is None else str(value)
    parts = value.split(separator) if isinstance(value, str) else value or []
    return [str(part) for part in parts] or [""]
