"""Predictions as a table, CSV, JSON lines, plain text or CTM, a line for each input as soon as it is answered. Imports no TensorFlow."""

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, BinaryIO, TextIO

import numpy as np

from pipelines.base import formatting
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.terminal import print_table
from pipelines.config.messages import listed

WARNING = "warning"  # the output with the reason why an answer means little; tables and JSON have it only where there is one
PAGE = 500  # rows of a table printed at a time


@dataclass(frozen=True)
class Prediction:
    """The answer to one input, or its error.

    Attributes:
        values: name -> a text, a number, bytes, or an array, as `Task.respond` gives them.
        error: the reason why it could not be read.
        fields: the columns of the row that the input came from, written in place of `name`; or None. Of a row that cannot be read, the
            names of its table's columns, with None.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Shown:
    """The parts of answers that are written.

    Attributes:
        columns: outputs of one value an input, in their order.
        vector: the output that holds a value for each class, or None.
        classes: their names.
        top: number of best classes written, with their probabilities.
        all: the value of every class.
        details: outputs that are too long for a table or CSV; JSON lines hold them.
        ranked: outputs that are lists, best first; `most` of their entries are written, 0: all.
    """

    columns: list[str]
    vector: str | None = None
    classes: Sequence[str] = ()
    top: int = 0
    all: bool = False
    details: Sequence[str] = ()
    ranked: Sequence[str] = ()
    most: int = 0

    @classmethod
    def of(cls, ranks: Mapping[str, int], classes: Sequence[str] | None, *, top: int = 0, every: bool = False,
           details: Sequence[str] = (), ranked: Sequence[str] = ()) -> "Shown":
        """From the rank of each output, with batch. Raises ConfigError where classes are requested and there are none."""
        if ranked and not every:
            return cls([name for name in ranks if name not in details], ranked=ranked, most=top)
        vector = next((name for name, rank in ranks.items() if rank == 2 and name not in ranked), None) if classes else None
        if (top or every) and vector is None:
            raise ConfigError("--top and --probabilities: this run gives no probabilities of classes")
        names = list(classes or ())
        columns = [name for name in ranks if name != vector and name not in details]
        return cls(columns, vector, names, min(top, len(names)), every, [name for name in details if name in ranks])

    def value(self, one: Prediction, name: str) -> Any:
        """An answer as it is written."""
        return first(one.values, self.ranked, self.most)[name] if self.most else one.values[name]

    def best(self, values: Mapping[str, Any]) -> list[tuple[str, float]]:
        """The `top` classes, best first."""
        if not values or not self.vector:
            return []
        shares = np.asarray(values[self.vector])
        order = np.argsort(-shares, kind="stable")[:self.top]
        return [(self.classes[place], shortest(shares[place])) for place in order]


def write_csv(predictions: Iterable[Prediction], shown: Shown, file: TextIO) -> None:
    """A heading and a row for each input; an input without an answer has only its name and `error`.

    Where inputs are rows of a table, its columns replace `input`; an answer of the same name is then `predicted_...`.

    Raises:
        DataError: inputs with different columns, which have no heading in common.
    """
    source = iter(predictions)
    start: list[Prediction] = []  # up to the first that has columns: a missing file has none
    for one in source:
        start.append(one)
        if one.error is None or one.fields is not None or len(start) == PAGE:
            break
    own = next((list(one.fields) for one in start if one.fields is not None), ["input"])
    ranked = [f"{name}_{place}" for place in range(1, shown.top + 1) for name in ("top", "probability")]
    every = [f"p_{name}" for name in shown.classes] if shown.all else []
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*own, *_prefixed([*shown.columns, *ranked, *every, "error"], own)])
    for one in chain(start, source):
        nameless = one.fields is None and own != ["input"]
        fields = one.fields if one.fields is not None else {"input": _text(one.name)}
        if set(fields) != set(own) and not (nameless and one.error is not None):
            raise DataError(f"{one.name}: its columns ({listed(fields, 'and')}) are not those before it ({listed(own, 'and')}), and a CSV "
                            "has one heading: answer such inputs in calls of their own, or with --format jsonl")
        begin = [_cell(fields.get(name, "")) for name in own]
        if one.error is not None:
            writer.writerow([*begin, *[""] * (len(shown.columns) + len(ranked) + len(every)), _placed(one, own)])
            continue
        best = [item for pair in shown.best(one.values) for item in pair]
        shares = shortest(np.asarray(one.values[shown.vector])) if every and shown.vector else []
        writer.writerow([*begin, *(_cell(shown.value(one, name)) for name in shown.columns), *best, *shares, ""])
        file.flush()


def write_jsonl(predictions: Iterable[Prediction], shown: Shown, file: TextIO) -> None:
    """An object for each input: `input` and the answers, or `input` and `error`; of a row of a table, its columns in place of `input`."""
    for one in predictions:
        file.write(json.dumps(as_object(one, shown), ensure_ascii=False, default=as_json) + "\n")
        file.flush()


def as_object(one: Prediction, shown: Shown) -> dict[str, Any]:
    """A prediction as JSON has it, but for its bytes (see as_json)."""
    row: dict[str, Any] = {"input": _text(one.name)} if one.fields is None else dict(one.fields)
    answer: dict[str, Any] = {}
    if one.error is not None:
        answer["error"] = _placed(one, list(row))
    else:
        names = [name for name in (*shown.columns, *shown.details) if name != WARNING or one.values[name]]
        answer = {name: _listed(shown.value(one, name)) for name in names}
        if shown.top:
            answer["top"] = [{"label": label, "probability": share} for label, share in shown.best(one.values)]
        if shown.all and shown.vector:
            answer[shown.vector] = dict(zip(shown.classes, shortest(np.asarray(one.values[shown.vector]))))
    return row | (answer if answer.keys().isdisjoint(row) else dict(zip(_prefixed(list(answer), list(row)), answer.values())))


def write_table(predictions: Iterable[Prediction], shown: Shown, file: TextIO) -> None:
    """A table for the terminal; a page of rows at a time, to bound memory."""
    source = iter(predictions)
    plain = replace(shown, columns=[name for name in shown.columns if name != WARNING])
    while page := list(islice(source, PAGE)):
        failed = any(one.error is not None for one in page)
        chosen = shown if any(one.values.get(WARNING) for one in page) else plain
        columns = ["input", *(name.replace("_", " ") for name in chosen.columns), *([f"best {chosen.top}"] if chosen.top else []),
                   *(chosen.classes if chosen.all else []), *(["error"] if failed else [])]
        print_table(columns, [_row(one, chosen, failed) for one in page], file=file)


def as_json(value: Any) -> Any:
    """Bytes as JSON has them."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} is nothing that an answer holds")


