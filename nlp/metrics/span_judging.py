"""Precision, recall and F1 of spans, which count where their places and their type are right, as seqeval and conlleval count them."""

from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.marked import MarkedText, Piece
from pipelines.data.source import Source
from pipelines.outputs import classification_figures as figures
from pipelines.task import intervals
from pipelines.task.results import Judgement, worst_numbers

Span = tuple[int, int, int]


def f1(sums: np.ndarray) -> np.ndarray:
    """Of sums [m, 3] of spans right, found and true: twice the right ones by the others together, 0 where there are none."""
    return 2.0 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1.0)


def precision(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1.0)


def recall(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 2], 1.0)


METRICS = {"entity_f1": f1, "entity_precision": precision, "entity_recall": recall}


def counts(given: np.ndarray, true: np.ndarray, classes: int) -> np.ndarray:
    """Spans of each type that are right, found and true, [examples, classes, 3] float64, of spans [examples, any, 3] each, whose ends are 0
    behind the last."""
    sums = np.zeros((len(true), classes, 3))
    for row, (mine, theirs) in enumerate(zip(given, true)):
        found, wanted = _set(mine), _set(theirs)
        for column, spans in enumerate((found & wanted, found, wanted)):
            for span in spans:
                sums[row, span[2], column] += 1
    return sums


def by_text(given: np.ndarray, true: np.ndarray) -> np.ndarray:
    """F1 of each example, [examples] float64; NaN where there are neither true nor found spans."""
    classes = 1 + int(max(given[..., 2].max(initial=0), true[..., 2].max(initial=0)))
    sums = counts(given, true, classes).sum(1)
    return np.where(sums[:, 1] + sums[:, 2] > 0, f1(sums), np.nan)


def judge(output: Any, given: np.ndarray, true: np.ndarray, source: Source) -> Judgement:
    """Entity F1, precision and recall with intervals, the same by type, and the texts whose F1 is worst with what was found in them."""
    settings, classes = output.experiment.evaluate, output.classes
    units = output.input.units(source)
    sums = counts(given, true, len(classes))
    how: Any = {"resamples": settings.bootstrap, "units": units}
    metrics = {name: intervals.interval(sums.sum(1), metric, **how) for name, metric in METRICS.items()}
    table = []
    for number, kind in enumerate(classes):
        own = intervals.interval(sums[:, number], f1, **how)
        total = sums[:, number].sum(0, keepdims=True)
        table.append({"class": kind, "examples": int(total[0, 2]), "found": int(total[0, 1]), "precision": float(precision(total)[0]),
                      "recall": float(recall(total)[0]), "f1": own.value, "f1_low": own.low, "f1_high": own.high})
    names = [source.name(number) for number in range(len(source))]
    each = by_text(given, true)
    whole = sums.sum(1)
    judgement = Judgement(metrics, {"classes": table}, units=units, notes=units.notes(), predictions={
        "example": names, "entities": whole[:, 2].astype(int), "found": whole[:, 1].astype(int), "right": whole[:, 0].astype(int),
        "entity_f1": each})
    judgement.notes.append("A thing counts as found where its first and last character and its type are right.")
    judgement.figures["confusion"] = figures.confusion(confusion(given, true, len(classes)), [*classes, "nothing"])
    worst = worst_numbers(output, {"spans": given}, {"spans": true}, settings.worst)
    numbers = [number for number, _ in worst]
    texts = _texts(source, numbers)
    judgement.tables["worst_mistakes"] = [
        {"number": number, "example": names[number], "entity_f1": score, "true": marked(text, _set(true[number]), classes),
         "found": marked(text, _set(given[number]), classes)} for (number, score), text in zip(worst, texts)]
    return judgement


def confusion(given: np.ndarray, true: np.ndarray, classes: int) -> np.ndarray:
    """How often spans of each type (rows) are found as each (columns), by the first span that has a character in common with them;
    [classes + 1, classes + 1] int64, the last for nothing. Spans as `counts` takes them."""
    table = np.zeros((classes + 1, classes + 1), np.int64)
    for mine, theirs in zip(given, true):
        found = _set(mine)
        for start, end, kind in _set(theirs):
            touching = min((one for one in found if one[0] < end and one[1] > start), default=None)
            table[kind, classes if touching is None else touching[2]] += 1
        for start, end, kind in found:
            table[classes, kind] += not any(one[0] < end and one[1] > start for one in _set(theirs))
    return table


def marked(text: str, spans: set[Span], classes: list[str]) -> MarkedText:
    """A text with its spans marked, each with its type: `in [Paris location]`."""
    pieces, at = [], 0
    for start, end, kind in sorted(spans):
        pieces += [Piece(text[at:start]), Piece(text[start:end], kind, classes[kind])]
        at = end
    return MarkedText([*pieces, Piece(text[at:])])


def marked_texts(source: Source, numbers: list[int], classes: list[str]) -> list[str]:
    """Texts of a source with their spans."""
    stored = source.gather(tf.constant(numbers, tf.int64))["spans"].numpy()
    spans = [np.frombuffer(one, np.int32).reshape(-1, 3) for one in stored]
    return [marked(text, _set(one), classes) for text, one in zip(_texts(source, numbers), spans)]


def _set(spans: np.ndarray) -> set[Span]:
    return {(start, end, kind) for start, end, kind in spans.tolist() if end > 0}


def _texts(source: Source, numbers: list[int]) -> list[str]:
    if not numbers:
        return []
    return [text.decode("utf-8", "replace") for text in source.gather(tf.constant(numbers, tf.int64))["text"].numpy()]
