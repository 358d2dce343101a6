"""Interactions as arrays: who, what, when, how much - from tables through pyarrow, from TFDS, or generated here.

Ids are kept as they were given (text or whole numbers) and counted from 0 in `Log`; rows keep their place in the file, so
that messages can name them. 10 million rows of CSV take seconds and fit 4 GB.
"""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data import text_rows
from pipelines.data.columns import number_of
from pipelines.data.dialect import TEXT, ending
from pipelines.data.fingerprint import of_files
from pipelines.data.memory import arrow
from pipelines.data.opened import check_skipped
from pipelines.data.tables import NAMED, LeftOut, column, line_numbers, read_table, split_names
from pipelines.data.times import MEANINGS, MIXED, read_times
from pipelines.stores.remote import local
from recsys.data.log import Ids, Log, index_type, load_log, row_names
from recsys.settings import IMPLICIT_SOURCES, LOGGED_SOURCES, RATED_SOURCES, InteractionData, LoggedData, RatedData

MISSING = "no value"
FILE = "(file)"  # the column, added to tables of a folder, that says from which split's file a row is


def read_log(data: InteractionData) -> Log:
    """All interactions that `data` names, unsplit.

    Raises:
        DataError: names the file, the row, the column, the value and the remedy. Under on_bad_example: skip, bad rows are
            left out and counted instead.
    """
    if data.prepared is not None:
        return load_log(local(data.prepared).expanduser())
    sources = {RatedData: RATED_SOURCES, LoggedData: LOGGED_SOURCES}
    opened = next((known for kind, known in sources.items() if isinstance(data, kind)), IMPLICIT_SOURCES).build(data)
    log = opened if isinstance(opened, Log) else _own(opened, data)
    del opened
    pa.default_memory_pool().release_unused()  # of the table as it was read: twice what is kept of it, which Arrow would hold back
    return log


def _lines(file: Path, count: int, *, header: bool) -> np.ndarray:
    """The line of each row, [count] int64; its number from 1 in Parquet."""
    lines = line_numbers(file, header=header)
    return lines if len(lines) == count else np.arange(1, count + 1)


def _own(table: Any, data: InteractionData) -> Log:
    """A registered source: a table of interactions (an Arrow table, a data frame or a mapping of columns), whose columns the settings
    name."""
    interactions, digest, place = arrow(table), hashlib.sha256(), f"source {data.source}"
    for name in interactions.column_names:
        digest.update(repr((name, interactions[name].to_pylist())).encode())
    return _log(data, interactions, place=place, path=None, digest=digest.hexdigest()[:16])


def read_shipped(data: InteractionData) -> Log:
    """See `read_log`; of the sources that ship with Quartet."""
    if data.source == "synthetic":
        return synthetic_choices() if isinstance(data, LoggedData) else synthetic_log()
    if data.source == "tfds":
        return _log(data, _from_tfds(data), place=str(data.name), path=None, digest=_tfds_digest(data))
    path = local(str(data.path)).expanduser()
    bad = LeftOut()
    ids = [name for name in (data.user_key, data.item_key, data.split_key, *data.categories) if name]
    files = text_rows.split_files(path) if path.is_dir() else {"": path}
    if path.is_dir() and data.split_key is not None:
        raise DataError(f"data.split_key: {path} has a file for each split already ({', '.join(file.name for file in files.values())})")
    tables, lines = [], []
    for split, file in files.items():
        own = LeftOut()
        table = read_table(file, text=ids, names=data.columns, left_out=own if data.on_bad_example == "skip" else None,
                           delimiter=data.delimiter, encoding=data.encoding, quote=data.quote, beside=list(files.values()))
        check_skipped(own.reasons, table.num_rows + own.count, data, str(file), own.count)
        tables.append(table.append_column(FILE, pa.array([split] * table.num_rows).dictionary_encode()) if split else table)
        lines.append(own.lines if own.lines is not None or not split else _lines(file, table.num_rows, header=not data.columns))
        bad.count += own.count
        bad.reasons += own.reasons
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
    known = [one for one in lines if one is not None]
    log = _log(data, table, place=str(path), path=path, digest="".join(map(_file_digest, files.values())),
               lines=np.concatenate(known) if known else None)
    extra: dict[str, Any] = {}
    for setting in ("items", "users"):
        where, key = getattr(data, setting), getattr(data, f"{setting[:-1]}_key")
        if where:
            where = local(where)
            extra_table = read_table(where, text=[key, *data.categories])
            column(extra_table, key, where, f"data.{setting[:-1]}_key")
            extra[f"{setting[:-1]}_table"] = extra_table
    digest = hashlib.sha256((log.digest + "".join(_file_digest(local(p)) for p in (data.items, data.users) if p)).encode()).hexdigest()[:16]
    return replace(log, skipped=(*bad.reasons, *log.skipped)[:NAMED], left_out=bad.count + log.left_out, digest=digest, **extra)


