"""Feature columns as numbers: what is learned of them from train, and the arrays that the models take.

A column belongs to the events, or to items or users where it is in their table or never differs for one item: it is then
stored once an item and looked up by the id.
"""

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.tables import values_of
from recsys.data.log import Log
from recsys.data.sources import encode, numbers_of
from recsys.settings import InteractionData

Facts = dict[str, Any]  # of one column: name, kind, of, and what was learned: values, or mean and std


def learn(log: Log, train: np.ndarray, data: InteractionData) -> list[Facts]:
    """What is known of each feature column, from the events `train` ([n] bool) alone.

    Returns:
        For each column {"name", "kind": "number" | "category" | "list" | "vector", "of": "event" | "item" | "user"}, and of numbers "mean"
        and "std"; of vectors "length" and "std", the root mean square of their norms; of others "values": the known values as texts, most
        frequent first; code k + 1 stands for values[k], 0 for all others.

    Raises:
        DataError: a column that is in no table, or no numbers where numbers are needed.
    """
    features, known = [], dict[str, np.ndarray]()
    for kind, names in (("number", data.numbers), ("category", data.categories), ("list", data.lists), ("vector", data.vectors)):
        for name in names:
            of, table = _where(log, name, data)
            belongs = of == "event" and kind != "number" and not data.contexts and log.items is not None
            if belongs and _constant(log, train, name, kind, data):
                of = "item"
            facts: Facts = {"name": name, "kind": kind, "of": of}
            if table is log.features:
                rows = train
            else:
                rows = known[of] = known[of] if of in known else _in_train(log, train, of, data)
            values = table[name].filter(pa.array(rows))
            if kind == "vector":
                plain = vectors(values, name, log)
                facts |= {"length": plain.shape[1], "std": float(np.sqrt(np.mean(np.sum(np.square(plain, dtype=np.float64), 1)))) or 1.0}
            elif kind == "number":
                plain = numbers(values, name, log)
                with np.errstate(all="ignore"):
                    spread = float(np.nanstd(plain)) if np.isfinite(plain).any() else 1.0
                    facts |= {"mean": float(np.nanmean(plain)) if np.isfinite(plain).any() else 0.0, "std": spread or 1.0}
            else:
                texts = _flat(_lists(values, data)) if kind == "list" else _texts(values)
                counted = pc.value_counts(texts.drop_null())
                pairs = sorted(
                    ((value["values"].as_py(), value["counts"].as_py()) for value in counted), key=lambda pair: (-pair[1], pair[0])
                )
                facts["values"] = [value for value, count in pairs if count >= data.min_count and value]
                if kind == "list":
                    facts["length"] = data.list_length
            features.append(facts)
    return features


def unused(facts: list[Facts]) -> list[str]:
    """For each column that differs between the events of one item, that lists, whose tasks know users and items alone, do without it."""
    return [
        f"Column {one['name']} is not used: it differs between events of one item, and lists are made for users, of items. What "
        "belongs to users comes from their own table (data.users of recsys.retrieval), what belongs to events by recsys.ranking"
        for one in facts
        if one["of"] == "event"
    ]


def event_arrays(log: Log, facts: list[Facts], data: InteractionData) -> dict[str, np.ndarray]:
    """The columns of the events: name -> [n] float32 (numbers, standardised), [n] int32 (categories) or [n, length] int32 (lists).

    Raises:
        DataError: other data than the run's have no such column.
    """
    names = [one["name"] for one in facts if one["of"] == "event"]
    missing = next((name for name in names if name not in log.features.column_names), None)
    if missing is not None:
        _no_column(log, missing, data)
    return {one["name"]: encoded(log.features[one["name"]], one, data, log) for one in facts if one["of"] == "event"}


