"""Several labels for each example: metrics, tables and figures, and the thresholds from which labels are given."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.special import expit, logit

from pipelines.config.schema import Evaluate
from pipelines.data.source import Source
from pipelines.outputs import classification_figures, classifier, curves
from pipelines.task.intervals import bounds_of_columns, interval, mean, resampled, share
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import EXAMPLES, Units

EVEN = 0.5  # probability from which a label is given unless validation chose another
TOGETHER = 12  # labels, the commonest, of which it is drawn how often they come together
INTERVALS = 1000  # labels up to which the F1 of each has an interval
TINY = 1e-6  # of a threshold, which is otherwise within 0 and 1
SURE = 10  # examples with a label, or without it, of which its own threshold says as much as that of all labels together


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


def label_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The probability from which each label is given, [classes] float64, for the highest F1 of each.

    The best threshold on few examples is much of it chance: the fewer examples have a label, or are without it, the nearer its threshold
    is, in log-odds, to the best one for all labels together, and that one to `EVEN`; with `SURE` of them it stands halfway.

    Args:
        probabilities, labels: [n, classes].
    """
    labels = np.asarray(labels)
    shared = _shrunk(label_threshold(probabilities, labels), EVEN, labels)
    return np.array([_shrunk(label_threshold(probabilities[:, k:k + 1], labels[:, k:k + 1]), shared, labels[:, k])
                     for k in range(labels.shape[1])])


def _shrunk(own: float, common: float, labels: np.ndarray) -> float:
    rarer = min(labels.sum(), (1 - labels).sum())
    log_odds = logit(np.clip([common, own], TINY, 1 - TINY))
    return float(expit(log_odds[0] + rarer / (rarer + SURE) * (log_odds[1] - log_odds[0])))


