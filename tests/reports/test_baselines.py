"""A cheap model beside the score: the table, and what is said of a model that does not beat it."""

import numpy as np
import pytest

from pipelines.outputs.baselines import put_beside, put_judged_beside
from pipelines.outputs.cross_entropy import largest_share
from pipelines.task import intervals
from pipelines.task.results import Baseline, Judgement
from pipelines.task.units import grouped
from pipelines.training.transform import Cost

CHEAP = Baseline("a cheap model", "accuracy", lambda source: np.zeros(0))


def beside(own: float, other: float, n: int = 400, cost: Cost | None = None, **options) -> Judgement:
    judgement = Judgement(**options)
    hits = [np.arange(n) < share * n for share in (own, other)]
    put_beside(judgement, CHEAP, *(one.astype(np.float64) for one in hits), 200, cost=cost)
    return judgement


@pytest.mark.parametrize(("own", "other", "n", "says"), [
    (0.9, 0.8, 400, "Better than the cheap baseline (a cheap model, fitted in seconds): Accuracy 90.0 % against 80.0 %, +10.0 points [+"),
    (0.8, 0.9, 400, "Worse than the cheap baseline (a cheap model, fitted in seconds): Accuracy 80.0 % against 90.0 %, -10.0 points [-"),
    (1.0, 0.992, 125, "No better than the cheap baseline (a cheap model, fitted in seconds): Accuracy 100.0 % against 99.2 %"),
    (0.9, 0.9, 400, "No better than the cheap baseline (a"), (0.9, 0.9025, 400, "No better than the cheap baseline (a"),
    (0.85, 0.75, 20, "Better than the cheap baseline, but 20 examples are too few to show that it is no chance (a cheap"),
])
def test_it_says_how_the_model_compares_and_warns_of_a_worse_one_alone(own, other, n, says):
    judgement = beside(own, other, n)
    assert judgement.compared.startswith(says)
    assert (judgement.beaten or "").startswith("The model is worse than its cheap baseline, 80.0 % against 90.0 %") == (own < other - 0.05)
    rows = judgement.tables["baselines"]
    assert [row["model"] for row in rows] == ["this model", "a cheap model"]
    assert rows[1]["gain_in_accuracy"] == pytest.approx(own - other)


def test_of_a_run_that_gives_up_something_it_says_what_that_costs():
    privacy = Cost("privacy", "More examples make it less.")
    judgement = beside(0.8, 0.9, cost=privacy)
    assert str(judgement.beaten).startswith("80.0 % against 90.0 % is what privacy costs") and "wrong" not in str(judgement.beaten)
    assert judgement.compared.startswith("What privacy costs, beside the cheap baseline without it (a cheap model")
    assert beside(0.9, 0.8, cost=privacy).beaten is None


def test_the_gain_is_drawn_by_groups_where_there_are_any():
    alone, groups = (beside(0.9, 0.8, units=units).tables["baselines"][1] for units in (None, grouped(np.arange(400) // 40, "speaker")))
    assert groups["gain_in_accuracy_high"] > 1.5 * alone["gain_in_accuracy_high"]


def test_a_baseline_that_answers_is_compared_by_what_was_judged_of_it():
    errors = np.random.default_rng(0).exponential(1.0, 300)
    ours, theirs = (Judgement({"error": intervals.mean(values), "n": intervals.mean(values + 1)}) for values in (errors, errors + 0.2))
    put_judged_beside(ours, "the mean", theirs, ("error", "min"))
    row = ours.tables["baselines"][1]
    assert row["model"] == "the mean" and row["n"] == pytest.approx(errors.mean() + 1.2)
    assert row["gain_in_error_low"] == pytest.approx(0.2, abs=1e-6)  # paired: the same examples were drawn
    assert ours.compared.startswith("Better than the cheap baseline (the mean, fitted in seconds): Error") and ours.beaten is None
    put_judged_beside(theirs, "the mean", ours, ("error", "min"))
    assert theirs.compared.startswith("Worse than")


@pytest.mark.parametrize("given", [
    {}, {"answer": len, "metric": "error"}, {"answer": len, "score": len, "metric": "error"}, {"score": len}])
def test_a_baseline_answers_or_has_scores_of_a_metric(given):
    with pytest.raises(ValueError, match="it: a baseline has an answer, or answers, or a metric with its score"):
        Baseline("it", **given)


def test_too_few_are_counted_in_what_was_drawn():
    judgement = beside(0.8, 0.75, 200, units=grouped(np.arange(200) // 50, "speaker"))
    assert judgement.compared.startswith("Better than the cheap baseline, but 4 speakers are too few")


def test_examples_that_do_not_count_take_no_part():
    own, other = np.array([1.0, np.nan, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
    judgement = Judgement()
    put_beside(judgement, CHEAP, own, other, 100)
    assert judgement.tables["baselines"][0]["accuracy"] == pytest.approx(2 / 3)


def test_chance_is_the_largest_class():
    assert largest_share([10, 30]) == ("accuracy", 0.75)
    assert largest_share(None) is None
