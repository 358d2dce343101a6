"""What lies in a table of interactions: who, what, when, how much, and which of it divides the data. Imports no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.config.messages import listed
from pipelines.data.columns import Facts, by_name, fit, number_of, plain
from pipelines.data.frame import Frame, open_frame, split_column, stops_at
from pipelines.data.times import MIXED, Times, read_times

ROLES = ("user", "item", "rating", "time", "label", "split")
MOST = 30  # values of a text column that counts as a category
ORDERS = ("order", "sequence", "step")  # names of a column that may number a user's events
LOGGED = {"item": ("action", "action_id", "arm", "arm_id", "choice", "decision", "treatment", "variant"),  # names in a log of choices
          "click": ("reward", "payoff", "outcome", "gain", "click", "clicked", "conversion", "converted"),
          "position": ("position", "slot", "rank", "place")}
SURELY, LIKELY = {"propensity", "propensities", "pscore"}, {"prob", "probability"}  # words in the name of a choice's probability
UNREAD = 0.05  # share of times that may be unreadable


@dataclass
class Seen:
    """The columns by role, as the table has them; None where there is none.

    Attributes:
        frame: the table.
        rating: how much; click: 0 or 1, to be predicted.
        propensity: how probable a choice was that was logged; position: the place in a list that it was shown at.
        parts: role -> value of the column that divides the data.
        numbers, categories: further columns.
        middle: rating from which liking begins.
        time_format: what data.time_format must say, where the reader needs it; time_comment: why.
        together: share of the users who have several events at their last moment, which is one basket.
        unread: rows whose time or rating cannot be read.
        files: role -> file, where a folder has one for each split.
        notes: further remarks, a line each.
    """

    frame: Frame
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    click: str | None = None
    time: str | None = None
    title: str | None = None
    propensity: str | None = None
    position: str | None = None
    split: str | None = None
    parts: dict[str, str | None] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    middle: float | None = None
    time_format: str | None = None
    time_comment: str = ""
    together: float = 0.0
    unread: int = 0
    files: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def roles(self) -> dict[str, str | None]:
        """Role -> column of the table."""
        roles = ("user", "item", "rating", "click", "time", "title", "propensity", "position", "split")
        return {role: getattr(self, role) for role in roles}

    @property
    def keys(self) -> dict[str, str]:
        """Role -> column as the experiment calls it."""
        return self.frame.named(self.roles)[0]

    @property
    def columns(self) -> list[str] | None:
        """What to call the columns of a file that does not name them."""
        return self.frame.named(self.roles)[1]

    def called(self, name: str) -> str:
        """A column for a person: its name, or its place from 1."""
        return name if self.frame.header else f"{int(name) + 1}"


def look(path: Path, asked: Asked) -> Seen:
    """Raises DataError for a table without users or items, or whose times cannot be read."""
    frame = open_frame(path)
    names, facts = frame.names, frame.facts
    given: dict[str, str | None] = dict(asked.roles(names, path, ("user", "item", "rating", "time", "split", "label")))
    if "label" in given:
        given["click"] = given.pop("label")
    own = {role: name for role, name in given.items() if name is not None}
    split, parts = split_column({name: frame.values[name] for name in names if name not in own.values() or name == own.get("split")},
                                own.get("split"), path, asked)
    seen = Seen(frame, split=split, parts=parts)
    free = [name for name in names if name != split]
    choices = _choices(free, facts, asked, own)
    own.update({role: name for role, name in choices.items() if role in ("item", "click", "rating")})
    free = [name for name in free if name not in choices.values() or name in own.values()]
    wanted = [role for role in ("user", "item", "time", "rating", "click") if not asked.absent("label" if role == "click" else role)]
    roles = by_name(free, wanted, {**own, **({"split": split} if split else {})}) if frame.header else dict(own)
    for role, fits in (("rating", lambda one: one.kind == "number" and one.distinct > 1), ("click", _is_click)):
        if role in roles and role not in own and not fits(facts[roles[role]]):
            name = roles.pop(role)
            if role == "rating" and facts[name].kind == "text":
                example = next(value for value in frame.values[name] if value and number_of(value) is None)
                seen.notes.append(f"Column {seen.called(name)} is called like a rating, but holds texts such as {example!r}: it is not "
                                  "used as one.")
    if "rating" in roles and "rating" not in own and facts[roles["rating"]].distinct == 2 and _is_click(facts[roles["rating"]]):
        roles.setdefault("click", roles.pop("rating"))
    if "click" in roles and "rating" in roles and "click" not in own:
        del roles["click"]
    _by_values(roles, {name: facts[name] for name in free if name not in roles.values()}, facts, wanted, seen, frame)
    seen.user, seen.item, seen.rating, seen.click, seen.time = (roles.get(role) for role in ("user", "item", "rating", "click", "time"))
    seen.propensity, seen.position = choices.get("propensity"), choices.get("position")
    shown = listed([seen.called(name) for name in names], "and")
    for role in ("item", "user"):
        if getattr(seen, role) is None and seen.click is None:
            raise DataError(f"{path}: no column is called like {'an item' if role == 'item' else 'a user'}; there are {shown}. Name it "
                            f"with --{role}" + ("" if role == "user" else ", or a click (0 or 1) with --label"))
    if seen.time is None and "time" in wanted and (order := _order(seen, [name for name in free if name not in roles.values()])):
        seen.time = order
        seen.notes.append(f"Column {order} numbers each user's events: it is taken for their order in time (--time none: it is not).")
    elif seen.time:
        _look_at_times(seen, asked, path)
    if seen.rating:
        seen.middle = middle(facts[seen.rating], frame.values[seen.rating])
    for target in (seen.rating, seen.click):
        if target and (odd := facts[target].odd):
            seen.unread += odd
            seen.notes.append(f"{odd:,} row{'s are' if odd > 1 else ' is'} passed over: {facts[target].odd_value!r} in column "
                              f"{seen.called(target)} is no number.")
    seen.title = _title(seen, [name for name in free if name not in roles.values()])
    rest = [name for name in names if name not in seen.roles.values()]
    if frame.header:
        numbers = [name for name in rest if facts[name].kind == "number" and _plain_number(frame, name) and fit(name, "title") is None]
        seen.numbers = [name for name in numbers if plain(name).split("_")[0] not in ("", "unnamed") and not _says(name, SURELY)]
        most = MOST if seen.propensity is None else max(MOST, frame.rows // 20)
        seen.categories = [name for name in rest if facts[name].kind == "text" and facts[name].distinct <= most]
    if note := frame.passed_over():
        seen.notes.append(note)
    return seen


def _choices(free: list[str], facts: Mapping[str, Facts], asked: Asked, own: Mapping[str, str]) -> dict[str, str]:
    """The columns of a log of choices: propensity, item (the action), click or rating (the reward) and position; empty where the log has
    no propensities, or something else is asked for."""
    def called(names: tuple[str, ...]) -> str | None:
        return next((name for wanted in names for name in free if plain(name) == wanted), None)

    likely = [name for name in free if facts[name].kind == "number" and (
        _says(name, SURELY) or (_says(name, LIKELY) and facts[name].low > 0 and facts[name].high <= 1))]
    if not likely or asked.task not in (None, "bandit"):
        return {}
    reward = own.get("click") or own.get("rating") or called(LOGGED["click"]) or by_name(free, ["rating"]).get("rating")
    action = own.get("item") or called(LOGGED["item"]) or by_name([name for name in free if name != reward], ["item"]).get("item")
    if reward is None or action is None or facts[reward].kind != "number":
        return {}
    found = {"propensity": likely[0], "item": action, "click" if _is_click(facts[reward]) else "rating": reward}
    position = called(LOGGED["position"])
    return {**found, **({"position": position} if position and facts[position].distinct <= MOST else {})}


def _says(name: str, words: set[str]) -> bool:
    return not words.isdisjoint(plain(name).split("_"))


def _by_values(roles: dict[str, str], free: dict[str, Facts], facts: Mapping[str, Facts], wanted: list[str], seen: Seen, frame: Frame,
               ) -> None:
    """Roles that no name tells, by what the columns hold: times by their range, ratings by their few values, ids in the usual order."""
    if "time" in wanted and "time" not in roles:
        time = next((name for name, one in free.items() if one.looks_timed), None) or next((
            name for name, one in free.items() if one.kind in ("text", "other") and one.distinct > 2 and _times(frame, name, 200)), None)
        if time is not None:
            roles["time"] = time
            free.pop(time)
    if "rating" in wanted and not {"rating", "click"} & set(roles) and {"user", "item"} - set(roles):
        rating = next((name for name, one in reversed(free.items()) if one.looks_rated and (len(free) > 2)), None)
        if rating is not None:
            roles["rating"] = rating
            free.pop(rating)
    ids = [name for name, one in free.items() if one.distinct > 1 and (one.kind == "text" or (one.kind == "number" and one.whole))
           and one.present > one.distinct]
    missing = [role for role in ("user", "item") if role in wanted and role not in roles]
    if missing and len(ids) == len(missing) and "click" not in roles and (not frame.header or len(missing) == 1 or len(free) == 2):
        if frame.header and len(missing) == 2 and not {"rating", "time"} & set(roles):
            return
        roles.update(zip(missing, ids))
        seen.notes.append("Guessed: " + listed([f"{role}s in column {seen.called(name)}" for role, name in zip(missing, ids)], "and")
                          + f"; if not, name them with {listed([f'--{role}' for role in missing], 'and')}.")


def _order(seen: Seen, free: list[str]) -> str | None:
    """A column that numbers each user's events, none of them twice."""
    name = next((name for name in free if plain(name) in ORDERS and seen.frame.facts[name].kind == "number"), None)
    if name is None or seen.user is None or not seen.frame.header or seen.frame.table is None:
        return None
    pairs = seen.frame.table.select([seen.user, name])
    return name if len(pairs.group_by([seen.user, name]).aggregate([])) == len(pairs) else None


