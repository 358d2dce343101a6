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

from pipelines.base.formatting import duration
from pipelines.data.source import ArraySource
from recsys.closed_form import content, ease, item_knn
from recsys.closed_form.fitting import described, fit
from recsys.closed_form.histories import Scores, Value, ages, had
from recsys.data.catalogue import Catalogue, by_part
from recsys.data.protocol import NAMES, TEST, TRAIN, VALIDATION
from recsys.metrics import baselines
from recsys.settings import ClosedForm, Ease, ItemKnn, RankedEvaluate

COLD = -1  # a held-out item that train does not have
CHOOSING = 1_000  # validation users who choose settings, at most
NEWCOMERS = 20  # validation users without a history from whom on they choose what such users get
RANK = 512  # of the baseline EASE: half of the model's, for half of the time, and no worse where both were tried


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
        """The visible items of users `numbers`: [len(numbers), 1 + items], see `closed_form.histories.ages`."""
        counts = np.diff(self.visible_of)[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        places = np.repeat(self.visible_of[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return ages(rows, self.visible[places], len(numbers), items)

    def pairs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row in `numbers`, item) of each held-out event, and how many each user has."""
        counts = np.diff(self.held_of)[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        places = np.repeat(self.held_of[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return rows, self.held[places], counts


def held_out(catalogue: Catalogue, part: int) -> Held | None:
    """The users who have events in a part; what came in earlier parts is visible. None where there are none.

    Of users whom the run does not know nothing is visible, also where validation has events of theirs: they are answered, and judged,
    without a history.
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
    """What models in closed form are fitted on and chosen by, baselines among them; each is fitted once, when first needed.

    Attributes:
        catalogue: the events.
        timely: they are in order, and the latest are held out.
        validation: the validation users, by whom settings are chosen.
        chosen: name of a baseline -> what they chose of it.
        extent, late: see `popular_of_late`.
        days: [1 + items], how long before the end of train each item first came; None: no times are known.
    """

    catalogue: Catalogue
    titles: list[str]
    timely: bool
    validation: Held | None = None
    notes: list[str] = field(default_factory=list)
    fitted: dict[tuple[str, bool], Any] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)
    extent: float = 0.0
    days: np.ndarray | None = None
    late: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

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

    def has(self, of: str, numbers: np.ndarray) -> np.ndarray:
        """Which numbers, of any shape, are of users or items (`of`) that train has: bool."""
        ids = self.catalogue.user_ids if of == "users" else self.catalogue.item_ids
        assert ids is not None
        return (numbers > 0) & (numbers <= len(ids) - getattr(self.catalogue, f"new_{of}"))

    @cached_property
    def new(self) -> np.ndarray:
        """[1 + items] bool: those that train does not have."""
        return self.allowed & ~self.has("items", np.arange(self.items + 1))

    @cached_property
    def vectors(self) -> sparse.csc_matrix:
        """[1 + users, 1 + items] float32: who had each item in train, of length 1."""
        matrix = had(self.catalogue.histories((TRAIN,)), self.items)
        lengths = np.sqrt(np.maximum(np.asarray(matrix.sum(axis=0)).ravel(), 1.0))
        return (matrix @ sparse.diags(1.0 / lengths)).tocsc()

    def value(self, settings: RankedEvaluate, *, newcomers: bool = False) -> Value | None:
        """NDCG at the first cut-off on at most CHOOSING validation users; None where there are none.

        Args:
            newcomers: of those without a history, where there are NEWCOMERS of them or more.
        """
        if self.validation is None:
            return None
        new = np.flatnonzero(np.diff(self.validation.visible_of) == 0)
        people = new if newcomers and len(new) >= NEWCOMERS else np.arange(len(self.validation))
        numbers = people[spread(len(people), CHOOSING)]
        rows, held, counts = self.validation.pairs(numbers)
        matrix = self.validation.matrix(self.items, numbers)
        users = {"rows": matrix, "seen": matrix if settings.exclude_seen else None, "held_users": rows, "held_items": held, "held": counts}
        return lambda scores: baselines.ndcg(scores, users, settings.cutoffs[0], self.allowed)

    def fit(self, model: ClosedForm, settings: RankedEvaluate, *, final: bool = False, seed: int = 0) -> Any:
        """A model in closed form, fitted to train with what validation chooses; `final`: to train and validation, all being chosen."""
        value = None if final else self.value(settings)
        histories = self.catalogue.histories((TRAIN, VALIDATION) if final else (TRAIN,))
        late = {many: scores[int(final)] for many, scores in self.late.items()}
        return fit(histories, self.items, model, value, timely=self.timely, seed=seed, late=late)

    def scores(self, name: str, settings: RankedEvaluate, *, final: bool = False) -> Scores | np.ndarray | None:
        """One baseline as `fit` fits it, or None where it takes too much time or memory (then a note says so)."""
        key = name, final
        if key not in self.fitted:
            self.fitted[key] = self._fitted(name, settings, final)
        return self.fitted[key]

    def _fitted(self, name: str, settings: RankedEvaluate, final: bool) -> Scores | np.ndarray | None:
        if name == "popularity":
            return self.popular(final=final)
        if name == "recent":
            return self._recent(settings, final)
        if name == "content":
            return self.scores(name, settings) if final else self._content(settings)
        if final:
            chosen: Any = self.scores(name, settings)
            return None if chosen is None else self.fit(chosen.settings, settings, final=True)
        train = self.catalogue.histories((TRAIN,))
        if name == "item_knn" and not self.timely and not item_knn.fits(train):
            self.notes.append("item_knn is left out: so many items have a user in common that it would take hours")
            return None
        if name == "ease" and not ease.fits(len(train.offsets) - 2, self.items):
            self.notes.append(f"EASE is left out: {len(train.offsets) - 2:,} users x {self.items:,} items do not fit its memory")
            return None
        baseline = ItemKnn(name="item_knn", neighbours=settings.neighbours) if name == "item_knn" else Ease(name="ease", rank=RANK)
        tried = [baseline.model_copy(update={"l2": l2}) for l2 in settings.ease_l2 or ()] if name == "ease" else []
        every = [self.fit(one, settings) for one in tried or [baseline]]
        value = self.value(settings) if len(every) > 1 else None
        fitted: Scores = max(every, key=value) if value else every[0]
        self.notes.append(f"Baseline {described(fitted)}, {'chosen on validation' if self.validation else 'as it is by default'}")  # type: ignore[arg-type]
        return fitted

    def _content(self, settings: RankedEvaluate) -> content.Content | None:
        """What items are like is not learned from who had them: it is the same whatever may be learned from."""
        fitted = content.fit(self.catalogue.features, self.catalogue.item_features, self.counts, self.value(settings), timely=self.timely)
        if fitted is not None:
            self.notes.append(f"Baseline content: by the columns of items, decay {fitted.decay:g}, "
                              f"{'chosen on validation' if self.validation else 'as it is by default'}")
        return fitted

    def popular(self, *, final: bool) -> np.ndarray:
        """[1 + items] float32: events of each item that may be learned from."""
        events = self.catalogue.histories((TRAIN, VALIDATION) if final else (TRAIN,)).items
        return np.bincount(events, minlength=self.items + 1).astype(np.float32)

    def fallback(self, settings: RankedEvaluate) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """(scores [1 + items] for those without a history, learned from train; those of train and validation; a note).

        They are popularity, or that of late where validation likes it better.
        """
        popular, value = self.popular(final=False), self.value(settings, newcomers=True)
        if value is not None and self.late:
            liked = {many: value(scores) for many, (scores, _) in self.late.items()}
            many = max(liked, key=lambda one: liked[one])
            if liked[many] > value(popular):
                note = ("Who has no history gets what was popular of late: an event counts half for every "
                        f"{duration(self.extent / many)} of its age, chosen on validation")
                return *self.late[many], [note]
        return popular, self.popular(final=True), []

    def _recent(self, settings: RankedEvaluate, final: bool) -> np.ndarray | None:
        """Popularity of late with the half-life that validation likes best; None where events have no times that differ."""
        if not self.late:
            return None
        if "recent" not in self.chosen:
            tried, value = list(self.late), self.value(settings)
            self.chosen["recent"] = max(tried, key=lambda one: value(self.late[one][0])) if value else tried[1]
            self.notes.append("Baseline recent: popularity, an event counts half for every "
                              f"{duration(self.extent / self.chosen['recent'])} of its age"
                              + (", chosen on validation" if value else ""))
        return self.late[self.chosen["recent"]][int(final)]


def popular_of_late(catalogue: Catalogue) -> tuple[float, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """(extent of train in time, s; half-lives in it -> popularity of late [1 + items] in train, and in train and validation);
    nothing where no times differ."""
    times, parts, items = catalogue.log.times, catalogue.parts, len(catalogue.counts) - 1
    if times is None or (extent := float(np.ptp(times[parts == TRAIN]))) <= 0:
        return 0.0, {}

    def of(half_life: float, *learned: int) -> np.ndarray:
        there = np.isin(parts, learned)
        return baselines.recent(catalogue.items[there], times[there], items, half_life)

    return extent, {many: (of(extent / many, TRAIN), of(extent / many, TRAIN, VALIDATION)) for many in baselines.HALF_LIVES}


def known_for(catalogue: Catalogue) -> np.ndarray:
    """[1 + items] days from the first event of each item in train to the last of all; 0 of the unknown."""
    there = (catalogue.parts == TRAIN) & (catalogue.items > 0)
    assert catalogue.log.times is not None
    times, first = catalogue.log.times[there], np.full(len(catalogue.counts), np.inf)
    np.minimum.at(first, catalogue.items[there], times)
    return np.where(np.isfinite(first), times.max(initial=0.0) - first, 0.0) / 86_400.0


class UserSource(ArraySource):
    """Users of one part as examples: user, history, seen and held; of these what has no fixed length as packed bytes.

    Args:
        length: latest items of a history, [length] with 0 in front; None: all of them, packed, oldest first.
        final: all else may be learned from, validation too.
    """

    def __init__(self, held: Held, basis: Basis, *, length: int | None, exclude_seen: bool, place: str, fingerprint: str,
                 final: bool = False):
        counts = np.diff(held.visible_of)
        history = packed_all(held.visible, held.visible_of) if length is None else latest(held, length)
        nothing = np.zeros(len(held.visible_of), np.int64)
        arrays = {
            "user": held.users,
            "history": history,
            "seen": packed(held.visible, held.visible_of if exclude_seen else nothing),
            "held": packed_all(held.held, held.held_of),
        }
        super().__init__(arrays, names=lambda number: f"{place}: user {held.names[number]}", fingerprint=fingerprint)
        self.people, self.basis, self.visible_counts, self.final = held, basis, counts, final


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


def train_users(catalogue: Catalogue, count: int, *, length: int | None, exclude_seen: bool, timely: bool) -> UserSource:
    """At most `count` users of train, evenly apart, with their train events and nothing held out."""
    assert catalogue.user_ids is not None
    held = trained(catalogue, np.asarray(spread(len(catalogue.user_ids) - catalogue.new_users, count), np.int32) + 1)
    basis = Basis(catalogue, titles_of(catalogue), timely)
    log = catalogue.log
    return UserSource(held, basis, length=length, exclude_seen=exclude_seen, place=log.place, fingerprint=f"{log.digest}-shown")


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` places of `count`, evenly apart."""
    return sorted({int(place) for place in np.linspace(0, count - 1, min(wanted, count))}) if count and wanted else []


def user_sources(catalogue: Catalogue, *, length: int | None, exclude_seen: bool, timely: bool) -> dict[str, UserSource]:
    """validation and test, as far as the protocol has them."""
    people = {name: held_out(catalogue, number) for number, name in enumerate(NAMES) if number != TRAIN}
    extent, late = popular_of_late(catalogue) if timely else (0.0, {})
    basis = Basis(catalogue, titles_of(catalogue), timely, people["validation"], extent=extent, late=late,
                  days=known_for(catalogue) if late else None)
    return {
        name: UserSource(
            held,
            basis,
            length=length,
            exclude_seen=exclude_seen,
            place=catalogue.log.place,
            fingerprint=f"{catalogue.log.digest}-{name}-{len(held)}-{int(held.held_of[-1])}",
            final=name == NAMES[TEST] and people["validation"] is not None,
        )
        for name, held in people.items()
        if held is not None
    }
