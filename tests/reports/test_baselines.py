"""A cheap model beside the score: the table, and what is said of a model that does not beat it."""

import numpy as np
import pytest

from pipelines.reports.baselines import put_beside
from pipelines.task.labels import largest_share
from pipelines.task.results import Baseline, Judgement
from pipelines.task.units import grouped

CHEAP = Baseline("a cheap model", "accuracy", lambda source: np.zeros(0))


def beside(own: float, other: float, n: int = 400, **options) -> tuple[str | None, list]:
    judgement = Judgement(**options)
    hits = [np.arange(n) < share * n for share in (own, other)]
    return put_beside(judgement, CHEAP, *(one.astype(np.float64) for one in hits), 200), judgement.tables["baselines"]


@pytest.mark.parametrize(("own", "other", "begins"), [
    (0.9, 0.8, None), (0.8, 0.9, "Worse than a cheap baseline: Accuracy 80.0 % against 90.0 % of a cheap model"),
    (0.9, 0.9, "No better than a cheap baseline"), (0.9, 0.8975, "No better than a cheap baseline"),
])
def test_a_model_that_does_not_beat_it_says_so(own, other, begins):
    verdict, rows = beside(own, other)
    assert verdict is None if begins is None else str(verdict).startswith(begins)
    assert [row["model"] for row in rows] == ["this model", "a cheap model"]
    assert rows[1]["gain_in_accuracy"] == pytest.approx(own - other)


def test_of_a_private_run_it_says_what_privacy_costs():
    judgement, hits = Judgement(), [np.arange(400) < share * 400 for share in (0.8, 0.9)]
    said = put_beside(judgement, CHEAP, *(one.astype(np.float64) for one in hits), 200, private=True)
    assert str(said).startswith("What privacy costs here: Accuracy 80.0 % against 90.0 % of a cheap model") and "wrong" not in str(said)
    assert put_beside(judgement, CHEAP, *(one.astype(np.float64) for one in reversed(hits)), 200, private=True) is None


def test_the_gain_is_drawn_by_groups_where_there_are_any():
    _, alone = beside(0.9, 0.8)
    _, groups = beside(0.9, 0.8, units=grouped(np.arange(400) // 40, "speaker"))
    assert groups[1]["gain_in_accuracy_high"] > 1.5 * alone[1]["gain_in_accuracy_high"]


def test_examples_that_do_not_count_take_no_part():
    own, other = np.array([1.0, np.nan, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
    judgement = Judgement()
    put_beside(judgement, CHEAP, own, other, 100)
    assert judgement.tables["baselines"][0]["accuracy"] == pytest.approx(2 / 3)


def test_chance_is_the_largest_class():
    assert largest_share([10, 30]) == ("accuracy", 0.75)
    assert largest_share(None) is None