def _log(
    data: InteractionData, table: pa.Table, *, place: str, path: Path | None, digest: str, lines: np.ndarray | None = None
) -> Log:
    where = path if path is not None else place
    say = partial(row_names, path, place, not data.columns, lines)
    bad: dict[int, str] = {}
    notes: list[str] = []

    def ids_of(key: str | None, setting: str) -> tuple[np.ndarray | None, Ids | None]:
        if key is None:
            return None, None
        guess = path is not None and ending(path) in TEXT
        numbers, ids, missing = encode(column(table, key, where, setting), guess=guess)
        bad.update(dict.fromkeys(missing.tolist(), f"{MISSING} in column {key} ({setting})"))
        return numbers, ids

    users, user_ids = ids_of(data.user_key, "data.user_key")
    items, item_ids = ids_of(data.item_key, "data.item_key")
    ratings = times = parts = propensities = None
    if isinstance(data, LoggedData) and data.propensity_key is not None:
        propensities, wrong = numbers_of(column(table, data.propensity_key, where, "data.propensity_key"))
        wrong |= {number: propensities[number] for number in np.flatnonzero((propensities <= 0) | (propensities > 1)).tolist()}
        bad.update({number: f"{value!r} in column {data.propensity_key} is no probability of a choice that was made, above 0 and at most 1 "
                            "(data.propensity_key)" for number, value in wrong.items()})
    if data.rating_key is not None:
        ratings, wrong = numbers_of(column(table, data.rating_key, where, "data.rating_key"))
        bad.update({number: f"{value!r} in column {data.rating_key} is no number (data.rating_key)"
                    for number, value in wrong.items()})
        ratings = ratings.astype(np.float32)
    if data.time_key is not None:
        when = read_times(column(table, data.time_key, where, "data.time_key"), data.time_format)
        if when.ambiguous:
            raise DataError(
                f"{where}: column {data.time_key} (data.time_key) holds dates such as {when.example}, whose day may be first or second; "
                "set data.time_format: day_first or month_first"
            )
        times = when.seconds
        notes += [f"column {data.time_key} {MIXED}"] if when.mixed else []
        bad.update(
            {
                number: f"{value!r} in column {data.time_key} is no time {MEANINGS[data.time_format]} (data.time_key)"
                for number, value in when.wrong.items()
            }
        )
    if FILE in table.column_names:
        parts = np.asarray(table[FILE].to_pylist(), object).astype(str)
    elif data.split_key is not None:
        stored = [str(value) for value in column(table, data.split_key, where, "data.split_key").to_pylist()]
        parts = np.asarray(split_names(stored, data), object).astype(str)
    if bad and data.on_bad_example == "stop":
        number = min(bad)
        more = f" (and {len(bad) - 1:,} more such rows)" if len(bad) > 1 else ""
        raise DataError(
            f"{say([number])[0]}: {bad[number]}{more}. Repair or remove the row, or set data.on_bad_example: skip; "
            "`quartet check` lists all such rows."
        )
    wanted = [
        name
        for name in dict.fromkeys([*data.numbers, *data.categories, *data.lists, *([data.title_key] if data.title_key else [])])
        if name in table.column_names
    ]
    log = Log(
        users,
        items,
        user_ids,
        item_ids,
        ratings,
        times,
        parts,
        table.select(wanted),
        None,
        None,
        np.arange(table.num_rows, dtype=index_type(table.num_rows)),
        place,
        path,
        notes=tuple(notes),
        digest=digest,
        header=not data.columns,
        lines=lines,
        propensities=propensities,
    )
    if bad:
        keep = np.ones(len(log), bool)
        keep[list(bad)] = False
        named = sorted(bad)[:NAMED]
        reasons = {number: f"{name}: {bad[number]}" for name, number in zip(say(named), named)}
        skipped = tuple(reasons.values())
        unread = {number for number, why in bad.items() if not why.startswith((MISSING, "None ", "'' "))}  # an empty cell was read
        check_skipped([reasons[number] for number in named if number in unread], len(log), data, place, len(unread))
        log = replace(log.take(keep), skipped=skipped, left_out=len(bad))
    if not len(log):
        raise DataError(f"{place}: not one interaction can be read" + (f"; the first: {next(iter(bad.values()))}" if bad else ""))
    return log


