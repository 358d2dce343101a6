"""The oracles: asked again what the journal says, they answer the same; parallel workers, failures, and small spaces."""

import math

import pytest

from pipelines.config.space import Dimension
from pipelines.tuning import tuner_space
from pipelines.tuning.oracles import Oracle, first_drawn, hyperband_plan

SPACE = [Dimension("rate", "float", low=1e-4, high=1e-1, scale="log"), Dimension("kind", "choice", ("a", "b")),
         Dimension("depth", "int", low=1, high=3, when={"kind": ("b",)})]
GRID = [Dimension("rate", "float", low=1e-3, high=1e-1, scale="log", step=10), *SPACE[1:]]


def make(algorithm, trials=12, seed=0, space=None, epochs=9, drawn=None):
    used = space or (GRID if algorithm == "grid" else SPACE)
    return Oracle(algorithm, tuner_space.hyperparameters(used), objective=("accuracy", "max"), trials=trials, epochs=epochs,
                  seed=seed,
                  drawn=drawn)


def score(asked):
    """A made-up result: the best rate is 0.01."""
    rate = asked.places.get("rate", 1)  # a place in the list, where there is a list
    return 1.0 - abs(math.log10(rate) + 2 if isinstance(rate, float) else rate - 1) / 4


def drive(oracle, workers=1, fail=(), journal=None):
    """Runs a search with as many trials under way as there are workers; the oldest ends first. Returns the trials asked for."""
    asked, running = [], []
    journal = [] if journal is None else journal
    while True:
        while len(running) < workers:
            one = oracle.ask()
            if one.kind != "run":
                break
            asked.append(one)
            running.append(one)
            journal.append(("start", one.number, dict(one.places)))
        if not running:
            return asked
        one = running.pop(0)
        value = None if one.number in fail else score(one)
        journal.append(("end", one.number, value))
        oracle.tell(one.number, value)


@pytest.mark.parametrize("algorithm", ["random", "grid"])
def test_random_and_grid_do_not_depend_on_workers_results_or_failures(algorithm):
    alone = [(one.number, one.places) for one in drive(make(algorithm))]
    assert [(one.number, one.places) for one in drive(make(algorithm), workers=5)] == alone
    assert [(one.number, one.places) for one in drive(make(algorithm), workers=2, fail=(2, 3, 4, 5))] == alone
    assert len(alone) == 12 and len({str(places) for _, places in alone}) == 12


def test_a_grid_visits_every_point_once():
    found = drive(make("grid", trials=100), workers=3)
    assert len(found) == tuner_space.count(GRID, 100) == 12
    decoded = [tuner_space.decoded(GRID, one.places) for one in found]
    assert decoded[0] == {"rate": 0.001, "kind": "a"} and len({str(each) for each in decoded}) == 12


def test_random_search_finds_the_last_point_of_a_small_space():
    space = [Dimension("a", "int", low=1, high=5), Dimension("b", "choice", (1, 2, 3))]
    assert len({str(one.places) for one in drive(make("random", trials=15, space=space))}) == 15


@pytest.mark.parametrize("algorithm", ["random", "grid", "bayesian", "hyperband"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_restart_at_any_event_goes_on_the_same(algorithm, workers):
    journal, trials = [], (4 + workers if algorithm == "bayesian" else 9)  # a Bayesian answer takes a second
    whole = drive(make(algorithm, trials), workers, fail=(2,), journal=journal)
    for kept in (8,) if algorithm == "bayesian" else range(len(journal) + 1):
        oracle = make(algorithm, trials)
        for kind, number, value in journal[:kept]:
            if kind == "start":
                assert oracle.ask(value).number == number
            else:
                oracle.tell(number, value)
        for kind, number, value in journal[kept:]:
            if kind == "start":
                one = oracle.ask()
                assert (one.number, dict(one.places)) == (number, value)
            else:
                oracle.tell(number, value)
        assert oracle.ask().kind == "stop"
    assert len(whole) == trials


@pytest.mark.parametrize("algorithm", ["random", "grid", "bayesian", "hyperband"])
def test_a_search_goes_on_with_more_trials(algorithm):
    """The trials that the journal has are asked for again, whatever the number of trials is now; then come more."""
    journal, (few, more) = [], (5, 15) if algorithm == "bayesian" else (5, 9)
    space = [*GRID, Dimension("flag", "boolean", (False, True))] if algorithm == "grid" else None
    drawn = first_drawn(len(SPACE), few)
    assert first_drawn(len(SPACE), 15) > drawn
    drive(make(algorithm, few, space=space, drawn=drawn), journal=journal)
    oracle = make(algorithm, more, space=space, drawn=drawn)
    for kind, number, value in journal:
        if kind == "start":
            assert oracle.ask(value).number == number
        else:
            oracle.tell(number, value)
    following = oracle.ask()
    assert (following.kind, following.number) == ("run", 6)


def test_bayesian_search_comes_to_the_best():
    found = drive(make("bayesian", trials=8))
    early, late = (max(score(one) for one in part) for part in (found[:3], found[3:]))
    assert late > 0.9 and late >= early


def test_another_seed_asks_for_other_trials():
    assert [one.places for one in drive(make("random", seed=0))] != [one.places for one in drive(make("random", seed=1))]


def test_hyperband_goes_on_with_the_best_and_with_none_that_failed():
    plan = hyperband_plan(9)
    found = drive(make("hyperband", trials=len(plan)), fail=(1, 2, 3, 4, 5))
    assert [(one.epochs) for one in found] == [after for _, after in plan]
    by_number = {one.number: one for one in found}
    onward = [one for one in found if one.goes_on]
    assert onward and all(by_number[one.goes_on].epochs < one.epochs and by_number[one.goes_on].places == one.places for one in onward)
    first_round = [one for one in found if one.epochs == 1]
    chosen = [one.goes_on for one in onward if by_number[one.goes_on] in first_round]
    assert not set(chosen) & {1, 2, 3, 4, 5}
    passed = sorted((score(one) for one in first_round if one.number > 5), reverse=True)
    assert sorted((score(by_number[number]) for number in chosen), reverse=True) == passed[:len(chosen)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["random", "bayesian", "hyperband"])
def test_the_first_trial_may_be_given_and_does_not_come_twice(algorithm):
    space = [Dimension("depth", "int", low=1, high=12)] if algorithm == "random" else SPACE
    first = tuner_space.placed(space, {"rate": 0.02, "kind": "b", "depth": 3})

    def oracle():
        return Oracle(algorithm, tuner_space.hyperparameters(space), objective=("accuracy", "max"), trials=8, epochs=9, seed=0,
                      first=first)

    journal: list = []
    asked = drive(oracle(), workers=2, journal=journal)
    assert asked[0].places == first and len(asked) == 8
    assert [one.number for one in asked if one.places == first and one.goes_on is None] == [1]
    again = oracle()
    for kind, number, value in journal:
        if kind == "start":
            assert again.ask(value).number == number
        else:
            again.tell(number, value)
    rest = drive(make(algorithm, space=space))  # those that are drawn are drawn as ever
    if algorithm != "hyperband":
        assert asked[1].places == rest[0].places or first == rest[0].places
