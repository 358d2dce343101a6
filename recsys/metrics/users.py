"""Users to be judged: an example is a user with a history and what was held out, and keeps what baselines need.

Lists of differing length (what was seen, what is held out) are stored as bytes, so that one user with thousands of items
costs no memory for the others; `unpacked` makes them numbers again in graph.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import sparse

from pipelines.data.source import ArraySource
from recsys.data.catalogue import Catalogue, by_part
from recsys.data.protocol import NAMES, TRAIN
from recsys.metrics import baselines
from recsys.settings import RankedEvaluate

COLD = -1  # a held-out item that train does not have


@dataclass
class Held:
    """Some users' visible and held-out items.

    Attributes:
        users: [n] int32 of the run, 0: unknown to train.
        names: [n] ids as given.
        visible: items before, oldest first; visible_of says at which place those of each user begin: [n + 1].
        held: held-out items (COLD for those unknown to train), held_of likewise.
    """

    users: np.ndarray
    names: np.ndarray
    visible: np.ndarray
    visible_of: np.ndarray
    held: np.ndarray
    held_of: np.ndarray

    def __len__(self) -> int:
        return len(self.users)

    def matrix(self, items: int, numbers: np.ndarray) -> sparse.csr_matrix:
        """The visible items of users `numbers`: [len(numbers), 1 + items], 1 where there."""
        counts = np.diff(self.visible_of)[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        places = np.repeat(self.visible_of[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        columns = self.visible[places]
        there = columns > 0
        rows_by_item = sparse.csr_matrix((np.ones(there.sum(), np.float32), (rows[there], columns[there])), shape=(len(numbers), items + 1))
        rows_by_item.data[:] = 1.0
        return rows_by_item

    def pairs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row in `numbers`, item) of each held-out event, and how many each user has."""
        counts = np.diff(self.held_of)[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        places = np.repeat(self.held_of[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return rows, self.held[places], counts


def held_out(catalogue: Catalogue, part: int) -> Held | None:
    """The users who have events in a part; what came in earlier parts is visible. None where there are none.

    Of users whom train does not have nothing is visible, also where validation has events of theirs: the run does not know them, so
    they are answered, and judged, without a history.
    """
    log, parts = catalogue.log, catalogue.parts
    assert log.users is not None and log.user_ids is not None
    users = log.users
    who = np.zeros(len(log.user_ids), bool)
    who[users[parts == part]] = True
    if not who.any():
        return None
    order = log.in_time[who[users[log.in_time]]]
    order = by_part(order, users, parts)
    numbers = np.cumsum(who) - 1

    def split(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = order[mask]
        counts = np.bincount(numbers[users[chosen]], minlength=int(who.sum()))
        return catalogue.items[chosen], np.concatenate([[0], np.cumsum(counts)])

    visible, visible_of = split((parts[order] < part) & (catalogue.users[order] > 0))
    held, held_of = split(parts[order] == part)
    known = np.zeros(len(log.user_ids), np.int32)
    known[log.users] = catalogue.users
    return Held(known[who], log.user_ids.values[who], visible, visible_of, np.where(held > 0, held, COLD).astype(np.int32), held_of)


def trained(catalogue: Catalogue, users: np.ndarray) -> Held:
    """These users of the run with their train events, and nothing held out."""
    assert catalogue.user_ids is not None
    histories = catalogue.histories((TRAIN,))
    visible = [histories.of(int(user)) for user in users]
    visible_of = np.concatenate([[0], np.cumsum([len(items) for items in visible])]).astype(np.int64)
    items = np.concatenate(visible) if visible else np.zeros(0, np.int32)
    return Held(users, catalogue.user_ids.values[users - 1], items, visible_of, np.zeros(0, np.int32), np.zeros(len(users) + 1, np.int64))


def packed(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """[n] object: the values of each as the bytes of int32, each once."""
    plain = values.astype("<i4")
    return np.array([np.unique(plain[start:stop]).tobytes() for start, stop in pairwise(offsets)] + [b""], object)[:-1]


def unpacked(texts: tf.Tensor) -> tf.Tensor:
    """[batch] string as `packed` makes them into [batch, longest] int32, filled up with 0; in graph."""
    longest = tf.maximum(tf.reduce_max(tf.strings.length(texts)), 4)
    return tf.io.decode_raw(texts, tf.int32, fixed_length=longest)


@dataclass
class Basis:
    """What baselines are fitted on and chosen by; fitted once, when first needed.

    Attributes:
        catalogue: the events; of them train counts.
        validation: the validation users, by whom the regularisation of EASE is chosen.
    """

    catalogue: Catalogue
    titles: list[str]
    validation: Held | None = None
    notes: list[str] = field(default_factory=list)
    fitted: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def train(self) -> sparse.csr_matrix:
        """[1 + users, 1 + items] float32, 1 where the user had the item in train."""
        return train_matrix(self.catalogue)

    @property
    def counts(self) -> np.ndarray:
        """[1 + items] train events of each item."""
        return self.catalogue.counts

    @property
    def items(self) -> int:
        return len(self.counts) - 1

    @cached_property
    def allowed(self) -> np.ndarray:
        """[1 + items] bool: candidates; the unknown item is none."""
        return np.arange(self.items + 1) > 0

    def chooses(self, settings: RankedEvaluate, most: int | None = None) -> dict[str, Any] | None:
        """The validation users, at most `most` of them, as `baselines.ndcg` takes them; None where there are none."""
        if self.validation is None:
            return None
        numbers = np.asarray(spread(len(self.validation), most or len(self.validation)))
        rows, held, counts = self.validation.pairs(numbers)
        matrix = self.validation.matrix(self.items, numbers)
        seen = matrix if settings.exclude_seen else None
        return {"rows": matrix, "seen": seen, "held_users": rows, "held_items": held, "held": counts}

    def scores(self, name: str, settings: RankedEvaluate) -> baselines.Scores | None:
        """One baseline, or None where it does not fit memory (then a note says so)."""
        if name in self.fitted:
            return self.fitted[name]
        scores: baselines.Scores | None = None
        if name == "popularity":
            scores = baselines.popularity(self.train)
        elif name == "item_knn":
            if baselines.knn_fits(self.train):
                scores = baselines.item_knn(self.train, settings.neighbours)
            else:
                self.notes.append("item_knn is left out: so many items have a user in common that it would take hours")
        elif not baselines.ease_fits(self.train):
            self.notes.append(f"EASE is left out: {self.train.shape[0] - 1:,} users x {self.items:,} items do not fit its memory")
        else:
            validation = self.chooses(settings)
            l2, scores = baselines.best_ease(self.train, settings.ease_l2, validation, settings.cutoffs[0], self.allowed)
            how = "chosen on validation" if validation is not None and len(settings.ease_l2) > 1 else "as set"
            self.notes.append(f"EASE: l2 {l2:g}, {how}")
        self.fitted[name] = scores
        return scores


class UserSource(ArraySource):
    """Users of one part as examples: user, history, seen and held; of these what has no fixed length as packed bytes.

    Args:
        length: latest items of a history, [length] with 0 in front; None: all of them, packed.
    """

    def __init__(self, held: Held, basis: Basis, *, length: int | None, exclude_seen: bool, place: str, fingerprint: str):
        counts = np.diff(held.visible_of)
        history = packed(held.visible, held.visible_of) if length is None else latest(held, length)
        nothing = np.zeros(len(held.visible_of), np.int64)
        arrays = {
            "user": held.users,
            "history": history,
            "seen": packed(held.visible, held.visible_of if exclude_seen else nothing),
            "held": packed_all(held.held, held.held_of),
        }
        super().__init__(arrays, names=lambda number: f"{place}: user {held.names[number]}", fingerprint=fingerprint)
        self.people, self.basis, self.visible_counts = held, basis, counts


def latest(held: Held, length: int) -> np.ndarray:
    """The last `length` visible items of each user, 0 in front: [users, length] int32."""
    if not len(held.visible):
        return np.zeros((len(held), length), np.int32)
    places = held.visible_of[1:][:, None] - length + np.arange(length)
    there = places >= held.visible_of[:-1][:, None]
    return np.where(there, held.visible[np.clip(places, 0, len(held.visible) - 1)], 0).astype(np.int32)


def packed_all(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """`packed`, with repetitions and order kept."""
    plain = values.astype("<i4")
    return np.array([plain[start:stop].tobytes() for start, stop in pairwise(offsets)] + [b""], object)[:-1]


def titles_of(catalogue: Catalogue) -> list[str]:
    """What the items are called, by number: their titles, or else their ids."""
    assert catalogue.item_ids is not None
    return catalogue.titles or [str(value) for value in catalogue.item_ids.values.tolist()]


def train_users(catalogue: Catalogue, count: int, *, length: int | None, exclude_seen: bool) -> UserSource:
    """At most `count` users of train, evenly apart, with their train events and nothing held out."""
    assert catalogue.user_ids is not None
    held = trained(catalogue, np.asarray(spread(len(catalogue.user_ids), count), np.int32) + 1)
    basis = Basis(catalogue, titles_of(catalogue))
    log = catalogue.log
    return UserSource(held, basis, length=length, exclude_seen=exclude_seen, place=log.place, fingerprint=f"{log.digest}-shown")


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` places of `count`, evenly apart."""
    return sorted({int(place) for place in np.linspace(0, count - 1, min(wanted, count))}) if count and wanted else []


def train_matrix(catalogue: Catalogue) -> sparse.csr_matrix:
    """[1 + users, 1 + items] float32, 1 where the user had the item in train."""
    assert catalogue.user_ids is not None and catalogue.item_ids is not None
    train = catalogue.parts == TRAIN
    matrix = sparse.csr_matrix(
        (np.ones(int(train.sum()), np.float32), (catalogue.users[train], catalogue.items[train])),
        shape=(len(catalogue.user_ids) + 1, len(catalogue.item_ids) + 1),
    )
    matrix.data[:] = 1.0
    return matrix


def user_sources(catalogue: Catalogue, *, length: int | None, exclude_seen: bool) -> dict[str, UserSource]:
    """validation and test, as far as the protocol has them."""
    people = {name: held_out(catalogue, number) for number, name in enumerate(NAMES) if number != TRAIN}
    basis = Basis(catalogue, titles_of(catalogue), people["validation"])
    return {
        name: UserSource(
            held,
            basis,
            length=length,
            exclude_seen=exclude_seen,
            place=catalogue.log.place,
            fingerprint=f"{catalogue.log.digest}-{name}-{len(held)}-{int(held.held_of[-1])}",
        )
        for name, held in people.items()
        if held is not None
    }