def _row(one: Prediction, shown: Shown, failed: bool) -> list[str]:
    if one.error is not None:
        return [_text(one.name), *["–"] * (len(shown.columns) + bool(shown.top) + len(shown.classes) * shown.all), one.error]
    values = [(name, shown.value(one, name)) for name in shown.columns]
    cells = [formatting.number(value, name) if isinstance(value, float) else f"{len(value):,} bytes" if isinstance(value, bytes)
             else str(_cell(value)) for name, value in values]
    if shown.top:
        cells.append(", ".join(f"{label} {formatting.number(share, 'share')}" for label, share in shown.best(one.values)))
    if shown.all and shown.vector:
        cells += [formatting.number(float(share), "share") for share in one.values[shown.vector]]
    return [_text(one.name), *cells, *([""] if failed else [])]


def write_text(predictions: Iterable[Prediction], shown: Shown, file: TextIO) -> None:
    """The first answer of each input on a line of its own, and nothing else; an empty line for an input without an answer."""
    for one in predictions:
        value = "" if one.error is not None else _cell(shown.value(one, shown.columns[0]))
        file.write(" ".join(str(value).split()) + "\n")
        file.flush()


CTM = ("words", "starts", "ends")  # the outputs that a CTM file needs


def write_ctm(predictions: Iterable[Prediction], shown: Shown, file: TextIO) -> None:
    """NIST's time-marked words: recording, channel, start and duration in s, word. A piece `file#t=start,end` is counted from the file's
    own beginning; blanks in names become `_`.

    Raises:
        ConfigError: the answers have no words with times.
    """
    if not set(CTM) <= {*shown.columns, *shown.details}:
        raise ConfigError("--format: ctm is of words with times, which speech to text gives; choose jsonl or csv")
    for one in predictions:
        if one.error is not None:
            continue
        name, _, part = _text(one.name).partition("#t=")
        offset = float(part.partition(",")[0] or 0.0)
        for word, start, end in zip(*(_listed(one.values[key]) for key in CTM)):
            if word and start >= 0:
                file.write(f"{name.replace(' ', '_')} 1 {offset + start:.2f} {end - start:.2f} {word}\n")
        file.flush()


