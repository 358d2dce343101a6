"""The front of the score against the cost, and what the algorithm is given of both."""

import keras
import numpy as np
import pytest

from pipelines.base.errors import QuartetError
from pipelines.base.figures import png
from pipelines.config.schema import Cost
from pipelines.tuning import tuner_space
from pipelines.tuning.analysis import front, lines, picture, worth
from pipelines.tuning.oracles import Oracle
from pipelines.tuning.trial import measured
from pipelines.tuning.trials import Trial, best_of
from tests.tuning.test_oracles import SPACE

pytestmark = pytest.mark.figures


def trial(number, value, cost, *, setting=None, epochs=None):
    result = {"status": "completed", "value": value, "cost": cost} if value is not None else {"status": "failed", "reason": "x"}
    return Trial(number, {}, setting or number, epochs, [], result)


TRIALS = [trial(1, 0.90, 100.0), trial(2, 0.95, 400.0), trial(3, 0.89, 200.0), trial(4, 0.95, 300.0), trial(5, None, None),
          trial(6, 0.80, 50.0), trial(7, 0.80, 60.0), trial(8, 0.96, 800.0)]


def test_none_on_the_front_is_beaten_and_every_other_is():
    assert [one.number for one in front(TRIALS, 1.0)] == [6, 1, 4, 8]
    losses = [trial(one.number, None if one.value is None else 1 - one.value, one.cost) for one in TRIALS]
    assert [one.number for one in front(losses, -1.0)] == [6, 1, 4, 8]
    assert front([trial(1, None, None)], 1.0) == []


def test_of_the_rounds_of_a_setting_the_last_counts():
    rounds = [trial(1, 0.99, 10.0, epochs=1), trial(2, 0.5, 5.0, epochs=1), trial(3, 0.7, 10.0, setting=1, epochs=3)]
    assert [one.number for one in front(rounds, 1.0)] == [2, 3]


def test_a_doubling_is_what_it_must_gain(tmp_path):
    cost = Cost(measure="operations", doubling=0.02)
    assert worth(TRIALS[1], cost, 1.0) == pytest.approx(worth(trial(9, 0.97, 800.0), cost, 1.0))
    assert worth(trial(9, 0.1, 800.0), cost, -1.0) == pytest.approx(worth(trial(9, 0.12, 400.0), cost, -1.0))
    assert worth(TRIALS[4], cost, 1.0) is None and worth(TRIALS[0], Cost(measure="size"), 1.0) == 0.90
    assert best_of(TRIALS, 1.0, tmp_path).number == 8
    assert best_of(TRIALS, 1.0, tmp_path, cost).number == 4
    assert best_of(TRIALS, 1.0, tmp_path, Cost(measure="operations", doubling=1.0)).number == 6


def test_a_bayesian_search_is_led_to_where_the_cost_is_worth_it():
    """Of two kinds alike in score, the one of a quarter of the cost is asked for more often once the cost counts."""
    cost = Cost(measure="operations", doubling=0.2)

    def asked(cost):
        oracle = Oracle("bayesian", tuner_space.hyperparameters(SPACE), objective=("accuracy", "max"), trials=14, epochs=1, seed=0,
                        drawn=6)
        kinds = []
        while (one := oracle.ask()).kind == "run":
            kind = tuner_space.decoded(SPACE, one.places)["kind"]
            kinds.append(kind)
            oracle.tell(one.number, worth(trial(one.number, 0.9, 400.0 if kind == "b" else 100.0), cost, 1.0))
        return kinds[6:]

    assert asked(cost).count("a") > asked(None).count("a") or asked(cost).count("a") == 8


def test_the_front_is_said_and_drawn():
    content = {"objective": "validation/accuracy", "cost": {"measure": "operations"}, "front": [6, 1],
               "trials": [{"trial": one.number, "value": one.value, "cost": one.cost} for one in TRIALS]}
    assert lines(content) == ["Trial 6: accuracy 80.0 % with 50.00 operations an example",
                              "Trial 1: accuracy 90.0 % with 100.0 operations an example"]
    drawn = picture(TRIALS, front(TRIALS, 1.0), TRIALS[7], "accuracy", Cost(measure="operations", limit=900.0))
    shown = {line.get_label(): line.get_xydata().tolist() for line in drawn.axes[0].get_lines()}
    assert shown["front"] == [[50.0, 80.0], [100.0, 90.0], [300.0, 95.0], [800.0, 96.0]] and len(shown["other trials"]) == 3
    assert png(drawn)[:4] == b"\x89PNG"
    assert {"100", "200", "500"} <= {label.get_text() for label in drawn.axes[0].get_xticklabels()}


def test_what_a_model_costs():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False), keras.layers.Dropout(0.1),
                              keras.layers.Dense(2)])
    inputs = np.ones((5, 6), np.float32)
    assert measured("parameters", model, inputs) == 24 + 8 + 2 and measured("size", model, inputs) == 4 * 34
    assert measured("operations", model, inputs) == pytest.approx(2 * (24 + 8), rel=0.1)
    assert 0 < measured("latency", model, inputs) < 10_000
    recurrent = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4)])
    with pytest.raises(QuartetError, match="loops"):
        measured("operations", recurrent, np.ones((2, 7, 3), np.float32))
