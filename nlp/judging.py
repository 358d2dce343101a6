"""How a text classifier did: one label a text (with texts of no class), or several."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.data.source import Source
from pipelines.reports import classification, classification_figures, curves
from pipelines.reports.intervals import interval, wilson
from pipelines.task import Judgement, Metric

if TYPE_CHECKING:
    from nlp.settings import TextEvaluate

EVEN = 0.5  # probability from which a label is given (labels: many) where validation chose nothing else
MISTAKES_LISTED = 20
THRESHOLDS = 2000  # most thresholds tried


def reject_threshold(probabilities: np.ndarray, labels: np.ndarray, accept: float | None) -> float:
    """The confidence below which a text is rejected.

    Args:
        probabilities: [n, classes].
        labels: [n], the number of classes for a text of no class.
        accept: the share of the texts of the classes that passes; None for the threshold at which most texts are treated rightly:
            those of a class get it, the others are rejected. Of equals the middle one.
    """
    confidence, classes = probabilities.max(axis=1).astype(np.float64), probabilities.shape[1]
    inside = labels < classes
    if accept is not None:
        return float(np.quantile(confidence[inside], 1.0 - accept, method="lower"))
    right = inside & (probabilities.argmax(axis=1) == labels)
    order = np.argsort(confidence, kind="stable")
    # rejecting the k least confident: their outside texts are right, and of the rest the right ones of the classes
    rejected = np.concatenate([[0], np.cumsum(~inside[order])])
    passed = np.concatenate([[0], np.cumsum(right[order][::-1])])[::-1]
    score = rejected + passed
    edges = np.concatenate([[0.0], (confidence[order][1:] + confidence[order][:-1]) / 2, [1.0]])
    best = np.flatnonzero(score == score.max())
    return float(edges[best[len(best) // 2]])


def label_threshold(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The probability from which a label is given: the one with the highest micro F1; of equals the nearest to 0.5.

    Args:
        probabilities, labels: [n, classes].
    """
    order = np.argsort(-probabilities, axis=None, kind="stable")
    scores, hits = probabilities.ravel()[order].astype(np.float64), labels.ravel()[order]
    given = np.arange(1, len(scores) + 1)
    f1 = 2 * np.cumsum(hits) / (given + hits.sum())
    last = np.append(scores[1:] < scores[:-1], True)  # equals are given together
    f1 = np.where(last, f1, -1.0)
    edges = np.append((scores[1:] + scores[:-1]) / 2, scores[-1])
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    return float(edges[best[np.argmin(np.abs(edges[best] - 0.5))]])


def judge_one(probabilities: np.ndarray, labels: np.ndarray, classes: list[str], source: Source, settings: "TextEvaluate",
              threshold: float | None) -> Judgement:
    """One label a text. Metrics are of the texts of the classes, answered without rejection; those of rejection say so.

    Args:
        probabilities: [n, classes].
        labels: [n], the number of classes for a text of no class.
        threshold: of rejection, or None.
    """
    numbers = np.flatnonzero(labels < len(classes))
    answered = classification.classified(probabilities[numbers], labels[numbers], classes)
    made = Judgement(
        metrics=classification.metrics(answered, resamples=settings.bootstrap),
        tables={
            "per_class": classification.per_class(answered),
            "worst_confusions": classification.worst_confusions(answered),
            "worst_mistakes": classification.mistakes_table(
                answered, min(settings.worst, MISTAKES_LISTED), lambda number: source.name(int(numbers[number]))),
        },
        notes=[classification.baseline_note(answered)],
    )
    for row, mistake in zip(made.tables["worst_mistakes"], classification.worst_mistakes(answered, MISTAKES_LISTED)):
        row["number"] = int(numbers[mistake.number])
    matrix = classification.confusion_matrix(answered.labels, answered.predicted, len(classes))
    made.figures["confusion"] = classification_figures.confusion(matrix, classes)
    made.figures["reliability"] = classification_figures.reliability(
        classification.reliability(answered), error=made.metrics["calibration_error"].value)
    if len(classes) == 2:
        _add_curves(made, {classes[1]: (probabilities[numbers, 1], labels[numbers] == 1)}, settings.bootstrap)
        made.notes.append(f"ROC and precision-recall are of the class {classes[1]}.")
    if threshold is not None:
        _add_rejection(made, probabilities, labels, len(classes), threshold, settings.bootstrap)
    return made


def _add_rejection(made: Judgement, probabilities: np.ndarray, labels: np.ndarray, classes: int, threshold: float, resamples: int) -> None:
    inside, confidence = labels < classes, probabilities.max(axis=1)
    passed = confidence >= np.float32(threshold)
    right = np.where(inside, passed & (probabilities.argmax(axis=1) == labels), ~passed)
    made.metrics["accuracy_with_rejection"] = _share(right[inside])
    made.notes.append(
        f"Texts whose highest probability is below {threshold:.3f} are rejected (chosen on validation); accuracy_with_rejection counts "
        f"rejected texts of the classes as mistakes. {int(inside.sum()):,} texts are of the classes, {int((~inside).sum()):,} of none.")
    if not (~inside).any():
        return
    made.metrics["out_of_scope_recall"] = _share(~passed[~inside])
    rejected = ~passed
    if rejected.any():
        made.metrics["out_of_scope_precision"] = _share(~inside[rejected])
    made.metrics["overall_accuracy"] = _share(right)
    made.metrics["out_of_scope_auroc"] = curves.auroc(-confidence, ~inside, resamples=resamples)
    made.figures["rejection"] = curves.figure({"texts of no class": curves.roc(-confidence, ~inside)}, kind="roc",
                                              title="Rejection: texts of no class among all")


