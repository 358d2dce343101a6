"""What a policy would have earned, estimated from choices that another policy made and logged.

All estimators are functions of sums over the logged choices, so that their intervals come from the bootstrap of those sums. With weight
w = the policy's probability of the logged action / its propensity, reward r, predicted reward q of the logged action and its mean under
the policy q_policy:

- IPS, the mean of w r (Horvitz and Thompson 1952): without bias where every action that the policy takes was possible in the log;
- SNIPS, the sum of w r over that of w (Swaminathan and Joachims 2015, "The self-normalized estimator for counterfactual learning"):
  a little bias, much less spread;
- direct method, the mean of q_policy: as good as the predictions, and its interval says nothing of their error;
- doubly robust, the mean of q_policy + w (r - q) (Dudik, Langford and Li 2011, arXiv:1103.4601);
- SWITCH-DR, the same, where w above a threshold counts as 0 (Wang, Agarwal and Dudik 2017, arXiv:1612.01205).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.task.intervals import LEVEL, Statistic, wilson

# of sums [m, 6] over the logged choices: w, w r, q_policy, w (r - q), the same below the threshold, 1
ESTIMATORS: Mapping[str, Statistic] = {
    "snips": lambda sums: _ratio(sums[:, 1], sums[:, 0]),
    "ips": lambda sums: sums[:, 1] / sums[:, 5],
    "doubly_robust": lambda sums: (sums[:, 2] + sums[:, 3]) / sums[:, 5],
    "switch_dr": lambda sums: (sums[:, 2] + sums[:, 4]) / sums[:, 5],
    "direct_method": lambda sums: sums[:, 2] / sums[:, 5],
}
FEWEST = 30  # choices as which weighted ones must count at least, for the bootstrap to hold
EARNED = 5.0  # of rewards of 0 or 1, how many of the rarer must be among so many choices; likewise of others within their range
LITTLE = 0.05  # share of the choices as which they should count
LARGEST = 0.1  # share of all weight that a single choice may have
UNLIKE, ALIKE = 4.0, 0.01  # standard errors by which the mean weight may differ from 1, and how far it may in any case


@dataclass(frozen=True)
class Choices:
    """Logged choices, and what a policy and a model of rewards say of them.

    Attributes:
        rewards, propensities: [n], of the logged actions; propensities above 0 and at most 1.
        chances: [n], the policy's probability of the logged action.
        predicted: [n], the model's reward of the logged action.
        expected: [n], the mean of the model's rewards under the policy.
    """

    rewards: np.ndarray
    propensities: np.ndarray
    chances: np.ndarray
    predicted: np.ndarray
    expected: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """[n] float64, 0 or more."""
        return np.asarray(self.chances, np.float64) / np.asarray(self.propensities, np.float64)

    def terms(self, threshold: float | None = None) -> np.ndarray:
        """[n, 6] float64, whose sums `ESTIMATORS` take.

        Args:
            threshold: the weight above which SWITCH-DR trusts the model of rewards alone; None: by `switch_threshold`.
        """
        weights, rewards = self.weights, np.asarray(self.rewards, np.float64)
        threshold = self.switch_threshold() if threshold is None else threshold
        corrected = weights * (rewards - self.predicted)
        below = np.where(weights <= threshold, corrected, 0.0)
        return np.stack([weights, weights * rewards, np.asarray(self.expected, np.float64), corrected, below, np.ones_like(weights)], 1)

    def switch_threshold(self) -> float:
        """The weight above which the model of rewards answers alone: of the quantiles of the weights the one with the least estimated
        variance plus squared bound of the bias (Wang, Agarwal and Dudik 2017, section 4). The bound is the share of the policy above the
        threshold, the mean of w there, times how far the model may be off: its prediction plus the mean size of a reward. Wang et al.
        take the largest reward for that, which says too little where rewards are rare."""
        weights = self.weights
        corrected = weights * (np.asarray(self.rewards, np.float64) - self.predicted)
        off = weights * (np.abs(self.predicted) + np.abs(self.rewards).mean()) if len(weights) else weights
        best, chosen = np.inf, np.inf
        for threshold in np.unique(np.quantile(weights, np.linspace(0.5, 1.0, 21))) if len(weights) else ():
            below = weights <= threshold
            variance = float(np.var(self.expected + np.where(below, corrected, 0.0))) / len(weights)
            error = variance + float(np.mean(np.where(below, 0.0, off))) ** 2
            if error <= best:
                best, chosen = error, float(threshold)
        return chosen

    def effective_sample_size(self) -> float:
        """How many choices made by the policy itself say as much (Kish 1965): the squared sum of the weights over the sum of squares."""
        weights = self.weights
        return float(weights.sum() ** 2 / np.sum(weights**2)) if weights.any() else 0.0

    def value(self) -> float:
        """By SNIPS; NaN where no logged choice could be the policy's."""
        weights = self.weights
        return float(weights @ np.asarray(self.rewards, np.float64) / weights.sum()) if weights.any() else float("nan")

    def bounds(self, low: float, high: float, level: float = LEVEL) -> tuple[float, float]:
        """Of the value by SNIPS, Wilson's interval of a share of as many choices as the weighted ones count: it holds where rewards are too
        rare, or weights too uneven, for a bootstrap.

        Args:
            low, high: of a reward.
        """
        size, value = self.effective_sample_size(), self.value()
        if not size or not high > low:
            return low, high
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        below, above = wilson(share * size, size, level=level)
        return low + float(below) * (high - low), low + float(above) * (high - low)

    def few(self, low: float, high: float) -> bool:
        """Whether too few choices count for the bootstrap's interval of the value to hold; arguments as those of `bounds`."""
        size, value = self.effective_sample_size(), self.value()
        share = (value - low) / (high - low) if high > low else 0.0
        return not (size >= FEWEST and min(share, 1 - share) * size >= EARNED)

    def doubts(self) -> list[str]:
        """What a reader of the estimates must know, in sentences; none where nothing speaks against them."""
        weights, found = self.weights, list[str]()
        if not weights.any():
            return ["The policy never takes an action that was logged in that context: nothing can be said of its value"]
        size, share = self.effective_sample_size(), float(weights.max() / weights.sum())
        if size < LITTLE * len(weights):
            found.append(f"The overlap is small: weighted, {len(weights):,} choices count as {size:.3g}. Policies nearer to the log's can "
                         "be judged (model.sharpness), or a log that explores more")
        if share > LARGEST:
            found.append(f"A single choice has {share:.0%} of all weight")
        error = float(weights.std()) / np.sqrt(len(weights))
        if abs(weights.mean() - 1) > max(UNLIKE * error, ALIKE):
            low, high = weights.mean() - 2 * error, weights.mean() + 2 * error
            found.append(f"Weights average {weights.mean():.3g} [{low:.3g}, {high:.3g}] where 1 is expected: the "
                         "propensities are not those of the choices, or the policy takes actions that the log could not")
        return found


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