def encode(values: pa.ChunkedArray | pa.Array, *, guess: bool = False) -> tuple[np.ndarray, Ids, np.ndarray]:
    """Ids as numbers: ([n] int32 with -1 where there is none, the ids in order, the places without one).

    Whole numbers stay numbers, also as floats (7.0); texts stay texts.

    Args:
        guess: the texts are from a format that has nothing else, such as CSV: where all are whole numbers they are numbers (`007` and
            ` 7` are none).
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    numbers = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    distinct = coded.dictionary
    if pa.types.is_integer(distinct.type):
        ids = distinct.to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        plain = distinct.to_pylist()
        if pa.types.is_floating(distinct.type) and all(float(value).is_integer() for value in plain):
            ids = np.asarray(plain, np.int64)
        else:
            texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in plain]
            empty = np.array([not text.strip() for text in texts], bool)
            if empty.any():
                numbers = np.where((numbers >= 0) & empty[numbers], -1, numbers)
            whole = [whole_number(text) for text in texts if text.strip()]
            if guess and whole and all(whole):
                ids = np.asarray([int(text) if text.strip() else -1 for text in texts], np.int64)
            else:
                ids = np.asarray(texts, object).astype(str) if texts else np.asarray([], str)
    # in the order of the ids, so that numbering does not depend on the order of the rows
    order = np.argsort(ids, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    numbers = np.where(numbers >= 0, place[numbers], -1).astype(np.int32) if len(order) else numbers
    return numbers, Ids(ids[order]), np.flatnonzero(numbers < 0)


def whole_number(text: str) -> bool:
    """Whether a text is a whole number as one writes it, so that nothing is lost when it is read as a number."""
    digits = text[1:] if text.startswith("-") else text
    return digits.isdigit() and digits.isascii() and len(digits) < 19 and (digits == "0" or digits[0] != "0") and text != "-0"


def numbers_of(values: pa.ChunkedArray) -> tuple[np.ndarray, dict[int, Any]]:
    """[n] float64, NaN where there is no number, and those places with their values."""
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = values.cast(pa.float64()).combine_chunks().fill_null(float("nan")).to_numpy(zero_copy_only=False)
    else:
        nan = float("nan")
        coded = values.combine_chunks().dictionary_encode()
        known = np.array([*(nan if (number := number_of(value)) is None else number for value in coded.dictionary.to_pylist()), nan])
        numbers = known[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    wrong = np.flatnonzero(~np.isfinite(numbers))
    return numbers, {int(number): values[int(number)].as_py() for number in wrong}


def _from_tfds(data: InteractionData) -> pa.Table:
    """The columns that the settings name, of split train, as a table."""
    import tensorflow as tf

    from pipelines.data.tfds import TfdsSource, features, prepared

    known = features(prepared(str(data.name), data.data_dir))
    keys = [data.user_key, data.item_key, data.time_key, data.rating_key, data.title_key, *data.numbers, *data.categories, *data.lists]
    wanted = list(dict.fromkeys(key for key in keys if key))
    missing = next((key for key in wanted if key not in known), None)
    if missing is not None:
        raise DataError(f"{data.name} has no feature {missing!r}; there are {listed(known, 'and')}{did_you_mean(missing, known)}")
    source = TfdsSource(str(data.name), "train", fields={key: key for key in wanted}, data_dir=data.data_dir)
    values = source.gather(tf.range(len(source), dtype=tf.int64))
    columns = {}
    for key, value in values.items():
        names = getattr(known[key], "feature", known[key])
        names = getattr(names, "names", None) if hasattr(names, "int2str") else None
        if isinstance(value, tf.RaggedTensor):
            inner = _arrow(value.flat_values.numpy(), names)
            columns[key] = pa.ListArray.from_arrays(pa.array(value.row_splits.numpy().astype(np.int32)), inner)
        else:
            columns[key] = _arrow(value.numpy(), names)
    return pa.table(columns)


def _arrow(values: np.ndarray, names: list[str] | None) -> pa.Array:
    if names is not None:
        return pa.array([names[number] for number in values])
    if values.dtype == object:
        return pa.array([value.decode("utf-8", "replace") for value in values], pa.string())
    return pa.array(values)


def _tfds_digest(data: InteractionData) -> str:
    from pipelines.data.tfds import Prepared

    keys = {key: key for key in (data.user_key, data.item_key) if key}
    return Prepared(str(data.name), "train", keys, data.data_dir).fingerprint()


def _file_digest(path: Path) -> str:
    return of_files([path], path.parent)


USERS, ITEMS, THEMES, SERIES = 400, 300, 10, 6
SEED = 20261121


def synthetic_log(users: int = USERS, items: int = ITEMS, seed: int = SEED, low: int = 8, high: int = 40) -> Log:
    """Interactions of `users` with `items`, `low` to `high` each, with rating, time, and the items' theme and title.

    The columns are called user, item, rating, time, theme, title. Ids are texts: u17, i4.
    """
    rng = np.random.default_rng(seed)
    theme = np.arange(items) * THEMES // items
    quality = rng.normal(0, 0.5, items)
    popularity = np.exp(rng.normal(0, 1.0, items))
    taste = rng.dirichlet(np.full(THEMES, 0.2), users)
    mood = rng.normal(0, 0.4, users)
    rows: list[tuple[int, int, float, int]] = []
    for user in range(users):
        odds = popularity * (0.02 + taste[user][theme])
        chosen: list[int] = []
        count = int(rng.integers(low, high))
        while len(chosen) < min(count, items // 2):
            following = chosen[-1] + 1 if chosen else -1
            if chosen and following % SERIES and following < items and following not in chosen and rng.random() < 0.6:
                chosen.append(following)
                continue
            item = int(rng.choice(items, p=odds / odds.sum()))
            if item not in chosen:
                chosen.append(item)
        start = int(rng.integers(0, 300 * 86_400))
        for place, item in enumerate(chosen):
            liking = 3.3 + mood[user] + quality[item] + 2.0 * (taste[user][theme[item]] - 0.2) + rng.normal(0, 0.5)
            rows.append((user, item, float(np.clip(np.round(liking * 2) / 2, 0.5, 5.0)), 1_700_000_000 + start + place * 3600))
    order = rng.permutation(len(rows))
    who, what, rating, time = (np.asarray(values)[order] for values in zip(*rows))
    item_ids = np.array([f"i{number}" for number in range(items)])
    user_ids = np.array([f"u{number}" for number in range(users)])
    features = pa.table(
        {
            "theme": pa.array([f"theme {number}" for number in theme[what]]),
            "title": pa.array([f"Theme {theme[i]}, series {i // SERIES}, part {i % SERIES + 1}" for i in what]),
        }
    )
    digest = hashlib.sha256(f"made 1 {users} {items} {seed} {low} {high}".encode()).hexdigest()[:16]
    return Log(
        who.astype(np.int32),
        what.astype(np.int32),
        Ids(user_ids),
        Ids(item_ids),
        rating.astype(np.float32),
        time.astype(np.float64),
        None,
        features,
        None,
        None,
        np.arange(len(rows)),
        "synthetic interactions",
        digest=digest,
        notes=("The interactions are synthetic, generated by this package; the numbers say that everything works, nothing more",),
    )


CONTEXTS, ACTIONS = 3, 8


def synthetic_choices(count: int = 6000, seed: int = SEED) -> Log:
    """Logged choices of eight actions in contexts of three numbers and a device, with a propensity and a reward of 0 or 1 each.

    The columns are called action, reward, propensity, time, x0, x1, x2, device. The logging policy likes some actions, and follows a
    part of what pays.
    """
    rng = np.random.default_rng(seed)
    contexts = rng.normal(0, 1, (count, CONTEXTS))
    device = rng.integers(0, 3, count)
    odds = -2.0 + 0.6 * contexts @ rng.normal(0, 1, (CONTEXTS, ACTIONS)) + rng.normal(0, 0.6, (3, ACTIONS))[device]
    logits = 0.5 * odds + rng.normal(0, 0.5, ACTIONS)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    actions = (chances.cumsum(1) < rng.random(count)[:, None]).sum(1).clip(max=ACTIONS - 1)
    rows = np.arange(count)
    rewards = rng.random(count) < 1 / (1 + np.exp(-odds[rows, actions]))
    features = pa.table({**{f"x{number}": contexts[:, number] for number in range(CONTEXTS)},
                         "device": np.array(["phone", "tablet", "desk"])[device]})
    return Log(
        None, actions.astype(np.int32), None, Ids(np.array([f"a{number}" for number in range(ACTIONS)])), rewards.astype(np.float32),
        1_700_000_000.0 + 60.0 * rows, None, features, None, None, rows, "synthetic choices", propensities=chances[rows, actions],
        digest=hashlib.sha256(f"choices 1 {count} {seed}".encode()).hexdigest()[:16],
        notes=("The choices are synthetic, generated by this package; the numbers say that everything works, nothing more",))
