"""The splits of pairs of texts that belong together, such as questions with their answers; nothing else is said of them."""

from typing import Any

import tensorflow as tf

from nlp.data.sources import NEGATIVE, TextSource, open_unlabelled
from nlp.data.splits import LEARNED, of_preset
from nlp.settings import PairsRanking
from pipelines.data.divide import divide
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.task.contract import Splits

KEYS = ("first", "second")  # entries that tell which pairs have a text in common
NEGATIVE_KEY = "negative"  # its number, that of the empty text where there is none


def load_pairs(experiment: PairsRanking, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"text", "text_pair", "first", "second"}: both texts, and a number of each that equal texts share, int64;
    with data.negative_key also {"text_negative", "negative"}.

    Args:
        known: facts of a finished run, whose tokens are then reused.

    Facts:
        splits and those of an encoder: as nlp.data.splits.load_texts.

    Raises:
        DataError: names file and row, and the remedy.
    """
    learned, remarks = ({name: known[name] for name in LEARNED if name in known}, []) if known else of_preset(experiment)
    opened = open_unlabelled(experiment.data)
    train, validation, test, notes = divide(opened.names, opened.load, experiment.data, opened.place)
    parts = {name: None if source is None else _whole(source) for name, source in
             (("train", train), ("validation", validation), ("test", test))}
    kept = parts["train"]
    assert kept is not None
    facts = dict(learned)
    if not known:
        from nlp.models.pretrained import pooling

        facts |= pooling(experiment.model, facts, len(kept))
    facts["splits"] = describe(dict(parts))
    return Splits(train=kept, validation=parts["validation"], test=parts["test"], facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes, *remarks))


def number_of(texts: tf.Tensor) -> tf.Tensor:
    """A number of each text that equal ones share, int64."""
    return tf.strings.to_hash_bucket_fast(texts, 2**62)


def _whole(source: Source) -> TextSource:
    """The examples of a source as texts in memory."""
    base, numbers = origin(source)
    assert isinstance(base, TextSource)
    with tf.device("CPU:0"):
        texts = tf.gather(base.texts, numbers)
        more = dict(zip(KEYS, tf.unstack(number_of(texts), axis=1)))
        if NEGATIVE in base.spec:
            negatives = base.gather(tf.constant(numbers, tf.int64))[NEGATIVE]
            more |= {NEGATIVE: negatives, NEGATIVE_KEY: number_of(negatives)}
    return TextSource(texts, more, lambda number: base.name(int(numbers[number])), fingerprint=source.fingerprint(), groups=source.groups)
