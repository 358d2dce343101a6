"""`quartet check` for running texts: copies, sizes, and characters that train lacks."""

import hashlib
from collections.abc import Callable

import numpy as np

from nlp.data.documents import texts_of, texts_of_splits
from nlp.settings import LanguageModel
from pipelines.base.errors import DataError
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source

MANY = 0.001  # share of characters that train lacks from which it is a warning


def check_documents(experiment: LanguageModel, progress: Callable[[int, int], None] | None = None) -> Check:
    """Raises DataError where there are no splits to look at; everything else is a finding."""
    data = experiment.data
    opened, parts, notes = texts_of_splits(data.model_copy(update=LENIENT))
    there: dict[str, Source] = {name: source for name, source in parts.items() if source is not None}
    if not len(there["train"]):
        raise DataError(f"{opened.place}: train has no text that can be used")
    texts = {name: texts_of(source) for name, source in there.items()}
    result = check(opened.place, dict(there), {name: _read(one) for name, one in texts.items()}, [], identical="the same text",
                   skip=data.on_bad_example == "skip", lost=opened.skipped, notes=notes)
    known = set().union(*texts["train"])
    for name, some in texts.items():
        unknown = [one for text in some for one in text if one not in known]
        if unknown:
            share = len(unknown) / max(1, sum(map(len, some)))
            shown = ", ".join(repr(one) for one in dict.fromkeys(unknown[:8]))
            result.findings.append(Finding("warning" if share > MANY else "note", f"{name}: {len(unknown):,} characters that train lacks, "
                                           f"such as {shown}; tokens.name: bytes knows all"))
        empty = sum(not text.strip() for text in some)
        if empty:
            result.findings.append(Finding("warning", f"{name}: {empty:,} of {len(some):,} texts are empty"))
    result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return result


def _read(texts: list[str]) -> Read:
    prints = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return Read([], np.array([int.from_bytes(one, "little") for one in prints], np.uint64),
                {"characters": np.array([len(text) for text in texts]), "lines": np.array([text.count("\n") + 1 for text in texts])})