def judge_many(probabilities: np.ndarray, labels: np.ndarray, classes: list[str], source: Source, settings: "TextEvaluate",
               threshold: float | None) -> Judgement:
    """Several labels a text.

    Args:
        probabilities, labels: [n, classes].
        threshold: the probability from which a label is given; None where there was no validation split to choose it by: EVEN.

    Metrics:
        micro_f1: 2 tp / (2 tp + fp + fn) over all texts and labels; macro_f1: its mean over labels that are true or given anywhere.
        example_f1: the mean of each text's own F1, 1 where nothing is true and nothing given.
        subset_accuracy: share of texts whose labels are exactly the true ones. label_error_rate: share of wrong decisions.
        macro_auroc: mean over labels that are true for some texts and not for others.
    """
    at = EVEN if threshold is None else threshold
    given = probabilities >= np.float32(at)
    true = labels > 0.5
    hit = given & true
    sizes = given.sum(axis=1) + true.sum(axis=1)
    own = np.where(sizes > 0, 2 * hit.sum(axis=1) / np.maximum(sizes, 1), 1.0)
    resamples = settings.bootstrap
    made = Judgement(notes=[f"A label is given from probability {at:.3f} on ("
                            + ("chosen on validation)." if threshold is not None else "there is no validation split to choose by).")])
    pairs = np.stack([2.0 * hit.sum(axis=1), sizes], axis=1)
    made.metrics["micro_f1"] = interval(pairs, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1), resamples=resamples)
    count = len(classes)
    table = np.concatenate([2.0 * hit, 1.0 * given + true], axis=1)

    def macro(sums: np.ndarray) -> np.ndarray:
        seen = sums[:, count:] > 0
        return (sums[:, :count] / np.maximum(sums[:, count:], 1)).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)

    made.metrics["macro_f1"] = interval(table, macro, resamples=resamples)
    made.metrics["example_f1"] = interval(own, lambda sums: sums[:, 0] / len(own), resamples=resamples)
    made.metrics["subset_accuracy"] = _share((given == true).all(axis=1))
    made.metrics["label_error_rate"] = interval((given != true).mean(axis=1), lambda sums: sums[:, 0] / len(own), resamples=resamples)
    made.tables["per_class"] = [
        {"class": name, "support": int(true[:, k].sum()), "given": int(given[:, k].sum()),
         "precision": float(hit[:, k].sum() / given[:, k].sum()) if given[:, k].any() else None,
         "recall": float(hit[:, k].sum() / true[:, k].sum()) if true[:, k].any() else None,
         "f1": float(2 * hit[:, k].sum() / (given[:, k].sum() + true[:, k].sum())) if given[:, k].any() or true[:, k].any() else None,
         "auroc": curves.area(probabilities[:, k], true[:, k])}
        for k, name in enumerate(classes)]
    areas = [row["auroc"] for row in made.tables["per_class"] if row["auroc"] is not None]
    if areas:
        made.metrics["macro_auroc"] = Metric(float(np.mean(areas)), n=len(own))
    made.tables["worst_confusions"] = _missed_pairs(given, true, classes)
    loss = -np.where(true, np.log(np.clip(probabilities, 1e-7, 1)), np.log(np.clip(1 - probabilities, 1e-7, 1))).sum(axis=1)
    wrong = np.flatnonzero((given != true).any(axis=1))
    worst = wrong[np.argsort(-loss[wrong], kind="stable")][: min(settings.worst, MISTAKES_LISTED)]
    made.tables["worst_mistakes"] = [
        {"example": source.name(int(number)), "true": _listed(true[number], classes), "predicted": _listed(given[number], classes),
         "loss": float(loss[number]), "number": int(number)} for number in worst]
    by_support = np.argsort(-true.sum(axis=0), kind="stable")[:6]
    _add_curves(made, {classes[k]: (probabilities[:, k], true[:, k]) for k in by_support.tolist()}, None)
    return made


def _listed(row: np.ndarray, classes: list[str]) -> str:
    return ", ".join(classes[place] for place in np.flatnonzero(row)) or "none"


def _missed_pairs(given: np.ndarray, true: np.ndarray, classes: list[str], limit: int = 20) -> list[dict[str, Any]]:
    """How often a label was missed while another was given wrongly, most frequent first."""
    missed, wrong = (true & ~given).astype(np.float32), (given & ~true).astype(np.float32)
    matrix = missed.T @ wrong
    order = np.argsort(-matrix, axis=None, kind="stable")[:limit]
    pairs = [(int(cell) // len(classes), int(cell) % len(classes)) for cell in order]
    return [{"true": classes[a], "predicted": classes[b], "count": int(matrix[a, b]), "share": float(matrix[a, b] / true[:, a].sum())}
            for a, b in pairs if matrix[a, b]]


def _add_curves(made: Judgement, parts: dict[str, tuple[np.ndarray, np.ndarray]], resamples: int | None) -> None:
    parts = {name: (scores, true) for name, (scores, true) in parts.items() if 0 < true.sum() < len(true)}
    if not parts:
        return
    if resamples is not None:
        scores, true = next(iter(parts.values()))
        made.metrics["auroc"] = curves.auroc(scores, true, resamples=resamples)
        made.metrics["average_precision"] = curves.average_precision(scores, true, resamples=resamples)
    made.figures["roc"] = curves.figure({name: curves.roc(*part) for name, part in parts.items()}, kind="roc")
    made.figures["precision_recall"] = curves.figure({name: curves.precision_recall(*part) for name, part in parts.items()},
                                                     kind="precision_recall")


def _share(hits: np.ndarray) -> Metric:
    low, high = wilson(hits.sum(), len(hits))
    return Metric(float(hits.mean()), float(low), float(high), len(hits))