def _is_click(one: Facts) -> bool:
    return one.kind == "number" and one.whole and one.low >= 0 and one.high <= 1


def _column(frame: Frame, name: str, most: int | None = None) -> pa.ChunkedArray:
    assert frame.table is not None
    return frame.table[name] if most is None else frame.table[name].slice(0, most)


def _times(frame: Frame, name: str, most: int) -> bool:
    read = read_times(_column(frame, name, most))
    return len(read.wrong) <= UNREAD * len(read.seconds) and read.how != "s"


def _look_at_times(seen: Seen, asked: Asked, path: Path) -> None:
    assert seen.time is not None
    read: Times = read_times(_column(seen.frame, seen.time))
    if len(read.wrong) > UNREAD * max(1, len(read.seconds)):
        value = next(iter(read.wrong.values()))
        raise DataError(f"{path}: column {seen.called(seen.time)} is called like a time, but {len(read.wrong):,} of {len(read.seconds):,} "
                        f"values are none that is understood, such as {value!r}; name another column with --time, or --time none: there "
                        "are no times")
    seen.unread += len(read.wrong)
    if read.wrong:
        unread = sum(value is not None for value in read.wrong.values())
        seen.notes.append(f"{len(read.wrong):,} rows are passed over: no time in column {seen.called(seen.time)}."
                          f"{stops_at(unread, len(read.seconds))}")
    if read.mixed:
        seen.notes.append(f"Column {seen.called(seen.time)} {MIXED}.")
    if seen.user is not None:
        seen.together = _together(_column(seen.frame, seen.user), read.seconds)
    if read.ambiguous:
        seen.time_format, seen.time_comment = read.how, f"a guess: {read.example} may have the day first; then day_first"
        seen.notes.append(f"Whether {read.example} in column {seen.called(seen.time)} has the day or the month first cannot be told "
                          "from the data.")
    elif read.how in ("ms", "us", "ns", "compact", "day_first", "month_first", "year_first") and not read.mixed:
        seen.time_format, seen.time_comment = read.how, f"such as {read.example}"


