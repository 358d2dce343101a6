"""Word and character error rates of transcripts: with intervals, by word and by speaker, and the worst utterances aligned.

Errors are counted by jiwer (the least substitutions, insertions and deletions that turn what was said into what was written).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.reports.intervals import interval, wilson
from pipelines.task.results import Metric
from pipelines.task.units import EXAMPLES, Units

GAP = "*"  # stands for a word that is not there, in alignments


@dataclass(frozen=True)
class Counted:
    """Errors of each utterance, and pairs of words over all.

    Attributes:
        table: [n, 6] int64: right, substituted, deleted, inserted words; characters that are wrong; characters said.
        pairs: aligned words of each utterance, (said or None, written or None).
    """

    table: np.ndarray
    pairs: list[list[tuple[str | None, str | None]]]

    @property
    def words(self) -> np.ndarray:
        """Words said, [n]."""
        return self.table[:, 0] + self.table[:, 1] + self.table[:, 2]

    @property
    def errors(self) -> np.ndarray:
        """Words wrong, [n]."""
        return self.table[:, 1] + self.table[:, 2] + self.table[:, 3]


def count(said: Sequence[str], written: Sequence[str]) -> Counted:
    """Aligns each transcript with what the model wrote."""
    rows, pairs = [], []
    for truth, guess in zip(said, written):
        aligned = align(truth.split(), guess.split())
        right = sum(first == second for first, second in aligned)
        deleted, inserted = sum(second is None for _, second in aligned), sum(first is None for first, _ in aligned)
        letters = _distance(list(truth), list(guess))
        rows.append([right, len(aligned) - right - deleted - inserted, deleted, inserted, letters, len(truth)])
        pairs.append(aligned)
    return Counted(np.array(rows, np.int64).reshape(-1, 6), pairs)


def align(said: list[str], written: list[str]) -> list[tuple[str | None, str | None]]:
    """Words side by side, None where one has none."""
    if not said or not written:
        return [(word, None) for word in said] + [(None, word) for word in written]
    found: list[tuple[str | None, str | None]] = []
    for chunk in _process(said, written):
        first, second = said[chunk.ref_start_idx:chunk.ref_end_idx], written[chunk.hyp_start_idx:chunk.hyp_end_idx]
        if chunk.type == "delete":
            found += [(word, None) for word in first]
        elif chunk.type == "insert":
            found += [(None, word) for word in second]
        else:
            found += list(zip(first, second))
    return found


def _process(said: list[str], written: list[str]) -> Any:
    import jiwer

    words = jiwer.Compose([jiwer.ReduceToListOfListOfWords()])
    return jiwer.process_words([" ".join(said)], [" ".join(written)], reference_transform=words, hypothesis_transform=words).alignments[0]


def _distance(first: list[str], second: list[str]) -> int:
    if not first or not second:
        return len(first) + len(second)
    import jiwer

    plain = jiwer.Compose([jiwer.ReduceToListOfListOfChars()])
    found = jiwer.process_characters(["".join(first)], ["".join(second)], reference_transform=plain, hypothesis_transform=plain)
    return found.substitutions + found.deletions + found.insertions


def metrics(counted: Counted, *, resamples: int = 1000, seed: int = 0, units: Units = EXAMPLES) -> dict[str, Metric]:
    """Rates over all words with 95 % bootstrap intervals, drawn by utterance or by groups of them.

    wer                 (substitutions + deletions + insertions) / words said
    cer                 the same of characters, blanks among them
    substitution_share, deletion_share, insertion_share    of words said
    sentence_accuracy   share of utterances without an error

    Where nothing is wrong, or all, the interval is Wilson's: as if words were independent, or by groups.
    """
    table = counted.table.astype(np.float64)
    values = np.column_stack([table, counted.words, counted.errors, counted.errors == 0, np.ones(len(table))])
    columns = {"wer": (7, 6), "cer": (4, 5), "substitution_share": (1, 6), "deletion_share": (2, 6), "insertion_share": (3, 6),
               "sentence_accuracy": (8, 9)}

    def ratio(top: int, bottom: int) -> Any:
        return lambda sums: sums[:, top] / np.maximum(sums[:, bottom], 1.0)

    found = {}
    for name, (top, bottom) in columns.items():
        metric = interval(values, ratio(top, bottom), resamples=resamples, seed=seed, units=units)
        total, all_of = float(values[:, top].sum()), float(values[:, bottom].sum())
        if metric.low is None and all_of and total in (0.0, all_of):  # nothing to draw from
            size = all_of if metric.units is None else metric.units
            low, high = wilson(size * total / all_of, size)
            metric = replace(metric, low=float(low), high=float(high))
        found[name] = metric
    return found


def per_word(counted: Counted, limit: int = 40) -> list[dict[str, Any]]:
    """Words by how often they are wrong: word, said, wrong, missed, inserted, and what is mostly written for it."""
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
    """What was said and what was written, word under word; errors in capitals, GAP where there is no word."""
    first, second = [], []
    for said, written in aligned:
        same = said == written
        top, bottom = said or GAP * len(written or ""), written or GAP * len(said or "")
        if not same:
            top, bottom = top.upper(), bottom.upper()
        width = max(len(top), len(bottom))
        first.append(top.ljust(width))
        second.append(bottom.ljust(width))
    return " ".join(first).rstrip(), " ".join(second).rstrip()
