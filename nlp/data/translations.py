"""The splits of texts with what is to be written of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data.sources import TextSource, open_unlabelled
from nlp.settings import TextTranslation
from nlp.tokens import written
from pipelines.data.divide import divide
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.task.contract import Splits

AT_ONCE = 1024  # texts
SIDES = ("text", "text_pair")


def load_translations(experiment: TextTranslation, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"text", "text_pair"}: what is read and what is written of it.

    Args:
        known: facts of a finished run, whose pieces are then reused.

    Facts:
        vocabulary: pieces of both columns of train.
        splits: for each split its examples and fingerprint.

    Raises:
        DataError: names file and row, and the remedy.
    """
    opened = open_unlabelled(experiment.data)
    train, validation, test, notes = divide(opened.names, opened.load, experiment.data, opened.place)
    parts: dict[str, Source | None] = {name: None if source is None else _whole(source) for name, source in
                                       (("train", train), ("validation", validation), ("test", test))}
    kept = parts["train"]
    assert kept is not None
    facts = {"vocabulary": known["vocabulary"] if known else written.learn(experiment.tokens, _texts(kept))}
    if not known:
        notes = [*notes, *_too_long(kept, experiment, facts["vocabulary"])]
    facts["splits"] = describe(parts)
    return Splits(train=kept, validation=parts["validation"], test=parts["test"], facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes))


def rows_of(source: Source, name: str) -> list[str]:
    """All texts of one side."""
    return [text.decode("utf-8", "replace") for text in source.gather(tf.range(len(source), dtype=tf.int64))[name].numpy().tolist()]


def _texts(source: Source) -> Iterator[tf.Tensor]:
    for start in range(0, len(source), AT_ONCE):
        rows = source.gather(tf.range(start, min(start + AT_ONCE, len(source)), dtype=tf.int64))
        yield tf.concat([rows[name] for name in SIDES], 0)


def _too_long(source: Source, experiment: TextTranslation, vocabulary: list[str]) -> list[str]:
    """What is said of texts that are cut."""
    limit = experiment.tokens.limit
    tokenizer = written.make(vocabulary, limit + 1)
    over = np.zeros(2, int)
    for texts in _texts(source):
        longer = (tokenizer.ids(texts).row_lengths() > limit).numpy().reshape(2, -1)
        over += longer.sum(1)
    return [f"{count:,} of {len(source):,} training texts that are {name} have more than {limit} tokens (tokens.limit): the rest is not "
            f"{name}" for count, name in zip(over.tolist(), ("read", "written")) if count]


def _whole(source: Source) -> TextSource:
    """The examples of a source as texts in memory."""
    base, numbers = origin(source)
    assert isinstance(base, TextSource)
    with tf.device("CPU:0"):
        texts = tf.gather(base.texts, numbers)
    return TextSource(texts, {}, lambda number: base.name(int(numbers[number])), fingerprint=source.fingerprint(), groups=source.groups)
