"""How a classifier did: metrics with intervals, tables and mistakes, from class probabilities and labels alone.

Knows nothing of what was classified: images, sounds and texts are judged alike. Definitions stand with each
function, agree with scikit-learn where it has them, and every metric is resampled on the same examples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import TrainingError
from pipelines.reports.intervals import bounds, interval_of_confusion, resampled_sums, wilson
from pipelines.task import Metric

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
    """Answers beside the truth, checked once; all that follows is computed from it.

    Attributes:
        probabilities: [n, classes] float32, rows summing to 1.
        labels: [n] int64.
        predicted: [n] int64, the most probable class, the first of equals.
        confidence: [n] float64, its probability.
        losses: [n] float64, nats.
        classes: names, one for each column.
    """

    probabilities: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    losses: np.ndarray
    classes: tuple[str, ...]

    @property
    def hits(self) -> np.ndarray:
        """[n] bool: the answer is right."""
        return self.predicted == self.labels


def classified(probabilities: np.ndarray, labels: np.ndarray, classes: Sequence[str] | None = None) -> Classified:
    """Checks shapes and values and finds what is predicted.

    Args:
        probabilities: [n, classes], from a softmax.
        labels: [n], true class numbers.
        classes: names; default: the numbers.

    Raises:
        TrainingError: the model's answers are not finite.
        ValueError: shapes do not fit, a label is outside the classes, or rows are not probabilities.
    """
    probabilities, labels = np.asarray(probabilities), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(f"probabilities [n, classes] and labels [n] expected, got {probabilities.shape} and {labels.shape}")
    n, count = probabilities.shape
    names = tuple(str(name) for name in classes) if classes is not None else tuple(str(number) for number in range(count))
    if len(names) != count:
        raise ValueError(f"{len(names)} class names for {count} columns of probabilities")
    finite = np.isfinite(probabilities).all(axis=1)
    if not finite.all():
        raise TrainingError(f"the model's probabilities are not finite for {n - int(finite.sum())} of {n} examples (the first is example "
                            f"{int(np.argmin(finite))}): its weights hold NaN or infinity, or its outputs overflow in this precision")
    labels = labels.astype(np.int64)
    if n and not (labels.min() >= 0 and labels.max() < count):
        raise ValueError(f"labels from {labels.min()} to {labels.max()} do not fit {count} classes")
    if n and (probabilities.min() < -1e-6 or np.abs(probabilities.sum(axis=1, dtype=np.float64) - 1).max() > 1e-2):
        raise ValueError("rows of probabilities must not be negative and must sum to 1; were these logits?")
    predicted = probabilities.argmax(axis=1) if n else np.zeros(0, np.int64)
    rows = np.arange(n)
    return Classified(probabilities, labels, predicted, probabilities[rows, predicted].astype(np.float64),
                      losses(probabilities, labels), names)


def losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log loss of each example, [n] float64, nats: -log p(true), p no smaller than float32's epsilon (1.2e-7, so at most 15.9)."""
    p = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return -np.log(np.clip(p, np.finfo(np.float32).eps, 1.0))


