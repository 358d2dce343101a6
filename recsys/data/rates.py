"""What each action earns whatever the context, from logged choices."""

import numpy as np


def mean_rewards(actions: np.ndarray, rewards: np.ndarray, propensities: np.ndarray, count: int) -> np.ndarray:
    """[count] mean rewards, few choices counting less: empirical Bayes by moments (Casella 1985).

    A choice counts by 1 / propensity, so that an action's mean is that over all contexts and not over those in which it was preferred.
    Means are drawn to that of all choices, the more the fewer choices an action has, by how far actions differ beyond their noise.

    Args:
        actions: [n] from 0.
        rewards, propensities: [n].
    """
    weights = 1.0 / propensities
    total = np.bincount(actions, weights, count)
    there = total > 0
    means = np.divide(np.bincount(actions, weights * rewards, count), total, out=np.zeros(count), where=there)
    size = np.divide(total**2, np.bincount(actions, weights**2, count), out=np.zeros(count), where=there)  # Kish's effective number
    overall = float(np.average(rewards, weights=weights))
    within = float(np.average((rewards - means[actions]) ** 2, weights=weights))
    noise = np.divide(within, size, out=np.zeros(count), where=there)
    between = float(np.mean((means[there] - overall) ** 2 - noise[there]))
    kept = np.divide(max(between, 0.0), max(between, 0.0) + noise, out=np.zeros(count), where=there & (max(between, 0.0) + noise > 0))
    return overall + kept * (means - overall)
