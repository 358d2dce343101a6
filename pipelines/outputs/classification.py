"""Results of a classifier: metrics with intervals, tables and mistakes, from class probabilities and labels alone.

Knows nothing of what was classified: images, sounds and texts are judged alike. Definitions are in each
function, agree with scikit-learn where it has them, and every metric is resampled on the same units.
Answers are condensed batch by batch (`condensed`), so that memory grows with the examples and
not with the examples x classes; confusions are counted by pairs that occur.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.base.errors import TrainingError
from pipelines.task.intervals import certain, measured, resampled, wilson
from pipelines.task.results import Metric
from pipelines.task.units import EXAMPLES, Units

BINS = 15  # of the calibration error, as in Guo et al. 2017
TOP = 5


@dataclass(frozen=True)
class Mistake:
    """One wrongly answered example.

    Attributes:
        number: of the example in its source.
        true, predicted: class numbers.
        confidence: probability of the predicted class.
        probability: probability of the true class.
        loss: -log(probability), nats.
    """

    number: int
    true: int
    predicted: int
    confidence: float
    probability: float
    loss: float


@dataclass(frozen=True)
class Classified:
    """Answers beside the truth; all that follows is computed from it.

    Attributes:
        labels: [n] int64.
        predicted: [n] int64, the most probable class, the first of equals.
        confidence: [n] float64, its probability.
        probability: [n] float64, of the true class.
        ranks: [n] int64, of the true class, 0 for the first; of equal probabilities the lower class number comes first.
        losses: [n] float64, log loss in nats: -log p(true), p no smaller than float32's epsilon (1.2e-7, so at most 15.9).
        classes: names.
        columns: class number -> [n] its probabilities, of the requested classes.
    """

    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    probability: np.ndarray
    ranks: np.ndarray
    losses: np.ndarray
    classes: tuple[str, ...]
    columns: Mapping[int, np.ndarray] = field(default_factory=dict)

    @property
    def hits(self) -> np.ndarray:
        """[n] bool: the answer is right."""
        return self.predicted == self.labels


def condensed(probabilities: np.ndarray, labels: np.ndarray, columns: Sequence[int] = ()) -> dict[str, np.ndarray]:
    """The part of a batch of answers that is kept: name -> [batch] or [batch, columns].

    Args:
        probabilities: [batch, classes], from a softmax.
        labels: [batch]; `probability` is 0 for a label outside the classes.
        columns: classes whose probabilities are kept for every example.

    Raises:
        ValueError: shapes do not fit, or rows are not probabilities.
    """
    probabilities, labels = np.asarray(probabilities), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(f"probabilities [n, classes] and labels [n] expected, got {probabilities.shape} and {labels.shape}")
    n, count = probabilities.shape
    sums = probabilities.sum(axis=1, dtype=np.float64)
    finite = np.isfinite(sums)
    if (n and (probabilities.min(axis=1)[finite] < -1e-6).any()) or (np.abs(sums[finite] - 1) > 1e-2).any():
        raise ValueError("rows of probabilities must not be negative and must sum to 1; were these logits?")
    rows, known = np.arange(n), (labels >= 0) & (labels < count)
    at = np.where(known, labels, 0)
    true = np.where(known, probabilities[rows, at], 0)
    predicted = probabilities.argmax(axis=1) if n else np.zeros(0, np.int64)
    ranks = (probabilities > true[:, None]).sum(axis=1)
    equal = probabilities == true[:, None]
    for row in np.flatnonzero(equal.sum(axis=1) > 1):
        ranks[row] += equal[row, :at[row]].sum()
    return {"predicted": predicted, "confidence": probabilities[rows, predicted], "probability": true, "rank": ranks, "finite": finite,
            "columns": probabilities[:, list(columns)]}


def classified(probabilities: np.ndarray, labels: np.ndarray, classes: Sequence[str] | None = None) -> Classified:
    """All answers at once.

    Args:
        probabilities: [n, classes], from a softmax; the probabilities of every class are kept.
        labels: [n], true class numbers.
        classes: names; default: the numbers.

    Raises:
        TrainingError, ValueError: as `condensed` and `of_condensed`; a wrong number of names.
    """
    columns = range(np.shape(probabilities)[-1])
    answers = condensed(probabilities, labels, columns)
    names = classes if classes is not None else [str(number) for number in columns]
    if len(names) != len(columns):
        raise ValueError(f"{len(names)} class names for {len(columns)} columns of probabilities")
    return of_condensed(answers, labels, names, columns)


def of_condensed(answers: Mapping[str, np.ndarray], labels: np.ndarray, classes: Sequence[str], columns: Sequence[int] = ()) -> Classified:
    """Answers as `condensed` leaves them, checked once.

    Raises:
        TrainingError: the model's answers are not finite.
        ValueError: a label is outside the classes.
    """
    names, finite, n = tuple(str(name) for name in classes), answers["finite"], len(labels)
    if not finite.all():
        raise TrainingError(f"the model's probabilities are not finite for {n - int(finite.sum())} of {n} examples (the first is example "
                            f"{int(np.argmin(finite))}): its weights hold NaN or infinity, or its outputs overflow in this precision")
    labels = np.asarray(labels).astype(np.int64)
    if n and not (labels.min() >= 0 and labels.max() < len(names)):
        raise ValueError(f"labels from {labels.min()} to {labels.max()} do not fit {len(names)} classes")
    probability = answers["probability"].astype(np.float64)
    return Classified(labels, answers["predicted"].astype(np.int64), answers["confidence"].astype(np.float64), probability,
                      answers["rank"].astype(np.int64), -np.log(np.clip(probability, np.finfo(np.float32).eps, 1.0)), names,
                      {int(number): answers["columns"][:, place] for place, number in enumerate(columns)})


def confusions(answers: Classified) -> Any:
    """Counts of the pairs that occur: a sparse matrix [classes, classes] int64, rows true, columns predicted."""
    from scipy.sparse import csr_matrix

    count = len(answers.classes)
    return csr_matrix((np.ones(len(answers.labels), np.int64), (answers.labels, answers.predicted)), shape=(count, count))


def bin_numbers(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The equal-width bin ((m-1)/bins, m/bins] of each confidence, [n] int64 from 0; a confidence of 0 falls into the first."""
    return np.minimum(np.searchsorted(np.arange(1, bins + 1) / bins, confidence, side="left"), bins - 1)


