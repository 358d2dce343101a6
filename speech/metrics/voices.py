"""How well pairs of recordings are told to be of one voice or of two."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.base.figures import new_figure, style
from pipelines.task.intervals import resampled_by_counts
from pipelines.task.results import Metric
from pipelines.task.units import Units
from speech.metrics import detection

RESAMPLES = 100  # at most, of all pairs
DRAWN = 2000  # places of a curve that are drawn


@dataclass(frozen=True)
class Pairs:
    """All pairs of recordings, by ascending score, [pairs] each.

    Attributes:
        first, second: numbers of recordings.
        scores: log-odds of one voice.
        same: whether it is one.
        recordings: how many there are.
    """

    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray
    same: np.ndarray
    recordings: int

    @classmethod
    def of(cls, scores: np.ndarray, labels: np.ndarray) -> "Pairs":
        """Of all scores [n, n] of recordings whose voices are `labels` [n]."""
        first, second = np.triu_indices(len(labels), 1)
        found = scores[first, second]
        order = np.argsort(found, kind="stable")
        first, second = first[order], second[order]
        return cls(first, second, found[order], labels[first] == labels[second], len(labels))

    @property
    def both(self) -> bool:
        """Whether there are pairs of one voice and of two."""
        return bool(self.same.any() and not self.same.all())

    def metric(self, compute: Callable[[np.ndarray], np.ndarray], resamples: int, units: Units) -> Metric:
        """A metric with its interval: voices, or recordings, are drawn anew, and with them their pairs.

        Args:
            compute: how often each pair occurs, [m, pairs] -> [m].
        """
        return resampled_by_counts(lambda counts: compute(counts[:, self.first] * counts[:, self.second]), self.recordings,
                                   resamples=min(resamples, RESAMPLES), width=6 * max(1, len(self.scores) // self.recordings), units=units)

    def metrics(self, share: float, resamples: int, units: Units) -> dict[str, Metric]:
        """eer, min_dcf, and the errors of answers by the log-odds' sign: false_match_rate of pairs of two voices, false_non_match_rate of
        pairs of one."""
        def rate(wrong: np.ndarray, of: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
            def compute(counts: np.ndarray) -> np.ndarray:
                whole = np.sum(counts * of, 1)
                return np.where(whole > 0, np.sum(counts * (wrong & of), 1) / np.maximum(whole, 1), np.nan)
            return compute

        every: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "eer": lambda counts: detection.equal_error_rates(self.scores, self.same, counts),
            "min_dcf": lambda counts: detection.least_costs(self.scores, self.same, counts, share),
            "false_match_rate": rate(self.scores >= 0, ~self.same), "false_non_match_rate": rate(self.scores < 0, self.same)}
        return {name: self.metric(compute, resamples, units) for name, compute in every.items()}

    def worst(self, count: int) -> np.ndarray:
        """The pairs that were answered wrongly, most sure first, `count` at most."""
        error = np.where(self.same, -self.scores, self.scores)
        order = np.argsort(-error, kind="stable")[:count]
        return order[error[order] >= 0]


def eer(pairs: Pairs) -> float:
    """The equal error rate; NaN without pairs of one voice, or of two."""
    return detection.equal_error_rate(pairs.scores, pairs.same) if pairs.both else float("nan")


def found_voice(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each recording the number of the most alike other, [n] int64, and whether that is of its voice, [n] float64; NaN where its voice
    has no other recording."""
    apart = np.where(np.eye(len(labels), dtype=bool), -np.inf, scores)
    nearest = np.argmax(apart, 1)
    alone = np.sum(labels[:, None] == labels[None], 1) < 2
    return nearest, np.where(alone, np.nan, (labels[nearest] == labels).astype(np.float64))


def det(pairs: Pairs):
    """The DET curve of all pairs."""
    _, alarms, misses = detection.det_curve(pairs.scores, pairs.same)
    some = np.unique(np.linspace(0, len(alarms) - 1, DRAWN).astype(np.int64))
    return detection.figure({f"EER {100 * eer(pairs):.1f} %": (alarms[some], misses[some])}, title="One voice or two",
                            kinds=("pairs of two voices", "pairs of one voice"))


def histogram(pairs: Pairs):
    """How the scores of pairs of one voice and of two are spread."""
    with style():
        drawn = new_figure(5.2, 3.4)
        axis = drawn.subplots()
        low, high = np.percentile(pairs.scores, [0.5, 99.5])
        bins = np.linspace(low, max(high, low + 1e-6), 60)
        for name, which in (("two voices", ~pairs.same), ("one voice", pairs.same)):
            axis.hist(np.clip(pairs.scores[which], bins[0], bins[-1]), bins.tolist(), density=True, alpha=0.6, label=name)
        axis.axvline(0.0, color="#888888", linewidth=0.8, linestyle=":")
        axis.set_xlabel("log-odds of one voice")
        axis.set_ylabel("share of pairs, by unit")
        axis.set_title("Scores of pairs")
        axis.legend(fontsize=8, frameon=False)
        return drawn
