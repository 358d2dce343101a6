"""Areas and curves agree with scikit-learn, ties and resamples included."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from pipelines.outputs import curves

pytestmark = pytest.mark.figures


@pytest.mark.parametrize("levels", [3, 10_000])
def test_areas_are_scikit_learn_s(levels):
    draw = np.random.default_rng(0)
    positive = draw.random(500) < 0.3
    scores = np.round((draw.random(500) + 0.3 * positive) * levels)
    assert curves.area(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    found = curves.average_precision(scores, positive, resamples=100)
    assert found.value == pytest.approx(average_precision_score(positive, scores)) and found.low < found.value < found.high
    x, y = curves.roc(scores, positive)
    assert np.trapezoid(y, x) == pytest.approx(curves.area(scores, positive)) and (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    recall, precision = curves.precision_recall(scores, positive)
    assert recall[-1] == 1 and precision[-1] == pytest.approx(positive.mean())


def test_intervals_cover():
    """The 95 % interval of the area holds the true value about as often as it says: here with binormal scores, area 0.76."""
    inside = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        positive = np.arange(200) < 80
        found = curves.auroc(draw.normal(0, 1, 200) + positive, positive, resamples=200, seed=seed)
        inside += found.low <= 0.7602 <= found.high
    assert 51 <= inside <= 60


def test_a_constant_score_and_one_kind_only():
    positive = np.array([True, False, True, False])
    assert curves.area(np.ones(4), positive) == 0.5
    assert curves.area(np.arange(4), np.ones(4, bool)) is None


def test_the_figure_draws():
    positive = np.arange(50) % 3 == 0
    lines = {"a": curves.roc(np.arange(50), positive), "b": curves.roc(-np.arange(50), positive)}
    assert len(curves.figure(lines, kind="roc").axes[0].lines) == 3
    drawn = curves.figure({"a": curves.precision_recall(np.arange(50), positive)}, kind="precision_recall")
    assert drawn.axes[0].get_ylabel() == "precision"
