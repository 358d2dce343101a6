"""Several labels for each example: metrics, tables and figures, and the threshold from which a label is given."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack

from pipelines.config.schema import Evaluate
from pipelines.data.source import Source
from pipelines.outputs import classifier, curves
from pipelines.task.intervals import interval, mean, share
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import EXAMPLES, Units

EVEN = 0.5  # probability from which a label is given unless validation chose another


def label_threshold(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The probability from which a label is given: the one with the highest micro F1; the nearest to 0.5 of equals.

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


def example_f1(given: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The F1 of each example's labels, [n] float64, 1 where nothing is true and nothing given.

    Args:
        given, true: [n, classes] bool, or 0 and 1.
    """
    given, true = np.asarray(given) > 0.5, np.asarray(true) > 0.5
    sizes = given.sum(axis=1) + true.sum(axis=1)
    return np.where(sizes > 0, 2 * (given & true).sum(axis=1) / np.maximum(sizes, 1), 1.0)


def judge_many(probabilities: np.ndarray, labels: np.ndarray, classes: list[str], source: Source, settings: Evaluate,
               threshold: float | None, units: Units = EXAMPLES) -> Judgement:
    """Several labels an example.

    Args:
        probabilities, labels: [n, classes].
        threshold: the probability from which a label is given; None (EVEN) without a validation split to choose it on.

    Metrics:
        micro_f1: 2 tp / (2 tp + fp + fn) over all examples and labels; macro_f1: its mean over labels that are true or given anywhere.
        example_f1: the mean of each example's own F1, 1 where nothing is true and nothing given.
        subset_accuracy: share of examples whose labels are exactly the true ones. label_error_rate: share of wrong decisions.
        macro_auroc: mean over labels that are true for some examples and not for others.
    """
    at = EVEN if threshold is None else threshold
    given = probabilities >= np.float32(at)
    true = labels > 0.5
    hit = given & true
    sizes = given.sum(axis=1) + true.sum(axis=1)
    own = example_f1(given, true)
    joined = {name: [[classes[k] for k in np.flatnonzero(row)] for row in rows] for name, rows in (("labels", true), ("predicted", given))}
    how: dict[str, Any] = {"resamples": settings.bootstrap, "units": units}
    chosen = "chosen on validation" if threshold is not None else "there is no validation split to choose it on"
    judgement = Judgement(units=units, notes=[f"A label is given from probability {at:.3f} on ({chosen}).", *units.notes()])
    judgement.predictions = {"example": [source.name(number) for number in range(len(own))], **joined, "example_f1": own}
    pairs = np.stack([2.0 * hit.sum(axis=1), sizes], axis=1)
    judgement.metrics["micro_f1"] = interval(pairs, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1), **how)
    count = len(classes)
    table = hstack([2.0 * csr_matrix(hit), csr_matrix(given, dtype=np.float64) + csr_matrix(true, dtype=np.float64)], format="csr")

    def macro(sums: np.ndarray) -> np.ndarray:
        seen = sums[:, count:] > 0
        return (sums[:, :count] / np.maximum(sums[:, count:], 1)).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)

    judgement.metrics["macro_f1"] = interval(table, macro, **how)
    judgement.metrics["example_f1"] = mean(own, **how)
    judgement.metrics["subset_accuracy"] = share((given == true).all(axis=1), **how)
    judgement.metrics["label_error_rate"] = mean((given != true).mean(axis=1), **how)
    judgement.tables["per_class"] = [
        {"class": name, "support": int(true[:, k].sum()), "given": int(given[:, k].sum()),
         "precision": float(hit[:, k].sum() / given[:, k].sum()) if given[:, k].any() else None,
         "recall": float(hit[:, k].sum() / true[:, k].sum()) if true[:, k].any() else None,
         "f1": float(2 * hit[:, k].sum() / (given[:, k].sum() + true[:, k].sum())) if given[:, k].any() or true[:, k].any() else None,
         "auroc": curves.area(probabilities[:, k], true[:, k])}
        for k, name in enumerate(classes)]
    areas = [row["auroc"] for row in judgement.tables["per_class"] if row["auroc"] is not None]
    if areas:
        judgement.metrics["macro_auroc"] = Metric(float(np.mean(areas)), n=len(own))
    judgement.tables["worst_confusions"] = _missed_pairs(given, true, classes)
    loss = -np.where(true, np.log(np.clip(probabilities, 1e-7, 1)), np.log(np.clip(1 - probabilities, 1e-7, 1))).sum(axis=1)
    wrong = np.flatnonzero((given != true).any(axis=1))
    worst = wrong[np.argsort(-loss[wrong], kind="stable")][: min(settings.worst, classifier.MISTAKES_LISTED)]
    judgement.tables["worst_mistakes"] = [
        {"example": source.name(int(number)), "true": _listed(true[number], classes), "predicted": _listed(given[number], classes),
         "loss": float(loss[number]), "number": int(number)} for number in worst]
    by_support = np.argsort(-true.sum(axis=0), kind="stable")[:6]
    add_curves(judgement, {classes[k]: (probabilities[:, k], true[:, k]) for k in by_support.tolist()}, None, units)
    return judgement


def _listed(row: np.ndarray, classes: list[str]) -> str:
    return ", ".join(classes[place] for place in np.flatnonzero(row)) or "none"


def _missed_pairs(given: np.ndarray, true: np.ndarray, classes: list[str], limit: int = 20) -> list[dict[str, Any]]:
    """How often a label was missed while another was given wrongly, most frequent first."""
    missed, wrong = csr_matrix(true & ~given, dtype=np.int64), csr_matrix(given & ~true, dtype=np.int64)
    pairs = (missed.T @ wrong).tocoo()
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:limit]
    return [{"true": classes[a], "predicted": classes[b], "count": int(count), "share": float(count / true[:, a].sum())}
            for a, b, count in zip(pairs.row[order], pairs.col[order], pairs.data[order])]


def add_curves(judgement: Judgement, parts: dict[str, tuple[np.ndarray, np.ndarray]], resamples: int | None, units: Units) -> None:
    parts = {name: (scores, true) for name, (scores, true) in parts.items() if 0 < true.sum() < len(true)}
    if not parts:
        return
    if resamples is not None:
        scores, true = next(iter(parts.values()))
        judgement.metrics["auroc"] = curves.auroc(scores, true, resamples=resamples, units=units)
        judgement.metrics["average_precision"] = curves.average_precision(scores, true, resamples=resamples, units=units)
    judgement.figures["roc"] = curves.figure({name: curves.roc(*part) for name, part in parts.items()}, kind="roc")
    judgement.figures["precision_recall"] = curves.figure({name: curves.precision_recall(*part) for name, part in parts.items()},
                                                     kind="precision_recall")
