"""Word and character error rates of transcripts: with intervals, by word and by speaker, and the worst utterances aligned.

Errors are counted by jiwer (the fewest substitutions, insertions and deletions that turn the reference into the hypothesis).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.task.intervals import interval, wilson
from pipelines.task.results import Metric
from pipelines.task.units import EXAMPLES, Units

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


GAP = "*"  # a missing word, in alignments


@dataclass(frozen=True)
class Counted:
    """Errors of each utterance, and pairs of words over all.

    Attributes:
        table: [n, 6] int64: right, substituted, deleted, inserted words; wrong characters; characters of the reference.
        pairs: aligned words of each utterance, (reference or None, hypothesis or None).
    """

    table: np.ndarray
    pairs: list[list[tuple[str | None, str | None]]]

    @property
    def words(self) -> np.ndarray:
        """Words of the reference, [n]."""
        return self.table[:, 0] + self.table[:, 1] + self.table[:, 2]

    @property
    def errors(self) -> np.ndarray:
        """Words wrong, [n]."""
        return self.table[:, 1] + self.table[:, 2] + self.table[:, 3]


def count(reference: Sequence[str], hypothesis: Sequence[str]) -> Counted:
    """Aligns each reference with its hypothesis."""
    rows, pairs = [], []
    for truth, guess in zip(reference, hypothesis):
        aligned = align(truth.split(), guess.split())
        right = sum(first == second for first, second in aligned)
        deleted, inserted = sum(second is None for _, second in aligned), sum(first is None for first, _ in aligned)
        letters = _distance(list(truth), list(guess))
        rows.append([right, len(aligned) - right - deleted - inserted, deleted, inserted, letters, len(truth)])
        pairs.append(aligned)
    return Counted(np.array(rows, np.int64).reshape(-1, 6), pairs)


def align(reference: list[str], hypothesis: list[str]) -> list[tuple[str | None, str | None]]:
    """Words side by side, None where one has none."""
    if not reference or not hypothesis:
        return [(word, None) for word in reference] + [(None, word) for word in hypothesis]
    pairs: list[tuple[str | None, str | None]] = []
    for chunk in _process(reference, hypothesis):
        first, second = reference[chunk.ref_start_idx:chunk.ref_end_idx], hypothesis[chunk.hyp_start_idx:chunk.hyp_end_idx]
        if chunk.type == "delete":
            pairs += [(word, None) for word in first]
        elif chunk.type == "insert":
            pairs += [(None, word) for word in second]
        else:
            pairs += list(zip(first, second))
    return pairs


def _process(reference: list[str], hypothesis: list[str]) -> Any:
    import jiwer

    words = jiwer.Compose([jiwer.ReduceToListOfListOfWords()])
    result = jiwer.process_words([" ".join(reference)], [" ".join(hypothesis)], reference_transform=words, hypothesis_transform=words)
    return result.alignments[0]


def _distance(first: list[str], second: list[str]) -> int:
    if not first or not second:
        return len(first) + len(second)
    import jiwer

    plain = jiwer.Compose([jiwer.ReduceToListOfListOfChars()])
    result = jiwer.process_characters(["".join(first)], ["".join(second)], reference_transform=plain, hypothesis_transform=plain)
    return result.substitutions + result.deletions + result.insertions


def metrics(counted: Counted, *, resamples: int = 1000, seed: int = 0, units: Units = EXAMPLES) -> dict[str, Metric]:
    """Rates over all words with 95 % bootstrap intervals, drawn by utterance or by groups of them.

    wer                 (substitutions + deletions + insertions) / words of the reference
    cer                 the same for characters, blanks included
    substitution_share, deletion_share, insertion_share    of words of the reference
    sentence_accuracy   share of utterances without an error

    Where nothing or everything is wrong the interval is Wilson's, over words as if independent, or over groups.
    """
    table = counted.table.astype(np.float64)
    values = np.column_stack([table, counted.words, counted.errors, counted.errors == 0, np.ones(len(table))])
    columns = {"wer": (7, 6), "cer": (4, 5), "substitution_share": (1, 6), "deletion_share": (2, 6), "insertion_share": (3, 6),
               "sentence_accuracy": (8, 9)}

    def ratio(top: int, bottom: int) -> Any:
        return lambda sums: sums[:, top] / np.maximum(sums[:, bottom], 1.0)

    rates = {}
    for name, (top, bottom) in columns.items():
        metric = interval(values, ratio(top, bottom), resamples=resamples, seed=seed, units=units)
        total, all_of = float(values[:, top].sum()), float(values[:, bottom].sum())
        if metric.low is None and all_of and total in (0.0, all_of):  # nothing to draw from
            size = all_of if metric.units is None else metric.units
            low, high = wilson(size * total / all_of, size)
            metric = replace(metric, low=float(low), high=float(high))
        rates[name] = metric
    return rates


def normalized(reference: Sequence[str], hypothesis: Sequence[str], *, resamples: int, units: Units, english: bool) -> Metric:
    """The word error rate of what is spoken, however it is written: without capitals and signs, of `english` with numbers in words."""
    spoken = [[spoken_form(text, english=english) for text in texts] for texts in (reference, hypothesis)]
    return metrics(count(*spoken), resamples=resamples, units=units)["wer"]


def per_word(counted: Counted, limit: int = 40) -> list[dict[str, Any]]:
    """Words by how often they are wrong: word, said, wrong, missed, inserted, and what is mostly written instead."""
    said: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    inserted: Counter[str] = Counter()
    instead: dict[str, Counter[str]] = {}
    for aligned in counted.pairs:
        for first, second in aligned:
            if first is None:
                inserted[str(second)] += 1
                continue
            said[first] += 1
            if second is None:
                missed[first] += 1
            elif first != second:
                wrong[first] += 1
                instead.setdefault(first, Counter())[second] += 1
    names = sorted(set(said) | set(inserted), key=lambda word: (-(wrong[word] + missed[word] + inserted[word]), word))
    return [{"word": word, "said": said[word], "wrong": wrong[word], "missed": missed[word], "inserted": inserted[word],
             "error_rate": (wrong[word] + missed[word]) / said[word] if said[word] else None,
             "written_instead": ", ".join(f"{other} {times}" for other, times in instead.get(word, Counter()).most_common(3))}
            for word in names[:limit]]


def per_speaker(counted: Counted, speakers: Sequence[str] | None) -> list[dict[str, Any]]:
    """A row for each speaker, the worst first. Empty where speakers are not known."""
    if speakers is None:
        return []
    names, numbers = np.unique(np.array(speakers), return_inverse=True)
    rows = []
    for number, name in enumerate(names):
        own = numbers == number
        words, table = int(counted.words[own].sum()), counted.table[own]
        rows.append({"speaker": str(name), "recordings": int(own.sum()), "words": words,
                     "wer": float(counted.errors[own].sum() / max(words, 1)),
                     "cer": float(table[:, 4].sum() / max(table[:, 5].sum(), 1)), "substituted": int(table[:, 1].sum()),
                     "deleted": int(table[:, 2].sum()), "inserted": int(table[:, 3].sum())})
    return sorted(rows, key=lambda row: -row["wer"])


def worst(counted: Counted, limit: int) -> list[int]:
    """Utterances with errors: those with the most, and of these the shorter first."""
    order = np.lexsort((counted.words, -counted.errors))
    return [int(number) for number in order if counted.errors[number] > 0][:limit]


def lines(aligned: list[tuple[str | None, str | None]]) -> tuple[str, str]:
    """Reference and hypothesis, word under word; errors in capitals, GAP where there is no word."""
    first, second = [], []
    for reference, hypothesis in aligned:
        same = reference == hypothesis
        top, bottom = reference or GAP * len(hypothesis or ""), hypothesis or GAP * len(reference or "")
        if not same:
            top, bottom = top.upper(), bottom.upper()
        width = max(len(top), len(bottom))
        first.append(top.ljust(width))
        second.append(bottom.ljust(width))
    return " ".join(first).rstrip(), " ".join(second).rstrip()
