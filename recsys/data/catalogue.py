"""What a run knows of users and items: ids, histories and features, learned from train alone.

Users and items are numbered from 1 within a run; 0 is the unknown one, and fills up histories.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.tables import values_of
from recsys.data.features import Facts, entity_arrays, learn
from recsys.data.log import Ids, Log
from recsys.data.protocol import NAMES, TRAIN
from recsys.data.sources import whole_number
from recsys.settings import InteractionData


@dataclass
class Histories:
    """Events by user, in the order of time: those of user u stand at offsets[u] .. offsets[u + 1] - 1.

    Attributes:
        offsets: [users + 2] int64; user 0, the unknown one, has none.
        items: [events] int32, from 1 (0 where the run does not know the item).
    """

    offsets: np.ndarray
    items: np.ndarray

    def of(self, user: int) -> np.ndarray:
        """The items of one user, oldest first."""
        return self.items[self.offsets[user] : self.offsets[user + 1]]

    def counts(self) -> np.ndarray:
        """Events of each user, [users + 1]."""
        return np.diff(self.offsets)


@dataclass
class RatedHistories(Histories):
    """The same with ratings, [events] float32 (1 where there are none), and times, [events] float64 (else the order of the rows)."""

    ratings: np.ndarray
    times: np.ndarray


@dataclass
class Catalogue:
    """Everything that the tasks share about the data of a run.

    Attributes:
        log: the events; parts: the part of each (see `protocol`); order: of the log in time.
        users, items: [n] int32, the run's number of each event's user and item; 0: unknown to train.
        user_ids, item_ids: as given, in the order of the numbers.
        counts: [1 + items] events of each item in train; counts[0] is 0.
        features: what was learned of the feature columns.
        item_features, user_features: name -> [1 + count, ...].
        titles: [items] texts, or None.
        new_items, new_users: how many of the last ids are not in train, but in the table of items or users.
        fallback: [1 + items] twice, how popular each item is to those without a history, by train, and by train and validation; None: as
            `counts` has it.
    """

    log: Log
    parts: np.ndarray
    users: np.ndarray
    items: np.ndarray
    user_ids: Ids | None
    item_ids: Ids | None
    counts: np.ndarray
    order: np.ndarray
    features: list[Facts] = field(default_factory=list)
    item_features: dict[str, np.ndarray] = field(default_factory=dict)
    user_features: dict[str, np.ndarray] = field(default_factory=dict)
    titles: list[str] | None = None
    new_items: int = 0
    new_users: int = 0
    fallback: tuple[np.ndarray, np.ndarray] | None = None

    def histories(self, parts: tuple[int, ...] = (TRAIN,)) -> Histories:
        """The events of these parts by user; those of the first part before the others, each in the order of time."""
        offsets, order = self._by_user(parts)
        return Histories(offsets, self.items[order])

    def rated_histories(self, parts: tuple[int, ...] = (TRAIN,)) -> RatedHistories:
        """As `histories`."""
        offsets, order = self._by_user(parts)
        ratings = self.log.ratings[order] if self.log.ratings is not None else np.ones(len(order), np.float32)
        times = self.log.times[order] if self.log.times is not None else self.log.rows[order].astype(np.float64)
        return RatedHistories(offsets, self.items[order], ratings, times)

    def _by_user(self, parts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, numbers of the events) of `histories`."""
        rank = self._rank(parts)
        order = self.order[rank[self.order] >= 0]
        return self.offsets(parts), by_part(order, self.users, rank)

    def offsets(self, parts: tuple[int, ...] = (TRAIN,)) -> np.ndarray:
        """Of `histories`, without their events."""
        count = len(self.user_ids) if self.user_ids is not None else 0
        return np.concatenate([[0], np.cumsum(np.bincount(self.users[self._rank(parts) >= 0], minlength=count + 1))])

    def _rank(self, parts: tuple[int, ...]) -> np.ndarray:
        """[n] int8: the place of each event's part among `parts`; -1 for other parts and unknown users."""
        ranks = np.full(len(NAMES) + 1, -1, np.int8)  # the last one: LEFT_OUT
        ranks[list(parts)] = np.arange(len(parts))
        return np.where(self.users > 0, ranks[self.parts], np.int8(-1))

    def said_of_new(self) -> list[str]:
        """How many items and users train does not have, in sentences."""
        return [f"{count:,} {of} of data.{of} are not in train: their columns say what they are like"
                for of, count in (("items", self.new_items), ("users", self.new_users)) if count]

    def facts(self) -> dict[str, Any]:
        """JSON values for the run: ids, titles, features."""
        facts: dict[str, Any] = {}
        if self.user_ids is not None:
            facts["user_ids"] = self.user_ids.values.tolist()
        if self.item_ids is not None:
            facts["item_ids"] = self.item_ids.values.tolist()
        if self.titles is not None:
            facts["titles"] = self.titles
        facts |= {name: value for name in ("new_items", "new_users") if (value := getattr(self, name))}
        return facts