def metrics(answers: Classified, *, resamples: int = 1000, seed: int = 0, units: Units = EXAMPLES) -> dict[str, Metric]:
    """The metrics of a classifier with 95 % bootstrap intervals, all over the same resamples, of examples or of whole groups of them.

    accuracy            share of examples whose most probable class is the true one
    top5_accuracy       share whose true class is among the five most probable; only with more than 5 classes
    macro_f1            mean over classes of 2 tp / (2 tp + fp + fn); classes neither true nor predicted anywhere are
                        left out, in each resample anew
    log_loss            mean of -log p(true), nats
    calibration_error   expected calibration error (Guo et al. 2017, "On Calibration of Modern Neural Networks", eq. 3): 15
                        equal-width bins of the predicted class's probability; the mean over examples of
                        |accuracy - mean confidence| of their bin. Noise only raises it: the interval is the basic bootstrap's.

    Where all examples are right, or all wrong, accuracy's interval is Wilson's, since resampling such data shows no spread.
    """
    n = len(answers.labels)
    if n == 0:
        return {}
    values, statistics = _table(answers)
    drawn = resampled(values, statistics, resamples=resamples, seed=seed, units=units)
    once = np.asarray(values.sum(axis=0), np.float64).reshape(1, -1)
    with_intervals = {}
    for name, statistic in statistics.items():
        kind: Any = "basic" if name == "calibration_error" else "percentile"
        metric = measured(float(statistic(once)[0]), drawn[name], n, units, kind=kind)
        with_intervals[name] = certain(metric) if name in ("accuracy", "top5_accuracy") else metric
    return with_intervals


