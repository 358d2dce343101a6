"""The space in Keras Tuner's terms: values, conditions, number of points."""

import math

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.config.space import Dimension, current, dimensions
from pipelines.tuning import tuner_space
from pipelines.tuning.oracles import Oracle

RATE = Dimension("train.learning_rate.peak", "float", low=1e-4, high=1e-2, scale="log")
NAME = Dimension("model.name", "choice", ("cnn", "residual"))
DEPTH = Dimension("model.depth", "int", low=1, high=3, when={"model.name": ("residual",)})
FLAG = Dimension("model.batch_norm", "boolean", (False, True), when={"model.name": ("cnn",)})
WIDTHS = Dimension("model.widths", "choice", ([32], [32, 64], None))


def test_values_of_stepped_ranges_are_as_a_person_writes_them():
    assert tuner_space.values_of(Dimension("a", "float", low=0.1, high=0.5, step=0.1)) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert tuner_space.values_of(Dimension("a", "float", low=1e-4, high=1e-1, scale="log", step=10)) == [1e-4, 1e-3, 1e-2, 1e-1]
    assert tuner_space.values_of(Dimension("a", "int", low=16, high=256, scale="log", step=2)) == [16, 32, 64, 128, 256]
    assert tuner_space.values_of(Dimension("a", "int", low=2, high=5)) == [2, 3, 4, 5]
    assert tuner_space.values_of(Dimension("a", "int", low=1, high=10, step=4)) == [1, 5, 9]
    assert tuner_space.values_of(RATE) is None
    assert tuner_space.values_of(Dimension("a", "int", low=1, high=10**6)) is None


FINE = Dimension("model.dropout", "float", low=0.0, high=0.5, step=0.0001)
WIDE = Dimension("model.hidden", "int", low=16, high=100_000, step=8)


def test_a_range_of_many_steps_keeps_to_them():
    space = [FINE, WIDE, Dimension("model.depth", "int", low=1, high=3, when={"model.hidden": (32,)})]
    assert tuner_space.values_of(FINE) is None and tuner_space.steps(FINE) == 5001
    oracle = Oracle("random", tuner_space.hyperparameters(space), objective=("accuracy", "max"), trials=20, epochs=1, seed=0)
    for _ in range(20):
        found = tuner_space.decoded(space, oracle.ask().places)
        assert found["model.dropout"] == round(found["model.dropout"], 4) and 0.0 <= found["model.dropout"] <= 0.5
        assert found["model.hidden"] % 8 == 0 and 16 <= found["model.hidden"] <= 100_000
    assert tuner_space.decoded(space, {"model.dropout": 5000, "model.hidden": 2, "model.depth": 1}) == {
        "model.dropout": 0.5, "model.hidden": 32, "model.depth": 2}
    assert tuner_space.decoded(space, {"model.dropout": 1, "model.hidden": 3, "model.depth": 1}) == {
        "model.dropout": 0.0001, "model.hidden": 40}
    with pytest.raises(ConfigError, match=r"a grid of 5,001 steps; at most 1,000 are tried"):
        tuner_space.check([FINE], "grid", 20)


def test_decoded_leaves_out_what_does_not_matter():
    space = [NAME, WIDTHS, DEPTH, FLAG, RATE]
    places = {"model.name": 0, "model.widths": 1, "model.depth": 2, "model.batch_norm": 1, "train.learning_rate.peak": 0.00123456789}
    assert tuner_space.decoded(space, places) == {
        "model.name": "cnn", "model.widths": [32, 64], "model.batch_norm": True, "train.learning_rate.peak": 0.00123457}


def test_count_of_a_conditional_space():
    assert tuner_space.count([NAME, DEPTH, FLAG], 100) == 3 + 2
    assert tuner_space.count([NAME, WIDTHS, DEPTH, FLAG], 100) == 15
    assert tuner_space.count([NAME, WIDTHS, DEPTH, FLAG], 7) == 7
    assert tuner_space.count([NAME, RATE], 1000) == 1000


def test_a_space_that_does_not_suit_the_search_is_an_error():
    with pytest.raises(ConfigError, match="nothing to search"):
        tuner_space.check([], "random", 3)
    with pytest.raises(ConfigError, match=r"20 trials, and the space holds only 5 different settings; set tune.trials: 5"):
        tuner_space.check([NAME, DEPTH, FLAG], "random", 20)
    with pytest.raises(ConfigError, match=r"tune.space\[train.learning_rate.peak\]: a grid needs points: give `step` \(on a log scale"):
        tuner_space.check([NAME, RATE], "grid", 20)
    tuner_space.check([NAME, DEPTH, FLAG], "grid", 20)  # ends after its five


def test_coordinates_are_even_in_the_setting():
    space = [NAME, WIDTHS, DEPTH, RATE]
    row = tuner_space.coordinates(space, {"model.name": "cnn", "model.widths": None, "train.learning_rate.peak": 1e-3})
    assert row[:2] == [0.0, 2.0] and math.isnan(row[2]) and row[3] == pytest.approx(math.log(1e-3))


def test_placed_is_decoded_backwards():
    space = [NAME, WIDTHS, DEPTH, FLAG, RATE, FINE]
    for values in (
        {"model.name": "cnn", "model.widths": [32, 64], "model.batch_norm": False, "train.learning_rate.peak": 0.003,
         "model.dropout": 0.1234},
        {"model.name": "residual", "model.widths": None, "model.depth": 2, "train.learning_rate.peak": 1e-4, "model.dropout": 0.5},
    ):
        assert tuner_space.decoded(space, tuner_space.placed(space, values)) == values
    outside = {"model.name": "cnn", "model.widths": [32], "model.batch_norm": True, "train.learning_rate.peak": 0.003, "model.dropout": 0.1}
    assert tuner_space.placed(space, outside) is not None
    for name, value in (("model.name", "fast"), ("model.widths", [16]), ("model.batch_norm", 1), ("train.learning_rate.peak", 0.02),
                        ("train.learning_rate.peak", None), ("model.dropout", 0.12345)):
        assert tuner_space.placed(space, {**outside, name: value}) is None
    assert tuner_space.placed([Dimension("a", "int", low=1, high=10**6)], {"a": 7}) == {"a": 7}


@pytest.mark.parametrize("name", ["vision/fashion_mnist_cnn", "speech/spoken_digit", "nlp/clinc_bag", "recsys/movielens_rating"])
def test_a_shipped_space_holds_the_experiment_as_it_is(name):
    experiment = load(name).experiment
    searched = dimensions(experiment)
    first = tuner_space.placed(searched, current(experiment, searched))
    assert first is not None and tuner_space.decoded(searched, first) == current(experiment, searched)