def ranks(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rank of the true class in each row, [n] int64, 0 for the first; of equal probabilities the lower class number goes first."""
    count = probabilities.shape[1]
    true = probabilities[np.arange(len(labels)), labels][:, None]
    before = np.arange(count)[None, :] < labels[:, None]
    return ((probabilities > true) | ((probabilities == true) & before)).sum(axis=1)


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, count: int) -> np.ndarray:
    """[classes, classes] int64: rows true, columns predicted."""
    return np.bincount(labels * count + predicted, minlength=count * count).reshape(count, count)


def bin_numbers(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The equal-width bin ((m-1)/bins, m/bins] of each confidence, [n] int64 from 0; a confidence of 0 falls into the first."""
    return np.minimum(np.searchsorted(np.arange(1, bins + 1) / bins, confidence, side="left"), bins - 1)


def metrics(answers: Classified, *, resamples: int = 1000, seed: int = 0) -> dict[str, Metric]:
    """The metrics of a classifier with 95 % bootstrap intervals, all over the same resamples.

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
    drawn = resampled_sums(values, resamples=resamples, seed=seed)
    once = np.asarray(values.sum(axis=0), np.float64).reshape(1, -1)
    found = {}
    for name, statistic in statistics.items():
        value = float(statistic(once)[0])
        low, high = bounds(statistic(drawn), value, kind="basic" if name == "calibration_error" else "percentile")
        if name in ("accuracy", "top5_accuracy") and value in (0.0, 1.0):
            low, high = (float(bound) for bound in wilson(value * n, n))
        found[name] = Metric(value, low, high, n)
    return found


def _table(answers: Classified) -> tuple[Any, dict[str, Callable[[np.ndarray], np.ndarray]]]:
    """Per-example values [n, k] (sparse) and the metrics as functions of their sums [m, k]."""
    from scipy.sparse import csc_matrix, hstack

    n, count = answers.probabilities.shape
    hits = answers.hits.astype(np.float64)
    bins = bin_numbers(answers.confidence)
    rows = np.arange(n)

    def placed(columns: np.ndarray, width: int, data: np.ndarray | None = None) -> Any:
        return csc_matrix((np.ones(n) if data is None else data, (rows, columns)), shape=(n, width))

    parts = {
        "hit": csc_matrix(hits[:, None]), "loss": csc_matrix(answers.losses[:, None]), "one": csc_matrix(np.ones((n, 1))),
        "gap": placed(bins, BINS, hits - answers.confidence),
        "right": placed(answers.labels, count, hits), "true": placed(answers.labels, count), "said": placed(answers.predicted, count),
    }
    if count > TOP:
        parts["top"] = csc_matrix((ranks(answers.probabilities, answers.labels) < TOP).astype(np.float64)[:, None])
    where, at = {}, 0
    for name, part in parts.items():
        where[name] = slice(at, at + part.shape[1])
        at += part.shape[1]

    def mean_of(name: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda sums: sums[:, where[name]][:, 0] / sums[:, where["one"]][:, 0]

    def calibration(sums: np.ndarray) -> np.ndarray:
        return np.abs(sums[:, where["gap"]]).sum(axis=1) / sums[:, where["one"]][:, 0]

    def macro_f1(sums: np.ndarray) -> np.ndarray:
        seen = sums[:, where["true"]] + sums[:, where["said"]]
        return (2 * sums[:, where["right"]] / np.maximum(seen, 1)).sum(axis=1) / (seen > 0).sum(axis=1)

    statistics = {"accuracy": mean_of("hit")}
    if count > TOP:
        statistics["top5_accuracy"] = mean_of("top")
    statistics |= {"macro_f1": macro_f1, "log_loss": mean_of("loss"), "calibration_error": calibration}
    return hstack(list(parts.values()), format="csr"), statistics


def per_class(answers: Classified, *, resamples: int = 1000) -> list[dict[str, Any]]:
    """A row for each class: class, support (true examples), precision, recall and f1, each with its 95 % interval as `_low` and `_high`.

    Intervals are Wilson's for precision and recall, the bootstrap's for f1. Precision is None for a class never predicted, recall for one
    without examples, f1 for both, and so are their intervals.
    """
    matrix = confusion_matrix(answers.labels, answers.predicted, len(answers.classes))
    right, support, said = matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)
    rows = []
    for k, name in enumerate(answers.classes):
        row: dict[str, Any] = {"class": name, "support": int(support[k])}
        for measure, count in (("precision", said[k]), ("recall", support[k])):
            low, high = (float(bound) for bound in wilson(right[k], count)) if count else (None, None)
            row |= {measure: float(right[k] / count) if count else None, f"{measure}_low": low, f"{measure}_high": high}
        # what a resample does to this class, and to all the others together
        rest = len(answers.labels) - support[k] - said[k] + right[k]
        one = np.array([[right[k], support[k] - right[k]], [said[k] - right[k], rest]])
        f1 = interval_of_confusion(one, _f1_of_the_first, resamples=resamples) if support[k] + said[k] else Metric(float("nan"))
        rows.append({**row, "f1": f1.value if support[k] + said[k] else None, "f1_low": f1.low, "f1_high": f1.high})
    return rows


def _f1_of_the_first(matrices: np.ndarray) -> np.ndarray:
    """[m, 2, 2] counts, rows true, columns predicted -> [m]; NaN where the class is neither true nor predicted."""
    seen = matrices[:, 0].sum(axis=1) + matrices[:, :, 0].sum(axis=1)
    return np.where(seen > 0, 2 * matrices[:, 0, 0] / np.maximum(seen, 1), np.nan)


def worst_confusions(answers: Classified, limit: int = 20) -> list[dict[str, Any]]:
    """The pairs most often confused: true, predicted, count, and share of the true class's examples; most frequent first."""
    matrix = confusion_matrix(answers.labels, answers.predicted, len(answers.classes))
    support = matrix.sum(axis=1)
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
    pairs = [(int(cell) // len(matrix), int(cell) % len(matrix)) for cell in order]
    return [{"true": answers.classes[true], "predicted": answers.classes[said], "count": int(wrong[true, said]),
             "share": float(wrong[true, said] / support[true])} for true, said in pairs if wrong[true, said]]


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
    """The wrong answers with the highest loss, worst first; of equals the lower number first."""
    wrong = np.flatnonzero(~answers.hits)
    # The loss is cut off at float32's epsilon; the confidence in the wrong class orders those beyond it.
    order = np.lexsort((wrong, -answers.confidence[wrong], -answers.losses[wrong]))[:limit]
    return [Mistake(int(i), int(answers.labels[i]), int(answers.predicted[i]), float(answers.confidence[i]),
                    float(answers.probabilities[i, answers.labels[i]]), float(answers.losses[i])) for i in wrong[order]]


def mistakes_table(answers: Classified, limit: int, name: Callable[[int], str] | None = None) -> list[dict[str, Any]]:
    """`worst_mistakes` in words: example (by `name`, else its number), true, predicted, confidence, loss."""
    return [{"example": name(mistake.number) if name else mistake.number, "true": answers.classes[mistake.true],
             "predicted": answers.classes[mistake.predicted], "confidence": mistake.confidence, "loss": mistake.loss}
            for mistake in worst_mistakes(answers, limit)]


def baseline_note(answers: Classified) -> str:
    """What always answering the commonest class of these examples would score, as a sentence."""
    counts = np.bincount(answers.labels, minlength=len(answers.classes))
    top = int(counts.argmax())
    share = f"{100 * counts[top] / counts.sum():.1f} %"
    return f"Always answering the commonest class ({answers.classes[top]}) would be right for {share} of these examples."
