"""How sure an answer is: scores of examples that were held out, scaled so that they are log-odds."""

from collections.abc import Callable

import numpy as np
from scipy.special import log_expit, log_softmax

BOUNDS = (-3.0, 5.0)  # of the logarithm of the scale


def of_classes(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """(scale, mean loss in nats): of scores [n, classes] whose softmax is the probability of each class [n] (Guo et al. 2017)."""
    rows = np.arange(len(labels))
    return _smallest(lambda scale: -float(log_softmax(scale * scores, axis=1)[rows, labels].mean()))


def of_labels(scores: np.ndarray, truth: np.ndarray, border: float) -> float:
    """The scale of scores [n, classes] less `border`, of which each is the log-odds of a label that is there or not, bool."""
    signed = np.where(truth, 1.0, -1.0) * (scores - border)
    return _smallest(lambda scale: -float(log_expit(scale * signed).mean()))[0]


def _smallest(loss: Callable[[float], float]) -> tuple[float, float]:
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(lambda log_scale: loss(float(np.exp(log_scale))), bounds=BOUNDS, method="bounded")
    return float(np.exp(best.x)), float(best.fun)