def example_f1(given: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The F1 of each example's labels, [n] float64, 1 where nothing is true and nothing given.

    Args:
        given, true: [n, classes] bool, or 0 and 1.
    """
    given, true = np.asarray(given) > 0.5, np.asarray(true) > 0.5
    sizes = given.sum(axis=1) + true.sum(axis=1)
    return np.where(sizes > 0, 2 * (given & true).sum(axis=1) / np.maximum(sizes, 1), 1.0)


SET_SCORES = ("micro_f1", "macro_f1", "mean_average_precision")


def set_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """SET_SCORES as `judge_many` defines them, with the labels' best thresholds.

    Args:
        probabilities, labels: [n, classes].
    """
    true = labels > 0.5
    given = probabilities >= label_thresholds(probabilities, labels).astype(np.float32)
    sums = np.asarray(_hits_and_sizes(given, true).sum(axis=0), np.float64).reshape(1, -1)
    hits, sizes = np.split(sums[0], 2)
    each = [curves.precision_area(probabilities[:, label], true[:, label]) or 0.0 for label in np.flatnonzero(true.any(axis=0))]
    return {"micro_f1": float(hits.sum() / max(sizes.sum(), 1.0)), "macro_f1": float(_macro_f1(sums)[0]),
            "mean_average_precision": float(np.mean(each)) if each else 0.0}


def judge_many(probabilities: np.ndarray, labels: np.ndarray, classes: list[str], source: Source, settings: Evaluate,
               thresholds: np.ndarray | float | None, units: Units = EXAMPLES) -> Judgement:
    """Several labels an example.

    Args:
        probabilities, labels: [n, classes].
        thresholds: the probability from which each label is given, or all are; None (EVEN) without a validation split to choose it on.

    Metrics:
        micro_f1: 2 tp / (2 tp + fp + fn) over all examples and labels; macro_f1: its mean over labels that are true or given anywhere.
        example_f1: the mean of each example's own F1, 1 where nothing is true and nothing given.
        mean_average_precision: mean over labels that are true for some example of their average precision.
        label_ranking_precision: of each example's true labels, the share of true ones among those at least as probable (label ranking
            average precision: Schapire and Singer 2000, "BoosTexter"); 1 where none or all are true.
        subset_accuracy: share of examples whose labels are exactly the true ones. label_error_rate: share of wrong decisions.
        macro_auroc: mean over labels that are true for some examples and not for others.
    """
    at = np.broadcast_to(np.asarray(EVEN if thresholds is None else thresholds, np.float32), len(classes))
    given, true = probabilities >= at, labels > 0.5
    own = example_f1(given, true)
    joined = {name: [[classes[k] for k in np.flatnonzero(row)] for row in rows] for name, rows in (("labels", true), ("predicted", given))}
    chosen = "chosen on validation" if thresholds is not None else "there is no validation split to choose it on"
    single = at.min() == at.max()
    note = (f"A label is given from probability {at[0]:.3f} on ({chosen})." if single else
            f"Each label is given from a probability of its own on, {at.min():.3f} to {at.max():.3f} ({chosen}).")
    judgement = Judgement(_metrics(probabilities, given, true, own, settings, units), units=units, notes=[note, *units.notes()])
    judgement.predictions = {"example": [source.name(number) for number in range(len(own))], **joined, "example_f1": own}
    judgement.tables["per_class"] = _by_label(probabilities, given, true, at, classes, settings, units)
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
    by_support = np.argsort(-true.sum(axis=0), kind="stable")
    add_curves(judgement, {classes[k]: (probabilities[:, k], true[:, k]) for k in by_support[:6].tolist()}, None, units)
    together = np.sort(by_support[:TOGETHER])
    judgement.figures["labels_together"] = classification_figures.together(
        {"true": true[:, together], "given": given[:, together]}, [classes[k] for k in together])
    return judgement


def _metrics(probabilities: np.ndarray, given: np.ndarray, true: np.ndarray, own: np.ndarray, settings: Evaluate, units: Units,
             ) -> dict[str, Metric]:
    how: dict[str, Any] = {"resamples": settings.bootstrap, "units": units}
    pairs = np.stack([2.0 * (given & true).sum(axis=1), given.sum(axis=1) + true.sum(axis=1)], axis=1)
    metrics = {
        "micro_f1": interval(pairs, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1), **how),
        "macro_f1": interval(_hits_and_sizes(given, true), _macro_f1, **how),
        "example_f1": mean(own, **how),
    }
    if true.any():
        metrics["mean_average_precision"] = curves.mean_average_precision(probabilities, true, **how)
    return metrics | {
        "label_ranking_precision": mean(ranking_precision(probabilities, true), **how),
        "subset_accuracy": share((given == true).all(axis=1), **how),
        "label_error_rate": mean((given != true).mean(axis=1), **how),
    }


def ranking_precision(probabilities: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Of each example the mean, over its true labels, of the share of true labels among those at least as probable, [n] float64; 1 where
    none or all are true.

    Args:
        probabilities, true: [n, classes].
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked, hits = np.take_along_axis(probabilities, order, 1), np.take_along_axis(true, order, 1).astype(np.float64)
    places = np.arange(true.shape[1])
    last = np.pad(ranked[:, 1:] != ranked[:, :-1], [(0, 0), (0, 1)], constant_values=True)  # of those that are equally probable
    end = np.minimum.accumulate(np.where(last, places, places[-1])[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(np.cumsum(hits, axis=1) / (places + 1), end, 1)
    count = hits.sum(axis=1)
    return np.where(count > 0, (precision * hits).sum(axis=1) / np.maximum(count, 1), 1.0)


def _hits_and_sizes(given: np.ndarray, true: np.ndarray) -> Any:
    """[n, 2 x labels]: twice the right ones, then given and true ones together, of each label."""
    return hstack([2.0 * csr_matrix(given & true), csr_matrix(given, dtype=np.float64) + csr_matrix(true, dtype=np.float64)], format="csr")


def _f1(sums: np.ndarray) -> np.ndarray:
    """Of each label, [m, labels]; NaN where one is neither true nor given."""
    hits, sizes = np.split(sums, 2, axis=1)
    return np.where(sizes > 0, hits / np.maximum(sizes, 1), np.nan)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    each = _f1(sums)
    return np.nansum(each, axis=1) / np.maximum((~np.isnan(each)).sum(axis=1), 1)


def _by_label(probabilities: np.ndarray, given: np.ndarray, true: np.ndarray, thresholds: np.ndarray, classes: list[str],
              settings: Evaluate, units: Units) -> list[dict[str, Any]]:
    """The table of labels, a row each."""
    table, count = _hits_and_sizes(given, true), len(classes)
    f1 = _f1(np.asarray(table.sum(axis=0), np.float64).reshape(1, -1))[0]
    bounds = np.full((2, count), np.nan)
    if count <= INTERVALS:
        drawn = resampled(table, {"f1": _f1}, resamples=settings.bootstrap, units=units)["f1"]
        bounds = np.stack(bounds_of_columns(drawn))
    hits, support, answered = (part.sum(axis=0) for part in (given & true, true, given))
    return [{"class": name, "support": int(support[k]), "given": int(answered[k]), "threshold": float(thresholds[k]),
             "precision": float(hits[k] / answered[k]) if answered[k] else None,
             "recall": float(hits[k] / support[k]) if support[k] else None,
             "f1": _known(f1[k]), "f1_low": _known(bounds[0, k]), "f1_high": _known(bounds[1, k]),
             "average_precision": curves.precision_area(probabilities[:, k], true[:, k]),
             "auroc": curves.area(probabilities[:, k], true[:, k])} for k, name in enumerate(classes)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


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
