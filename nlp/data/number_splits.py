"""The splits of an experiment that predicts numbers of texts, with the facts learned from train alone."""

from typing import Any

import tensorflow as tf

from nlp import tokens
from nlp.data.sources import TextSource, open_data
from nlp.data.splits import LEARNED, batches, of_preset
from nlp.settings import TextRegression
from pipelines.data.divide import divide
from pipelines.data.number_columns import TARGET, NumberColumns, without_targets_left_out
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.outputs import number_scales
from pipelines.task.contract import Splits


def load_numbers(experiment: TextRegression, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"text", "target": [columns] float32}.

    Args:
        known: facts of a finished run, whose tokens are then reused.

    Facts:
        targets: see pipelines.outputs.number_scales.
        vocabulary, splits and those of an encoder: as nlp.data.splits.load_texts.

    Raises:
        DataError: names file, row and column, and the remedy.
    """
    data, numbers = experiment.data, NumberColumns.asked(experiment)
    assert numbers is not None
    learned, remarks = ({name: known[name] for name in LEARNED if name in known}, []) if known else of_preset(experiment)
    opened = open_data(data, numbers=numbers, elsewhere=bool(known))
    load = without_targets_left_out(opened.load, numbers.names, opened.notes)
    train, validation, test, notes = divide(opened.names, load, data, opened.place)
    parts = {name: None if source is None else _whole(source) for name, source in
             (("train", train), ("validation", validation), ("test", test))}
    kept = parts["train"]
    assert kept is not None
    targets, scaled = (known["targets"], []) if known else number_scales.learn(kept, numbers.names, experiment.target)
    facts: dict[str, Any] = {"targets": targets}
    facts |= learned if known or learned else tokens.learn(experiment.cutting, batches(kept))
    if experiment.own_tokens and not known:
        from nlp.models.pretrained import pooling

        facts |= pooling(experiment.model, facts, len(kept))
    facts["splits"] = describe(dict(parts))
    return Splits(train=kept, validation=parts["validation"], test=parts["test"], facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes, *scaled, *remarks))


def _whole(source: Source) -> TextSource:
    """The examples of a source as texts in memory."""
    base, numbers = origin(source)
    assert isinstance(base, TextSource) and source.number_targets is not None
    with tf.device("CPU:0"):
        texts, targets = tf.gather(base.texts, numbers), tf.constant(source.number_targets)
    return TextSource(texts, {TARGET: targets}, lambda number: base.name(int(numbers[number])), fingerprint=source.fingerprint(),
                      groups=source.groups)
