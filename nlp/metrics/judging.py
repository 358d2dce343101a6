"""What judging one label a text adds: texts of no class, their rejection, and the curves of two classes."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pipelines.data.source import Source
from pipelines.outputs import classification, classifier, curves
from pipelines.outputs.label_metrics import add_curves
from pipelines.task.intervals import share
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import EXAMPLES, Units

if TYPE_CHECKING:
    from nlp.settings import TextEvaluate


def reject_threshold(confidence: np.ndarray, predicted: np.ndarray, labels: np.ndarray, classes: int, accept: float | None) -> float:
    """The confidence below which a text is rejected.

    Args:
        confidence: [n], of the class `predicted` [n].
        labels: [n], `classes` (their number) for a text of no class.
        accept: the share of the texts of the classes that passes; None for the threshold at which most texts are treated correctly:
            those of a class get it, the others are rejected. The middle one of equals.
    """
    confidence = confidence.astype(np.float64)
    inside = labels < classes
    if accept is not None:
        return float(np.quantile(confidence[inside], 1.0 - accept, method="lower"))
    right = inside & (predicted == labels)
    order = np.argsort(confidence, kind="stable")
    # rejecting the k least confident: correct are the outside texts among them, and the correct answers among the rest
    rejected = np.concatenate([[0], np.cumsum(~inside[order])])
    passed = np.concatenate([[0], np.cumsum(right[order][::-1])])[::-1]
    score = rejected + passed
    edges = np.concatenate([[0.0], (confidence[order][1:] + confidence[order][:-1]) / 2, [1.0]])
    best = np.flatnonzero(score == score.max())
    return float(edges[best[len(best) // 2]])


def judge_one(answers: dict[str, np.ndarray], labels: np.ndarray, classes: list[str], source: Source, settings: "TextEvaluate",
              threshold: float | None, units: Units = EXAMPLES) -> Judgement:
    """One label a text. Metrics cover the texts of the classes, without rejection, unless their name says otherwise.

    Args:
        answers: as `condensed` leaves them.
        labels: [n], the number of classes for a text of no class.
        threshold: of rejection, or None.
        units: what intervals resample.
    """
    inside = labels < len(classes)
    numbers = np.flatnonzero(inside)
    answered = classification.of_condensed({name: value[numbers] for name, value in answers.items()}, labels[numbers], classes,
                                           columns(len(classes)))
    judgement = classifier.judgement(answered, settings, units.pick(numbers), lambda number: source.name(int(numbers[number])))
    for row, mistake in zip(judgement.tables["worst_mistakes"], classification.worst_mistakes(answered, classifier.MISTAKES_LISTED)):
        row["number"] = int(numbers[mistake.number])
    if len(classes) == 2:
        add_curves(judgement, {classes[1]: (answered.columns[1], labels[numbers] == 1)}, settings.bootstrap, units.pick(numbers))
        judgement.notes.append(f"ROC and precision-recall are of the class {classes[1]}.")
    if threshold is not None:
        judgement.predictions = {
            "example": [source.name(number) for number in range(len(labels))],
            "label": [classes[label] if label < len(classes) else None for label in labels.tolist()],
            "predicted": [classes[number] for number in answers["predicted"].tolist()],
            "confidence": answers["confidence"], "rejected": answers["confidence"] < np.float32(threshold)}
        _add_rejection(judgement, answers["confidence"], answers["predicted"], labels, inside, threshold, settings.bootstrap, units)
    return judgement


def condensed(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The part that `judge_one` needs of a batch of probabilities [batch, classes] and labels [batch]."""
    return classification.condensed(probabilities, labels, columns(probabilities.shape[1]))


def columns(classes: int) -> list[int]:
    """Classes whose probabilities are kept for every text: of two the second, for the ROC."""
    return [1] if classes == 2 else []


def _add_rejection(judgement: Judgement, confidence: np.ndarray, predicted: np.ndarray, labels: np.ndarray, inside: np.ndarray,
                   threshold: float, resamples: int, units: Units) -> None:
    passed = confidence >= np.float32(threshold)
    right = np.where(inside, passed & (predicted == labels), ~passed)

    def of(hits: np.ndarray, mask: np.ndarray) -> Metric:
        return share(hits[mask], resamples=resamples, units=units.pick(mask))

    judgement.metrics["accuracy_with_rejection"] = of(right, inside)
    judgement.notes.append(
        f"Texts whose highest probability is below {threshold:.3f} are rejected (chosen on validation); accuracy_with_rejection counts "
        f"rejected texts of the classes as mistakes. {int(inside.sum()):,} texts are of the classes, {int((~inside).sum()):,} of none.")
    if not (~inside).any():
        return
    judgement.metrics["out_of_scope_recall"] = of(~passed, ~inside)
    if not passed.all():
        # each model rejects other texts, so two models' values are not paired
        judgement.metrics["out_of_scope_precision"] = replace(of(~inside, ~passed), drawn=None)
    judgement.metrics["overall_accuracy"] = share(right, resamples=resamples, units=units)
    judgement.metrics["out_of_scope_auroc"] = curves.auroc(-confidence, ~inside, resamples=resamples, units=units)
    judgement.figures["rejection"] = curves.figure({"texts of no class": curves.roc(-confidence, ~inside)}, kind="roc",
                                              title="Rejection: texts of no class among all")
