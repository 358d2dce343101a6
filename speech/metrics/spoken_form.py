"""Transcripts as they are spoken, in which they are compared whoever wrote them: without capitals and signs, English numbers in words."""

import re
import unicodedata

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
         "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_THOUSANDS = ("", "thousand", "million", "billion", "trillion")
_ORDINAL = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
_UNITS = {"$": "dollars", "£": "pounds", "€": "euros", "%": "percent"}
_NUMBER = re.compile(r"([$£€]?)(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(st|nd|rd|th)?(%?)(?!\w)")
_LARGE, _SMALL = {"hundred", *_THOUSANDS[1:]}, {*_ONES, *_TENS}  # words between which "and" may be said


def spoken_form(text: str, *, english: bool = False) -> str:
    """A transcript in small letters, without signs but apostrophes in words, hyphened words as several; of `english`, numbers in words,
    without "and" in them.

    Example:
        >>> spoken_form("Well, it's the 21st: $1,250 for 3.5 twenty-gram bars!", english=True)
        "well it's the twenty first one thousand two hundred fifty dollars for three point five twenty gram bars"
    """
    text = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    if english:
        text = _NUMBER.sub(_said, text)
    text = re.sub(r"(?<=\w)'(?=\w)", "\0", text)  # of don't
    kept = "".join(" " if unicodedata.category(sign)[0] in "PSZ" else sign for sign in text).replace("\0", "'")
    words = kept.split()
    if english:
        words = [word for place, word in enumerate(words)
                 if not (word == "and" and 0 < place < len(words) - 1 and words[place - 1] in _LARGE and words[place + 1] in _SMALL)]
    return " ".join(words)


def _said(found: re.Match[str]) -> str:
    money, whole, fraction, ordinal, percent = found.groups()
    number = int(whole.replace(",", ""))
    year = len(whole) == 4 and 1100 <= number < 2000 and number % 100 > 9 and not (money or fraction or ordinal or percent)
    if number >= 10 ** (3 * len(_THOUSANDS)):
        said = [_ONES[int(digit)] for digit in whole if digit.isdigit()]
    else:
        said = _below(number // 100) + _below(number % 100) if year else _below(number)
    if fraction:
        said += ["point", *(_ONES[int(digit)] for digit in fraction[1:])]
    if ordinal:
        last = said[-1]
        said[-1] = _ORDINAL.get(last, f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return " ".join([*said, *([_UNITS[money or percent]] if money or percent else [])])


def _below(number: int) -> list[str]:
    """The words of a number below a thousand trillions."""
    if number < 20:
        return [_ONES[number]]
    if number < 100:
        return [_TENS[number // 10 - 2], *(_below(number % 10) if number % 10 else [])]
    if number < 1000:
        return [_ONES[number // 100], "hundred", *(_below(number % 100) if number % 100 else [])]
    words, group = list[str](), 0
    while number:
        number, part = divmod(number, 1000)
        words = [*_below(part), _THOUSANDS[group], *words] if part else words
        group += 1
    return [word for word in words if word]