def _together(users: pa.ChunkedArray, seconds: np.ndarray) -> float:
    """Share of the users who have several events at their last moment."""
    known = np.isfinite(seconds)
    numbers = np.asarray(users.combine_chunks().dictionary_encode().indices.fill_null(-1))
    known &= numbers >= 0
    numbers, seconds = numbers[known], seconds[known]
    if not len(numbers):
        return 0.0
    last = np.full(numbers.max() + 1, -np.inf)
    np.maximum.at(last, numbers, seconds)
    at_last = np.bincount(numbers[seconds == last[numbers]], minlength=len(last))
    return float(np.sum(at_last > 1) / np.sum(at_last > 0))


def middle(facts: Facts, values: Any) -> float:
    """The rating from which liking begins: the lowest above the middle of the scale, where there are few; else the middle."""
    half = (facts.low + facts.high) / 2
    if facts.distinct > 100:
        return half
    return min((number for value in set(values) if (number := number_of(value)) is not None and number > half), default=facts.high)


def _title(seen: Seen, free: list[str]) -> str | None:
    """A column with the items' titles: texts, one for each item."""
    name = by_name(free, ["title"]).get("title") if seen.frame.header else None
    if name is None or seen.item is None or seen.frame.facts[name].kind != "text":
        return None
    pairs = {(item, title) for item, title in zip(seen.frame.values[seen.item], seen.frame.values[name])}
    return name if len(pairs) <= 1.05 * seen.frame.facts[seen.item].distinct else None


def _plain_number(frame: Frame, name: str) -> bool:
    """Whether the reader takes the column as numbers; not written as a text such as 2,5."""
    return frame.table is not None and (pa.types.is_integer(frame.table[name].type) or pa.types.is_floating(frame.table[name].type))