def entity_arrays(
    log: Log,
    train: np.ndarray,
    facts: list[Facts],
    data: InteractionData,
    of: str,
    ids: np.ndarray,
    numbers: np.ndarray,
) -> dict[str, np.ndarray]:
    """The columns of items or users: name -> [1 + count, ...], row 0 for the unknown, row k + 1 for id `ids[k]` of the catalogue.

    Args:
        ids: those that the run knows, [count]; the first of them are in train.
        numbers: of these the numbers in the log.
    """
    arrays: dict[str, np.ndarray] = {}
    table = log.item_table if of == "item" else log.user_table
    key = data.item_key if of == "item" else data.user_key
    all_ids = log.item_ids if of == "item" else log.user_ids
    who = log.items if of == "item" else log.users
    for one in facts:
        if one["of"] != of:
            continue
        if table is not None and one["name"] in table.column_names:
            places = dict(zip(values_of(table, str(key), "items" if of == "item" else "users", "id"), range(table.num_rows)))
            rows = np.array([places.get(str(value), -1) for value in ids.tolist()], np.int64)
            values = encoded(table[one["name"]], one, data, log)
        else:
            assert who is not None and all_ids is not None
            first = np.full(len(all_ids), -1, np.int64)
            seen = np.flatnonzero(train)[::-1]
            first[who[seen]] = seen
            rows = np.concatenate([first[numbers], np.full(len(ids) - len(numbers), -1)])
            values = encoded(log.features[one["name"]], one, data, log)
        arrays[one["name"]] = np.concatenate([np.zeros_like(values[:1]), np.where(_like(rows >= 0, values), values[rows], 0)])
    return arrays


def encoded(values: pa.ChunkedArray, facts: Facts, data: InteractionData, log: Log | None = None) -> np.ndarray:
    """A column as the models take it; see `event_arrays`."""
    if facts["kind"] == "vector":
        return (vectors(values, facts["name"], log, facts["length"]) / facts["std"]).astype(np.float32)
    if facts["kind"] == "number":
        plain = (numbers(values, facts["name"], log) - facts["mean"]) / facts["std"]
        return np.nan_to_num(plain, nan=0.0).astype(np.float32)
    if facts["kind"] == "category":
        return _codes(_texts(values), facts["values"])
    lists = _lists(values, data)
    codes = _codes(_flat(lists), facts["values"])
    offsets = lists.offsets.to_numpy().astype(np.int64)
    sizes = np.minimum(np.diff(offsets), facts["length"])
    out = np.zeros((len(sizes), facts["length"]), np.int32)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    out[rows, places] = codes[offsets[rows] - offsets[0] + places]
    return out


def numbers(values: pa.ChunkedArray, name: str, log: Log | None) -> np.ndarray:
    """[n] float64, NaN where there is nothing. Raises DataError for what is no number."""
    parsed, wrong = numbers_of(values)
    place = next((place for place, value in wrong.items() if value is not None and value != "" and value == value), None)
    if place is not None:
        where = f"{log.place}: " if log is not None else ""
        raise DataError(f"{where}{wrong[place]!r} in column {name} is no number (data.numbers); name it in data.categories if it is a text")
    return parsed


