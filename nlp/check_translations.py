"""`quartet check` for texts with what is to be written of them: copies, empty ones, those that are left as they are, and lengths that do
not fit."""

import hashlib
from collections.abc import Callable
from typing import Literal

import numpy as np

from nlp.data.sources import open_unlabelled
from nlp.data.translations import rows_of
from nlp.settings import TextTranslation
from pipelines.base.errors import DataError
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.divide import divide
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source

FAR = 4.0  # times the usual ratio of lengths, or its inverse, from which two texts may not belong together
SMALL = 5  # words added to both, so that short texts do not count


def check_translations(experiment: TextTranslation, progress: Callable[[int, int], None] | None = None) -> Check:
    """Raises DataError where there are no splits to look at; everything else is a finding."""
    data = experiment.data
    opened = open_unlabelled(data.model_copy(update=LENIENT))
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    there: dict[str, Source] = {name: source for name, source in (("train", train), ("validation", validation), ("test", test)) if source}
    if not len(train):
        raise DataError(f"{opened.place}: train has no text that can be used")
    texts = {name: (rows_of(source, "text"), rows_of(source, "text_pair")) for name, source in there.items()}
    result = check(opened.place, dict(there), {name: _read(*both) for name, both in texts.items()}, [],
                   identical="the same text to be read", skip=data.on_bad_example == "skip", lost=opened.skipped, notes=notes)
    usual = _ratio(*texts["train"])
    for name, source in there.items():
        result.findings += _findings(name, source, *texts[name], usual)
    result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return result


def _read(read: list[str], written: list[str]) -> Read:
    prints = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in read]
    measures = {"words read": [len(text.split()) for text in read], "words written": [len(text.split()) for text in written]}
    return Read([], np.array([int.from_bytes(one, "little") for one in prints], np.uint64),
                {name: np.array(values) for name, values in measures.items()})


def _ratio(read: list[str], written: list[str]) -> float:
    """How many characters are written for one that is read, usually."""
    return float(np.median([(len(target) + SMALL) / (len(text) + SMALL) for text, target in zip(read, written)]))


def _findings(name: str, source: Source, read: list[str], written: list[str], usual: float) -> list[Finding]:
    found = list[Finding]()
    kinds: list[tuple[Literal["error", "warning"], str, list[bool]]] = [
            ("error" if name == "train" else "warning", "have nothing to be written", [not text.strip() for text in written]),
            ("warning", "have nothing to be read", [not text.strip() for text in read]),
            ("warning", "are to be written as they are read", [text.strip() == other.strip() != "" and len(text.split()) > 2
                                                               for text, other in zip(read, written)]),
            ("warning", f"are {FAR:g} times as long or short as usual beside what is read", [
                not 1 / FAR < (len(target) + SMALL) / (len(text) + SMALL) / usual < FAR and target.strip() != "" and text.strip() != ""
                for text, target in zip(read, written)])]
    for level, what, which in kinds:
        numbers = np.flatnonzero(which)
        if len(numbers):
            place = source.name(int(numbers[0]))
            found.append(Finding(level, f"{name}: {len(numbers):,} of {len(source):,} texts {what}, such as {place}"))
    return found
