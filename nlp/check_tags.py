"""`quartet check` for texts in which things are marked: each text read once; copies, types that train lacks, and what cannot be used."""

import hashlib
from collections.abc import Callable

import numpy as np

from nlp.data.tags import open_tags, spans_in
from nlp.settings import TextTagging
from pipelines.base.errors import DataError
from pipelines.data.check import Check, Read, check
from pipelines.data.divide import divide
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source, origin


def check_tags(experiment: TextTagging, progress: Callable[[int, int], None] | None = None) -> Check:
    """Raises DataError where there are no splits to look at; everything else is a finding."""
    data = experiment.data
    opened, note = open_tags(data.model_copy(update=LENIENT))
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    parts: dict[str, Source | None] = {"train": train, "validation": validation, "test": test}
    there = {name: source for name, source in parts.items() if source is not None}
    if not len(train):
        raise DataError(f"{opened.place}: train has no text that can be used")
    classes = sorted({kind for source in there.values() for spans in spans_in(source) for _, _, kind in spans})
    numbers = {kind: number for number, kind in enumerate(classes)}
    reads = {name: _read(source, numbers) for name, source in there.items()}
    bare = [f"{name}: {sum(not spans for spans in spans_in(source)):,} of {len(source):,} texts have nothing marked"
            for name, source in there.items()]
    return check(opened.place, parts, reads, classes, identical="the same text", skip=data.on_bad_example == "skip", lost=opened.skipped,
                 notes=[*filter(None, [note]), *bare, *notes])


def _read(source: Source, numbers: dict[str, int]) -> Read:
    base, places = origin(source)
    texts = [base.rows.texts[place] for place in places.tolist()]  # type: ignore[attr-defined]
    stored = [text if isinstance(text, str) else text.numpy().decode() for text in texts]
    prints = np.array([int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in stored], np.uint64)
    spans = spans_in(source)
    measures = {"characters": np.array([len(text) for text in stored]), "words": np.array([len(text.split()) for text in stored]),
                "things": np.array([len(one) for one in spans])}
    return Read([], prints, measures, None, [[numbers[kind] for _, _, kind in one] for one in spans])
