"""The splits of an experiment that finds things in texts, with the facts learned from train alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data.sources import Rows, TextSource, tensor_of, usable
from nlp.data.splits import LEARNED, of_preset
from nlp.data.tag_spans import Span, read_conll, read_json, split_files
from nlp.settings import TagData, TextTagging
from pipelines.base.errors import DataError
from pipelines.data.divide import divide
from pipelines.data.opened import Opened
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.stores.remote import local
from pipelines.task.contract import Splits

SPANS = "spans"


class Tagged(TextSource):
    """Texts with their spans; in the examples `spans` is a string: three int32 for each, first character, the one behind the last, and the
    number of the type in `classes`."""

    def __init__(self, rows: Rows, classes: Sequence[str]):
        numbers = {kind: number for number, kind in enumerate(classes)}
        packed = [np.array([(start, end, numbers[kind]) for start, end, kind in spans], np.int32).tobytes() for spans in rows.labels]
        with tf.device("CPU:0"):
            stored = tf.constant(packed, tf.string)
        super().__init__(tensor_of(rows.texts), {SPANS: stored}, rows.places, fingerprint=rows.fingerprint,
                         groups=None if rows.groups is None else np.array(rows.groups))
        self.rows = rows


def open_tags(data: TagData) -> tuple[Opened[Source], str]:
    """(texts with their spans, nothing divided yet; how tags are read). Raises DataError with file, line and remedy."""
    place = local(data.path)
    files = split_files(place, data)
    read, note = read_conll(files, data) if data.source == "conll" else (read_json(files, data), "")
    opened: Opened[Source] = Opened(str(place), list(files), lambda name: load(name))

    def load(name: str) -> Source:
        rows = usable(read[name], data, opened, str(files[name]))
        return Tagged(rows, sorted({kind for spans in rows.labels for _, _, kind in spans}))

    return opened, note


def load_tags(experiment: TextTagging, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"text", "spans"}, see `Tagged`.

    Args:
        known: facts of a finished run, whose types and tokens are then reused.

    Facts:
        classes: the types that train has examples of; class_counts: how many.
        splits and those of an encoder: as nlp.data.splits.load_texts.

    Raises:
        DataError: names file, line and the remedy.
    """
    data = experiment.data
    learned, remarks = ({name: known[name] for name in LEARNED if name in known}, []) if known else of_preset(experiment)
    opened, note = open_tags(data)
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    counts = Counter(kind for spans in spans_in(train) for _, _, kind in spans)
    classes = known["classes"] if known else sorted(counts)
    if not classes:
        raise DataError(f"{opened.place}: train has no spans, so there is nothing to learn")
    parts = {name: None if source is None else _final(source, classes, name, opened, skip=data.on_bad_example == "skip") for name, source in
             (("train", train), ("validation", validation), ("test", test))}
    kept = parts["train"]
    assert kept is not None
    facts: dict[str, Any] = {"classes": classes, "class_counts": [counts[kind] for kind in classes], **learned}
    if not known:
        from nlp.models.pretrained import pooling

        facts |= pooling(experiment.model, facts, len(kept))
    facts["splits"] = describe(dict(parts))
    total = [f"{sum(map(len, source.rows.labels)):,} in {name}" for name, source in parts.items() if source is not None]
    notes = [*filter(None, [note]), f"spans: {', '.join(total)}", *notes]
    return Splits(train=kept, validation=parts["validation"], test=parts["test"], facts=facts, skipped=tuple(opened.skipped),
                  notes=(*notes, *remarks))


def spans_in(source: Source) -> list[list[Span]]:
    """Of each text."""
    base, numbers = origin(source)
    assert isinstance(base, Tagged)
    return [base.rows.labels[number] for number in numbers.tolist()]


def _final(source: Source, classes: Sequence[str], split: str, opened: Opened, *, skip: bool) -> Tagged:
    """The examples with types numbered as train has them. Raises DataError for a type that train lacks, unless such are skipped."""
    base, numbers = origin(source)
    assert isinstance(base, Tagged)
    keep = []
    for number in numbers.tolist():
        unknown = next((kind for _, _, kind in base.rows.labels[number] if kind not in classes), None)
        if unknown is None:
            keep.append(number)
        elif not skip:
            raise DataError(f"{base.name(number)}: type {unknown}, of which train has no example; add examples to train, rename it, or set "
                            "data.on_bad_example: skip")
        else:
            opened.skipped.append(f"{base.name(number)}: type {unknown} is not in train ({split})")
    rows = base.rows
    return Tagged(Rows(tf.gather(base.texts, keep), [rows.labels[number] for number in keep], lambda at: rows.places(keep[at]),
                       None if rows.groups is None else [rows.groups[number] for number in keep], [], source.fingerprint()), classes)