WRITERS = {"table": write_table, "csv": write_csv, "jsonl": write_jsonl, "text": write_text, "ctm": write_ctm}


class _Whole(io.TextIOWrapper):
    """A file without flushes: nobody reads it before it is whole, and a flush would take longer than an answer."""

    def flush(self) -> None:
        pass


def to_binary(kind: str, predictions: Iterable[Prediction], shown: Shown, file: BinaryIO) -> None:
    """Writes to an open binary file, in UTF-8; `kind` is one of WRITERS."""
    text = _Whole(file, encoding="utf-8", newline="")
    try:
        WRITERS[kind](predictions, shown, text)
        io.TextIOWrapper.flush(text)
    finally:
        text.detach()


def first(values: Mapping[str, Any], ranked: Sequence[str], count: int) -> dict[str, Any]:
    """An answer whose lists `ranked`, best first, end after `count` entries; their `count` says how many there are."""
    cut = {name: value[:count] if name in ranked else value for name, value in values.items()}
    return cut | {"count": min(count, cut["count"])} if ranked and "count" in cut else cut


def counted(predictions: Iterable[Prediction], counts: dict[str, int], failed: Any) -> Iterator[Prediction]:
    """Passes predictions on, counting `answered` and `failed` and calling `failed` with those that have an error."""
    for one in predictions:
        if one.error is None:
            counts["answered"] += 1
        else:
            counts["failed"] += 1
            failed(one)
        yield one


def _prefixed(names: Sequence[str], used: Sequence[str]) -> list[str]:
    """The names, used ones with `predicted_` before them."""
    distinct = []
    for name in names:
        while name in used:
            name = f"predicted_{name}"
        distinct.append(name)
    return distinct


def _placed(one: Prediction, columns: Sequence[str]) -> str:
    """The error, with the input's name where no column has it."""
    return f"{_text(one.name)}: {one.error}" if list(columns) != ["input"] else str(one.error)


def _cell(value: Any) -> Any:
    return json.dumps(_listed(value), ensure_ascii=False, default=as_json) if isinstance(value, (np.ndarray, bytes)) else value


def shortest(values: Any) -> Any:
    """An array of numbers, or one, as JSON has it; of float32 the shortest number that is this one: 0.9, not 0.8999999761581421."""
    if values.dtype != np.float32:
        return values.tolist()
    if values.ndim == 0:
        return float(str(values))
    return [shortest(value) for value in values]


def _listed(value: Any) -> Any:
    """An array as a list."""
    return shortest(value) if isinstance(value, np.ndarray) else value


def _text(name: str) -> str:
    """A file's name as UTF-8; invalid bytes become the replacement character."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def by_address(predictions: Iterable[Prediction], named: Callable[[str], str]) -> Iterator[Prediction]:
    """Answers under the names that the person gave: `named` turns the path of a copy into the address that it was fetched from."""
    for one in predictions:
        yield replace(one, name=named(one.name), error=None if one.error is None else named(one.error))
