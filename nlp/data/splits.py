"""The splits of a text experiment, with the facts learned from train alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nlp import tokens
from nlp.data.sources import OUTSIDE, Loaded, TextSource, open_data
from nlp.settings import PassageAnswers, TextClassification, TextExperiment, TextTagging
from pipelines.base.errors import DataError
from pipelines.config.train_settings import protected_by
from pipelines.data.divide import check_several, divide
from pipelines.data.opened import Opened
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.task.contract import Splits

BATCH = 1024  # texts cut at a time
NO_VALIDATION = "reject: there is no validation split, on which the threshold is chosen; set data.validation: 0.1, or leave reject out"
LEARNED = ("vocabulary", "encoder", "backbone", "tokenizer", "pool", "layers", "window", "words", "buckets")  # facts of tokens and encoder


def load_texts(experiment: TextClassification, known: dict[str, Any] | None = None) -> Splits:
    """The splits of a text experiment. Examples are {"text", "label", "weight"}: the class number, or len(classes) for a text of no
    class, or with labels: many [classes] float32 of 0 and 1; the weight is 0 for texts of no class, and otherwise such that a mean over the
    split is a mean over the texts of the classes.

    Args:
        known: facts of a finished run, whose tokens are then reused.

    Facts:
        classes: names in the order of the labels, those that train has examples of.
        class_counts: examples of each class in train.
        vocabulary: the words or pieces learned from train, where tokens learn any.
        splits: for each split its examples, fingerprint and examples of each class.

    Raises:
        DataError: names file and remedy.
    """
    data, reject = experiment.data, experiment.reject
    learned, remarks = ({name: known[name] for name in LEARNED if name in known}, []) if known else of_preset(experiment)
    opened = open_data(data, reject, elsewhere=bool(known))
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    parts = of_known_classes({"train": train, "validation": validation, "test": test}, opened, skip=data.on_bad_example == "skip")
    numbers = class_numbers(train)
    trained = sorted({label for labels in numbers for label in labels})
    classes = [opened.classes[number] for number in trained]
    alone = validation is None and test is None  # new data for a finished run, all of which are evaluated
    if reject is not None and validation is None and not known:
        raise DataError(NO_VALIDATION)
    if not known and (data.labels == "one" or not classes):
        single = data.labels == "one" and data.limit is None
        check_several(classes, opened.place, labels=np.array([label for labels in numbers for label in labels]) if single else None)
    if reject is not None and reject.train == "leave_out" and not alone:
        parts["train"] = _inside(parts["train"])
    final = {name: None if source is None else _final(source, trained) for name, source in parts.items()}
    kept = final["train"]
    if kept is None:
        raise DataError(f"{opened.place} has no training examples")
    facts: dict[str, Any] = {"classes": classes, "class_counts": _counts(kept, len(classes))}
    facts |= learned if known or learned else tokens.learn(experiment.cutting, batches(kept))
    if experiment.own_tokens and not known:
        from nlp.models.pretrained import pooling, scoring

        facts |= pooling(experiment.model, facts, len(kept))
        facts |= scoring(experiment.model, len(kept), len(classes), protected_by(experiment.train) is not None)
    facts["splits"] = describe(dict(final), classes if data.labels == "one" else None)
    if reject is not None:
        outside = {name: int(np.sum(source.labels == len(classes))) for name, source in final.items()
                 if source is not None and source.labels is not None}
        notes.append("texts of no class: " + ", ".join(f"{count:,} in {name}" for name, count in outside.items()))
        if reject.accept is None and not outside.get("validation") and not known:
            raise DataError("reject: validation has no texts of no class, on which the threshold could be chosen; set reject.accept: 0.95 "
                            "(the share of validation's other texts that pass), or add such texts to it")
    return Splits(train=kept, validation=final["validation"], test=final["test"], facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes, *remarks))


def of_preset(experiment: TextExperiment | TextTagging | PassageAnswers) -> tuple[dict[str, Any], list[str]]:
    """Facts and notes of a pretrained encoder, before any data are read; nothing for other models."""
    if not experiment.own_tokens:
        return {}, []
    from nlp.models import pretrained

    return pretrained.learn(experiment.model)


def batches(source: TextSource, size: int = BATCH) -> Iterator[tf.Tensor]:
    """All texts in their order, [size] string each."""
    for start in range(0, len(source), size):
        yield source.texts[start:start + size]


def class_numbers(source: Source) -> list[tuple[int, ...]]:
    """The classes of each example, as numbers of Opened.classes; none for a text of no class."""
    base, numbers = origin(source)
    if isinstance(base, Loaded) and base.label_sets is not None:
        return [base.label_sets[number] for number in numbers.tolist()]
    return [() if label == OUTSIDE else (label,) for label in np.asarray(source.labels).tolist()]


def of_known_classes(parts: Mapping[str, Source | None], opened: Opened, *, skip: bool) -> dict[str, Source | None]:
    """The splits without examples of classes that train lacks; these are listed as skipped.

    Raises:
        DataError: there are such examples, and `skip` is false.
    """
    train = parts["train"]
    known = {label for labels in class_numbers(train) for label in labels} if train is not None else set()
    known_parts = dict(parts)
    for name, source in parts.items():
        if source is None or name == "train":
            continue
        unknown = {number: labels for number, labels in enumerate(class_numbers(source)) if not known.issuperset(labels)}
        if unknown and not skip:
            titles = sorted({opened.classes[label] for labels in unknown.values() for label in labels if label not in known})
            raise DataError(f"{opened.place}: {name} has classes of which train has no example: {', '.join(titles[:5])}"
                            f"{' ...' if len(titles) > 5 else ''} (such as {source.name(min(unknown))}); add examples to train, or remove "
                            "them, or set data.on_bad_example: skip")
        opened.skipped.extend(f"{source.name(number)}: class {opened.classes[next(label for label in labels if label not in known)]} is "
                              "not in train" for number, labels in unknown.items())
        known_parts[name] = source.subset([number for number in range(len(source)) if number not in unknown]) if unknown else source
    return known_parts


def _inside(source: Source | None) -> Source | None:
    """Without the texts of no class."""
    if source is None or source.labels is None or (source.labels != OUTSIDE).all():
        return source
    return source.subset(np.flatnonzero(source.labels != OUTSIDE))


def _final(source: Source, classes: Sequence[int]) -> TextSource:
    """The examples with labels renumbered over `classes`, train's classes by their previous numbers."""
    base, numbers = origin(source)
    if not isinstance(base, Loaded):
        raise TypeError(f"texts expected, got {type(base).__name__}")
    texts = base.texts if len(numbers) == len(base) and (numbers == np.arange(len(base))).all() else tf.gather(base.texts, numbers)
    place = {number: at for at, number in enumerate(classes)}
    stored: np.ndarray
    labels: np.ndarray | None
    weights: np.ndarray
    if base.label_sets is not None:
        hot = np.zeros((len(numbers), len(classes)), np.float32)
        for row, number in enumerate(numbers.tolist()):
            hot[row, [place[label] for label in base.label_sets[number]]] = 1.0
        stored, labels, weights = hot, None, np.ones(len(numbers), np.float32)
    else:
        labels = np.array([place.get(label, len(classes)) for label in np.asarray(source.labels).tolist()], np.int64)
        inside = labels < len(classes)
        weights = np.where(inside, len(labels) / max(1, inside.sum()), 0.0).astype(np.float32)
        stored = labels
    with tf.device("CPU:0"):
        tensors = {name: tf.constant(value) for name, value in (("label", stored), ("weight", weights))}
    return TextSource(texts, tensors, lambda number: base.name(int(numbers[number])), fingerprint=source.fingerprint(), labels=labels,
                      groups=source.groups)


def _counts(source: TextSource, classes: int) -> list[int]:
    if source.labels is not None:
        return np.bincount(source.labels, minlength=classes)[:classes].tolist()
    hot = source.gather(tf.range(len(source), dtype=tf.int64))["label"].numpy()
    return hot.sum(axis=0).astype(int).tolist()