def vectors(values: pa.ChunkedArray, name: str, log: Log | None, length: int | None = None) -> np.ndarray:
    """[n, length] float32 of lists of numbers, or of texts such as "[0.1, 0.2]"; zeros where there is nothing.

    Raises:
        DataError: what is no number, or lists of several lengths, or of another than `length`.
    """
    where = f"{log.place}: " if log is not None else ""
    whole = values.combine_chunks()
    try:
        if not (pa.types.is_list(whole.type) or pa.types.is_large_list(whole.type) or pa.types.is_fixed_size_list(whole.type)):
            plain = pc.utf8_trim(pc.replace_substring_regex(_texts(whole), r"[\[\],\s]+", " "), " ")
            whole = pc.utf8_split_whitespace(pc.if_else(pc.equal(plain, ""), None, plain))
        lists = whole.cast(pa.list_(pa.float32()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{where}column {name} holds something else than lists of numbers (data.vectors): {error}") from None
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    length = length or int(sizes.max(initial=1))
    wrong = np.flatnonzero((sizes > 0) & (sizes != length))
    if len(wrong):
        raise DataError(f"{where}{sizes[wrong[0]]:,} numbers in row {wrong[0] + 1:,} of column {name}, and {length:,} in others: all "
                        "vectors of a column have one length (data.vectors)")
    found = np.zeros((len(sizes), length), np.float32)
    found[sizes > 0] = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, length)
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


def _where(log: Log, name: str, data: InteractionData) -> tuple[str, pa.Table]:
    for of, table in (("item", log.item_table), ("user", log.user_table), ("event", log.features)):
        if table is not None and name in table.column_names:
            return of, table
    _no_column(log, name, data)


def _in_train(log: Log, train: np.ndarray, of: str, data: InteractionData) -> np.ndarray:
    """[rows] bool: which rows of the table of items or users are of those that train has."""
    table, key = (log.item_table, data.item_key) if of == "item" else (log.user_table, data.user_key)
    who, ids = (log.items, log.item_ids) if of == "item" else (log.users, log.user_ids)
    assert table is not None and who is not None and ids is not None
    there = set(map(str, ids.values[np.unique(who[train])].tolist()))
    values = values_of(table, str(key), f"{of}s", f"data.{of}_key")
    found = np.array([value in there for value in values], bool)
    if there and not found.any():
        others = f"; the table has {values[0]!r} and others" if values else ""
        raise DataError(f"{getattr(data, f'{of}s')}: no id in column {key} is one of train, such as {min(there)!r}{others}. Write ids in "
                        f"both in the same way (data.{of}s)")
    return found


def _no_column(log: Log, name: str, data: InteractionData) -> NoReturn:
    there = [
        *log.features.column_names,
        *(log.item_table.column_names if log.item_table is not None else []),
        *(log.user_table.column_names if log.user_table is not None else []),
    ]
    setting = next(kind for kind in ("numbers", "categories", "lists", "vectors") if name in getattr(data, kind))
    raise DataError(f"{log.place} has no column {name!r} (data.{setting}); there are {listed(there, 'and')}{did_you_mean(name, there)}")


def _constant(log: Log, train: np.ndarray, name: str, kind: str, data: InteractionData) -> bool:
    """Whether no two events of one item differ in a column."""
    assert log.items is not None and log.item_ids is not None
    values = log.features[name].filter(pa.array(train))
    texts = pc.binary_join(_lists(values, data), "\x1f") if kind == "list" else _texts(values)
    codes = texts.fill_null("").dictionary_encode()
    codes = (codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes).indices.to_numpy(zero_copy_only=False)
    items = log.items[train]
    some = np.full(len(log.item_ids), -1, np.int64)
    some[items] = codes
    return bool(np.all(some[items] == codes))


def _texts(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _lists(values: pa.ChunkedArray, data: InteractionData) -> pa.ListArray:
    whole = values.combine_chunks()
    if pa.types.is_list(whole.type) or pa.types.is_large_list(whole.type):
        texts = whole.cast(pa.list_(pa.string()))
    else:
        texts = pc.split_pattern(_texts(whole).fill_null(""), data.list_separator)
    return texts.fill_null([]) if texts.null_count else texts


def _flat(lists: pa.ListArray) -> pa.Array:
    return lists.flatten()


def _codes(texts: pa.Array, known: list[str]) -> np.ndarray:
    """[n] int32: the place in `known` plus 1, or 0."""
    numbers_, ids, _ = encode(texts)
    place = {value: number + 1 for number, value in enumerate(known)}
    table = np.array([*(place.get(str(value), 0) for value in ids.values), 0], np.int32)
    return table[numbers_]


def _like(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *([1] * (values.ndim - 1)))
