"""Times as people write them: seconds, ms, us or ns since 1970, ISO, 20260917, 17.09.2026, 9/17/2026. Day or month is decided by the
column."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.columns import number_of, plain

UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
COMPACT = {8: 10**0, 12: 10**4, 14: 10**6}  # digits of a date, with hours and minutes, with seconds -> what is behind the day
SAMPLE = 1_000_000  # times of which the median says the unit
NUMERIC = ("auto", "compact", *UNITS)  # what data.time_format may be of numbers
USUAL = 0.95  # share of numbers that are dates such as 20261121 from which all are taken for such
EARLIEST, LATEST = 6.3e8, 2.9e9  # s since 1970: 1990 to 2061
MEANINGS = {"auto": "(seconds, or a date and time such as 2026-11-21 13:53:39)", "iso": "such as 2026-11-21 13:53:39",
            "day_first": "such as 21.11.2026 13:53", "month_first": "such as 11/21/2026 1:53 PM", "year_first": "such as 2026/11/21 13:53",
            "compact": "such as 20261121 or 20261121135300",
            **{unit: f"in {unit} since 1970" for unit in UNITS}}
MIXED = "mixes numbers in several units since 1970, such as seconds and milliseconds: each is read by its size"
_DATE = re.compile(r"(\d{1,4})\s?[./\- ]\s?(\d{1,2})\s?[./\-, ]\s?(\d{1,4})\.?(?:[ T,]+(.*))?$")
_NAMED = re.compile(r"(?:[a-z]+,? )?(?:(\d{1,2})(?:st|nd|rd|th|\.)?[ \-](?:de )?([a-z]+)\.?|([a-z]+)\.? (\d{1,2})(?:st|nd|rd|th)?),?"
                    r"[ \-](?:de )?(\d{4}|\d\d)(?:,? (.*))?$")
_CLOCK = re.compile(r"(?:um |at )?(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?\s*([ap])?\.?m?\.?(?:\s*(?:uhr|utc|gmt|z))?$", re.IGNORECASE)
_MONTHS = ("jan ene gen", "feb fev", "mar mrz", "apr avr abr", "may mai mag", "jun juin giu", "jul juil lug", "aug aou ago", "sep set",
           "oct okt ott out", "nov", "dec dez dic")


@dataclass(frozen=True)
class Times:
    """A column of times.

    Attributes:
        seconds: [n] float64 since 1970; numbers that are not such a time stay unchanged (days of a study); NaN where there is none.
        wrong: row -> its value, where that is not a time.
        how: as data.time_format has it: "s", "ms", "us", "ns", "compact", "iso", "day_first", "month_first" or "year_first".
        mixed: numbers of several units since 1970, each of which was read by its size.
        ambiguous: dates none of which shows whether day or month comes first; they are read with the month first.
        example: a value.
    """

    seconds: np.ndarray
    wrong: dict[int, Any] = field(default_factory=dict)
    how: str = "s"
    ambiguous: bool = False
    example: str = ""
    mixed: bool = False

    @property
    def meaning(self) -> str:
        """The expected form, in words."""
        return MEANINGS[self.how if self.how in MEANINGS else "auto"]


def read_times(values: pa.ChunkedArray, how: str = "auto") -> Times:
    """A column's times; "auto" detects the notation from the whole column."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        whole = values.cast(pa.timestamp("us"), safe=False).combine_chunks().cast(pa.int64())  # what is finer is cut off
        seconds = np.where(whole.is_null().to_numpy(zero_copy_only=False), np.nan,
                           whole.fill_null(0).to_numpy(zero_copy_only=False) / 1e6)
        return _result(values, seconds, "iso")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _result(values, *_since_1970(_numbers(values), how))
    coded = values.combine_chunks().dictionary_encode()
    where = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    distinct = coded.dictionary.to_pylist()
    plain_numbers = [number_of(value) if not isinstance(value, str) or how in NUMERIC else None for value in distinct]
    if (not pa.types.is_string(kind) and not pa.types.is_large_string(kind)) or how in (*UNITS, "compact") or (
            distinct and how == "auto" and sum(number is not None for number in plain_numbers) > 0.5 * len(distinct)):
        known = np.array([*(np.nan if number is None else number for number in plain_numbers), np.nan], np.float64)
        return _result(values, *_since_1970(known[where], how))
    texts = ["" if value is None else str(value).strip() for value in distinct]
    ambiguous = False
    if how == "auto":
        how, ambiguous = _notation(texts)
    read: dict[str, Callable[[str], float | None]] = {
        "day_first": lambda text: _dated(text, "day"), "month_first": lambda text: _dated(text, "month"),
        "year_first": lambda text: _dated(text, "year")}
    reader = read.get(how, lambda text: iso(text) if (number := number_of(text)) is None else number)
    known = np.array([*(np.nan if (second := reader(text)) is None else second for text in texts), np.nan], np.float64)
    return _result(values, known[where], how, ambiguous)


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as [n] float64, NaN where there is none; of 100 million no Python object is made."""
    parts = []
    for chunk in values.chunks:
        there = chunk.is_valid().to_numpy(zero_copy_only=False)
        part = chunk.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        part[~there | ~np.isfinite(part)] = np.nan
        parts.append(part)
    return np.concatenate([np.zeros(0), *parts])


def _since_1970(numbers: np.ndarray, how: str) -> tuple[np.ndarray, str, bool, bool]:
    """(seconds [n] float64, how, False, whether units are mixed). A number that is a time in another unit alone is read by that one, or,
    where the unit is given, is none."""
    if how == "compact" or (how not in UNITS and _is_compact(numbers)):
        return _compact(numbers), "compact", False, False
    unit = how if how in UNITS else _unit(numbers)
    if unit is None:
        return numbers, "s", False, False
    seconds, mixed = numbers / UNITS[unit], False
    for other, factor in UNITS.items():
        theirs = (numbers >= EARLIEST * factor) & (numbers <= LATEST * factor) if other != unit else np.zeros(len(numbers), bool)
        if theirs.any():
            seconds[theirs] = np.nan if how in UNITS else numbers[theirs] / factor
            mixed = how not in UNITS
    return seconds, unit, False, mixed


def _is_compact(numbers: np.ndarray) -> bool:
    """Whether nearly all of some numbers are dates such as 20261121: as seconds since 1970 they would all be of August 1970."""
    some = numbers[np.isfinite(numbers)][:SAMPLE]
    return len(some) > 0 and bool(np.isfinite(_compact(some)).mean() >= USUAL)


def _compact(numbers: np.ndarray) -> np.ndarray:
    """20261121, 202611211353 and 20261121135300 as seconds since 1970, [n] float64; NaN for what is none."""
    whole = np.where(np.isfinite(numbers) & (numbers >= 0) & (numbers < 1e14), numbers, 0).astype(np.int64)
    behind = np.select([whole >= 10**13, whole >= 10**11], [COMPACT[14], COMPACT[12]], COMPACT[8])
    day, clock = whole // behind, whole % behind * (COMPACT[14] // behind) % COMPACT[14]
    year, month, number = day // 10_000, day // 100 % 100, day % 100
    date = (np.clip(year, 1900, 2100) - 1970).astype("M8[Y]").astype("M8[M]") + np.clip(month - 1, 0, 11)
    exact = date.astype("M8[D]") + np.clip(number - 1, 0, 30)
    good = (numbers == whole) & (year >= 1900) & (year <= 2100) & (month >= 1) & (month <= 12) & (number >= 1)
    good &= (exact.astype("M8[M]") == date) & (clock < 240_000) & (clock // 100 % 100 < 60) & (clock % 100 < 60)
    seconds = exact.astype("M8[s]").astype(np.int64) + clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100
    return np.where(good, seconds, np.nan)


def _result(values: pa.ChunkedArray, seconds: np.ndarray, how: str, ambiguous: bool = False, mixed: bool = False) -> Times:
    wrong = np.flatnonzero(~np.isfinite(seconds))
    first = None if pa.types.is_timestamp(values.type) else next(
        (number for number in range(len(seconds)) if np.isfinite(seconds[number])), None)
    return Times(seconds, {int(number): values[int(number)].as_py() for number in wrong}, how, ambiguous,
                 "" if first is None else str(values[first].as_py()), mixed)


def _unit(numbers: np.ndarray) -> str | None:
    """The unit in which the median is a time of our days; None for other numbers, which count something else."""
    some = numbers[::max(1, len(numbers) // SAMPLE)]
    there = some[np.isfinite(some)]
    middle = float(np.median(there)) if len(there) else 0.0
    return next((unit for unit, factor in UNITS.items() if EARLIEST * factor <= middle <= LATEST * factor), None)


def _notation(texts: list[str]) -> tuple[str, bool]:
    """How dates are written, and whether day and month are ambiguous."""
    if sum(iso(text) is not None for text in texts[:200]) * 2 >= len(texts[:200]):
        return "iso", False
    dates = [match for text in texts if (match := _DATE.match(text))]
    if sum(len(match[1]) == 4 for match in dates) * 2 > len(dates):
        return "year_first", False
    days = sum(int(match[1]) > 12 for match in dates)
    months = sum(int(match[2]) > 12 for match in dates)
    if days or months:
        return ("day_first" if days >= months else "month_first"), False
    if dates and all("." in match[0] for match in dates):  # only with points the day is always first
        return "day_first", False
    return ("month_first", True) if dates else ("day_first" if any(_named(text) is not None for text in texts[:200]) else "iso", False)


def iso(text: str) -> float | None:
    """A date, or date and time, in ISO's notation: s since 1970, without a zone in UTC; None: it is none."""
    try:
        when = datetime.fromisoformat(re.sub(r"(?<=\d)[Zz]$", "+00:00", text).replace(" UTC", "+00:00"))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def _dated(text: str, first: str) -> float | None:
    match = _DATE.match(text)
    if not match:
        return _named(text)
    one, two, three = int(match[1]), int(match[2]), int(match[3])
    if first == "year":
        year, month, day = one, two, three
    elif len(match[3]) in (2, 4):
        year, month, day = (three, two, one) if first == "day" else (three, one, two)
    else:
        return None
    return _moment(year, month, day, match[4])


def _named(text: str) -> float | None:
    """17 Sep 2026, September 17, 2026, 17. September 2026, 17 de septiembre de 2026."""
    match = _NAMED.match(plain(text).replace("_", " ") if not text.isascii() else text.lower())
    if not match:
        return None
    name = plain(match[2] or match[3])
    starts = [(start, number) for number, names in enumerate(_MONTHS, 1) for start in names.split()]
    # the longest first: juin and juil begin alike
    month = next((number for start, number in sorted(starts, key=lambda one: -len(one[0])) if name.startswith(start)), None)
    return None if month is None else _moment(int(match[5]), month, int(match[1] or match[4]), match[6])


def _moment(year: int, month: int, day: int, clock: str | None) -> float | None:
    year += 0 if year > 99 else 2000 if year < 70 else 1900
    hour = minute = 0
    second = 0.0
    if clock:
        match = _CLOCK.match(clock.strip())
        if not match:
            return None
        hour, minute, second = int(match[1]), int(match[2]), float((match[3] or "0").replace(",", "."))
        if match[4]:
            hour = hour % 12 + (12 if match[4].lower() == "p" else 0)
    try:
        return datetime(year, month, day, hour, minute, tzinfo=timezone.utc).timestamp() + second
    except ValueError:
        return None
