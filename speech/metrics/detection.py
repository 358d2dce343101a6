"""One-keyword use of a command model: false alarms against misses over all thresholds (Martin et al. 1997, "The DET curve")."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from pipelines.base.figures import new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
NEAREST = 5e-4  # shares nearer to 0 or 1 are drawn at the border


def det_curve(scores: np.ndarray, is_keyword: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ascending thresholds with the share of others that pass each, and of keywords that do not.

    Args:
        scores: [n] of the keyword; a recording is answered as the keyword where its score is >= the threshold.
        is_keyword: [n] bool.

    Returns:
        (thresholds, false alarms, misses), each [distinct scores + 1] float64; the last threshold passes none.
    """
    scores, is_keyword = np.asarray(scores, np.float64), np.asarray(is_keyword, bool)
    thresholds = np.append(np.unique(scores), np.inf)
    keywords, others = np.sort(scores[is_keyword]), np.sort(scores[~is_keyword])
    misses = np.searchsorted(keywords, thresholds, side="left") / max(len(keywords), 1)
    alarms = 1.0 - np.searchsorted(others, thresholds, side="left") / max(len(others), 1)
    return thresholds, alarms, misses


def equal_error_rate(scores: np.ndarray, is_keyword: np.ndarray) -> float:
    """The mean of false alarms and misses at the threshold where they are nearest; NaN without keywords or without others."""
    return float(equal_error_rates(scores, is_keyword, np.ones((1, len(scores))))[0])


def equal_error_rates(scores: np.ndarray, is_keyword: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`equal_error_rate`, [m], where recording k occurs counts[m, k] times."""
    misses, alarms = error_rates(scores, is_keyword, counts)
    best, rows = np.argmin(np.abs(alarms - misses), axis=1), np.arange(len(counts))
    return (alarms[rows, best] + misses[rows, best]) / 2


def least_costs(scores: np.ndarray, is_keyword: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """The least detection cost over all thresholds, [m], where a `share` of what is asked are keywords and errors of both kinds cost the
    same; 1 is that of the better of always yes and always no (NIST SRE's minimum DCF)."""
    misses, alarms = error_rates(scores, is_keyword, counts)
    return np.min(share * misses + (1.0 - share) * alarms, axis=1) / min(share, 1.0 - share)


def error_rates(scores: np.ndarray, is_keyword: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of keywords that are missed, and of others that pass, at each threshold, [m, thresholds], where recording k occurs
    counts[m, k] times; NaN without keywords or without others."""
    order = np.argsort(scores, kind="stable")
    ranked, keyword = np.asarray(scores)[order], np.asarray(is_keyword, bool)[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(ranked) else np.zeros(0, np.int64)
    edges = np.append(first, len(ranked))  # recordings that score below each threshold

    def below(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen = np.pad(np.cumsum(counts[:, order] * own, axis=1), [(0, 0), (1, 0)])
        return seen[:, edges], seen[:, -1:]

    (missed, keywords), (refused, others) = below(keyword), below(~keyword)
    known = (keywords > 0) & (others > 0)
    return (np.where(known, missed / np.maximum(keywords, 1), np.nan), np.where(known, 1.0 - refused / np.maximum(others, 1), np.nan))


def figure(curves: dict[str, tuple[np.ndarray, np.ndarray]], *, title: str = "One class against all others",
           kinds: tuple[str, str] = ("other recordings", "its recordings")) -> "Figure":
    """DET curves on normal-deviate axes, where normally distributed scores give straight lines.

    Args:
        curves: class -> (false alarms, misses).
        kinds: what false alarms, and misses, are shares of.
    """
    with style():
        drawn = new_figure(5.2, 4.8)
        axis = drawn.subplots()
        for name, (alarms, misses) in curves.items():
            axis.plot(_deviates(alarms), _deviates(misses), label=name, drawstyle="steps-post", linewidth=1.4)
        ends = ndtri(np.array([NEAREST, 0.9]))
        axis.plot(ends, ends, color="#bbbbbb", linewidth=0.8, linestyle=":")
        for set_ticks, set_limits in ((axis.set_xticks, axis.set_xlim), (axis.set_yticks, axis.set_ylim)):
            set_ticks(ndtri(np.array(TICKS)), [f"{100 * tick:g}" for tick in TICKS])
            set_limits(*ends)
        axis.set_xlabel(f"false alarms, % of {kinds[0]}")
        axis.set_ylabel(f"misses, % of {kinds[1]}")
        axis.set_title(title)
        axis.legend(fontsize=8, frameon=False)
        return drawn


def _deviates(shares: np.ndarray) -> np.ndarray:
    return ndtri(np.clip(shares, NEAREST, 0.9))