def by_part(order: np.ndarray, users: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Events `order`, each user's in time, sorted by user and part; those of one part stay in time.

    Args:
        users, parts: [n] numbers of all events; part 0 comes first.
    """
    who, what = users[order], parts[order]
    sorted_so = (who[1:] > who[:-1]) | ((who[1:] == who[:-1]) & (what[1:] >= what[:-1]))
    return order if sorted_so.all() else order[np.lexsort((what, who))]


def build_catalogue(log: Log, parts: np.ndarray, data: InteractionData, known: dict[str, Any] | None = None,
                    described: Collection[str] = ()) -> Catalogue:
    """Numbers users and items as train has them, or as a run knows them, and learns the features.

    Args:
        known: facts of a finished run that is judged again: its model holds the features of items and users already.
        described: "item", "user" where the model knows them by their columns alone, too: those of their table that train does not have
            come behind the others.
    """
    train = parts == TRAIN
    learned = list(known.get("features", {}).values()) if known is not None else learn(log, train, data)
    new = {of: _of_table(log, data, of, learned) if of in described and known is None else [] for of in ("user", "item")}
    user_ids, users, user_places = _renumbered(log.users, log.user_ids, train, (known or {}).get("user_ids"), new["user"])
    item_ids, items, item_places = _renumbered(log.items, log.item_ids, train, (known or {}).get("item_ids"), new["item"])
    counts = np.bincount(items[train], minlength=len(item_ids) + 1 if item_ids is not None else 1)
    counts[0] = 0
    catalogue = Catalogue(log, parts, users, items, user_ids, item_ids, counts, log.in_time, learned)
    if known is not None:
        catalogue.titles = known.get("titles")
        catalogue.new_items, catalogue.new_users = known.get("new_items", 0), known.get("new_users", 0)
        columns = [one["name"] for one in learned if one["of"] == "item"]
        if item_ids is not None and log.item_table is not None and set(columns) <= set(log.item_table.column_names):
            catalogue.item_features = entity_arrays(log, train, learned, data, "item", item_ids.values, item_places)
        return catalogue
    if item_ids is not None:
        catalogue.new_items = len(item_ids) - len(item_places)
        catalogue.item_features = entity_arrays(log, train, learned, data, "item", item_ids.values, item_places)
        catalogue.titles = _titles(log, data, item_ids, item_places)
    if user_ids is not None:
        catalogue.new_users = len(user_ids) - len(user_places)
        catalogue.user_features = entity_arrays(log, train, learned, data, "user", user_ids.values, user_places)
    return catalogue


def _of_table(log: Log, data: InteractionData, of: str, learned: list[Facts]) -> list[str]:
    """The ids of the table of items or users, each once, where it has columns that say something of them."""
    table, key = (log.item_table, data.item_key) if of == "item" else (log.user_table, data.user_key)
    if table is None or not any(one["of"] == of and one["name"] in table.column_names for one in learned):
        return []
    return list(dict.fromkeys(values_of(table, str(key), f"{of}s", f"data.{of}_key")))


def _renumbered(
    numbers: np.ndarray | None,
    ids: Ids | None,
    train: np.ndarray,
    known: list[Any] | None,
    more: list[str],
) -> tuple[Ids | None, np.ndarray, np.ndarray]:
    """(ids that the run knows, the number of each event, the number in the log of each id that train has, which come first).

    Args:
        more: further ids that it is to know.
    """
    if numbers is None or ids is None:
        return None, np.zeros(len(train), np.int32), np.zeros(0, np.int64)
    table = np.zeros(len(ids) + 1, np.int32)
    if known is None:
        places = np.flatnonzero(np.bincount(numbers[train], minlength=len(ids)))
        table[places] = np.arange(1, len(places) + 1)
        values = ids.values[places]
        there = set(map(str, values.tolist()))
        new = [int(one) if ids.numeric else one for one in more if one not in there and (not ids.numeric or whole_number(one))]
        if new:
            values = np.concatenate([values, np.array(new)])
            by_id = {str(value): len(places) + place for place, value in enumerate(new, 1)}
            others = np.flatnonzero(table[:-1] == 0)
            table[others] = [by_id.get(str(value), 0) for value in ids.values[others].tolist()]
        return Ids(values), table[numbers], places
    by_id = {str(value): number + 1 for number, value in enumerate(known)}
    table[:-1] = [by_id.get(str(value), 0) for value in ids.values]
    return Ids(np.asarray(known)), table[numbers], np.zeros(0, np.int64)


def _titles(log: Log, data: InteractionData, ids: Ids, places: np.ndarray) -> list[str] | None:
    key = data.title_key
    if key is None:
        return None
    if log.item_table is not None and key in log.item_table.column_names:
        by_id = dict(zip(values_of(log.item_table, str(data.item_key), "items", "data.item_key"), log.item_table[key].to_pylist()))
        return [str(by_id.get(str(value)) or value) for value in ids.values.tolist()]
    if key not in log.features.column_names:
        from pipelines.data.tables import column

        column(log.features, key, log.place, "data.title_key")
    assert log.items is not None and log.item_ids is not None
    first = np.full(len(log.item_ids), -1, np.int64)
    first[log.items[::-1]] = np.arange(len(log) - 1, -1, -1)
    texts = log.features[key].take(pa.array(first[places])).to_pylist() + [None] * (len(ids) - len(places))
    return [str(text) if text else str(value) for text, value in zip(texts, ids.values.tolist())]