def _table(answers: Classified) -> tuple[Any, dict[str, Callable[[np.ndarray], np.ndarray]]]:
    """Per-example values [n, k] (sparse) and the metrics as functions of their sums [m, k]."""
    from scipy.sparse import csc_matrix, hstack

    n, several = len(answers.labels), len(answers.classes) > TOP
    hits = answers.hits.astype(np.float64)
    bins = bin_numbers(answers.confidence)
    rows = np.arange(n)
    # classes that are neither true nor predicted anywhere are left out
    seen, numbers = np.unique(np.concatenate([answers.labels, answers.predicted]), return_inverse=True)
    labels, predicted, count = numbers[:n], numbers[n:], len(seen)

    def placed(columns: np.ndarray, width: int, data: np.ndarray | None = None) -> Any:
        return csc_matrix((np.ones(n) if data is None else data, (rows, columns)), shape=(n, width))

    parts = {
        "hit": csc_matrix(hits[:, None]), "loss": csc_matrix(answers.losses[:, None]), "one": csc_matrix(np.ones((n, 1))),
        "gap": placed(bins, BINS, hits - answers.confidence),
        "right": placed(labels, count, hits), "true": placed(labels, count), "predicted": placed(predicted, count),
    }
    if several:
        parts["top"] = csc_matrix((answers.ranks < TOP).astype(np.float64)[:, None])
    where, at = {}, 0
    for name, part in parts.items():
        where[name] = slice(at, at + part.shape[1])
        at += part.shape[1]

    def mean_of(name: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda sums: sums[:, where[name]][:, 0] / sums[:, where["one"]][:, 0]

    def calibration(sums: np.ndarray) -> np.ndarray:
        return np.abs(sums[:, where["gap"]]).sum(axis=1) / sums[:, where["one"]][:, 0]

    def macro_f1(sums: np.ndarray) -> np.ndarray:
        seen = sums[:, where["true"]] + sums[:, where["predicted"]]
        return (2 * sums[:, where["right"]] / np.maximum(seen, 1)).sum(axis=1) / (seen > 0).sum(axis=1)

    statistics = {"accuracy": mean_of("hit")}
    if several:
        statistics["top5_accuracy"] = mean_of("top")
    statistics |= {"macro_f1": macro_f1, "log_loss": mean_of("loss"), "calibration_error": calibration}
    return hstack(list(parts.values()), format="csr"), statistics


def worst_confusions(answers: Classified, limit: int = 20) -> list[dict[str, Any]]:
    """The pairs most often confused: true, predicted, count, and share of the true class's examples; most frequent first."""
    count = len(answers.classes)
    wrong = ~answers.hits
    pairs, times = np.unique(answers.labels[wrong] * count + answers.predicted[wrong], return_counts=True)
    support = np.bincount(answers.labels, minlength=count)
    order = np.argsort(-times, kind="stable")[:limit]
    return [{"true": answers.classes[true], "predicted": answers.classes[predicted], "count": int(number),
             "share": float(number / support[true])}
            for true, predicted, number in zip(pairs[order] // count, pairs[order] % count, times[order])]


def reliability(answers: Classified, bins: int = BINS) -> list[dict[str, Any]]:
    """A row for each equal-width bin of confidence: low, high, count, confidence (mean), accuracy with Wilson's 95 % interval.

    Empty bins have count 0 and None otherwise.
    """
    number = bin_numbers(answers.confidence, bins)
    count = np.bincount(number, minlength=bins)
    confidence = np.bincount(number, answers.confidence, minlength=bins)
    hits = np.bincount(number, answers.hits, minlength=bins)
    low, high = wilson(hits, count)
    rows: list[dict[str, Any]] = []
    for m in range(bins):
        row: dict[str, Any] = {"low": m / bins, "high": (m + 1) / bins, "count": int(count[m])}
        there = count[m] > 0
        row |= {"confidence": float(confidence[m] / count[m]) if there else None, "accuracy": float(hits[m] / count[m]) if there else None,
                "accuracy_low": float(low[m]) if there else None, "accuracy_high": float(high[m]) if there else None}
        rows.append(row)
    return rows


def worst_mistakes(answers: Classified, limit: int) -> list[Mistake]:
    """The wrong answers with the highest loss, worst first; the lower number first of equals."""
    wrong = np.flatnonzero(~answers.hits)
    # The loss is cut off at float32's epsilon; the confidence in the wrong class orders those beyond it.
    order = np.lexsort((wrong, -answers.confidence[wrong], -answers.losses[wrong]))[:limit]
    return [Mistake(int(i), int(answers.labels[i]), int(answers.predicted[i]), float(answers.confidence[i]),
                    float(answers.probability[i]), float(answers.losses[i])) for i in wrong[order]]


def mistakes_table(answers: Classified, limit: int, name: Callable[[int], str] | None = None) -> list[dict[str, Any]]:
    """`worst_mistakes` in words: example (by `name`, else its number), true, predicted, confidence, loss."""
    return [{"example": name(mistake.number) if name else mistake.number, "true": answers.classes[mistake.true],
             "predicted": answers.classes[mistake.predicted], "confidence": mistake.confidence, "loss": mistake.loss}
            for mistake in worst_mistakes(answers, limit)]


def baseline_note(answers: Classified) -> str:
    """The score of always answering the commonest class of these examples, as a sentence."""
    counts = np.bincount(answers.labels, minlength=len(answers.classes))
    top = int(counts.argmax())
    share = f"{100 * counts[top] / counts.sum():.1f} %"
    return f"Always answering the commonest class ({answers.classes[top]}) would be right for {share} of these examples."
