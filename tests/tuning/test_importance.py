"""Importance: a setting that decides has the share, one that does nothing has none."""

import numpy as np
import pytest

from pipelines.config.space import Dimension
from pipelines.tuning.analysis import importance

SPACE = [Dimension("rate", "float", low=1e-4, high=1e-1, scale="log"), Dimension("noise", "float", low=0, high=1),
         Dimension("kind", "choice", ("a", "b")), Dimension("depth", "int", low=1, high=3, when={"kind": ("b",)})]


def trials(count, score, seed=0):
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        kind = str(draw.choice(["a", "b"]))
        values = {"rate": float(10 ** draw.uniform(-4, -1)), "noise": float(draw.random()), "kind": kind}
        values |= {"depth": int(draw.integers(1, 4))} if kind == "b" else {}
        found.append((values, score(values)))
    return found


def test_the_deciding_setting_has_the_share():
    found = importance(SPACE, trials(40, lambda values: -(np.log10(values["rate"]) + 2) ** 2))
    assert next(iter(found.shares)) == "rate" and found.shares["rate"] > 0.9 and found.shares["noise"] < 0.05
    assert found.fit > 0.8 and found.trials == 40


def test_a_condition_and_what_stands_under_it():
    found = importance(SPACE, trials(60, lambda values: values.get("depth", 0) * 1.0))
    assert found.shares["kind"] > 0.4 and found.shares["noise"] < 0.05 and found.shares["rate"] < 0.05


def test_pure_noise_is_called_rough():
    draw = np.random.default_rng(3)
    assert importance(SPACE, trials(30, lambda values: float(draw.random()))).fit < 0.3


@pytest.mark.parametrize("made", [trials(5, lambda values: values["rate"]), trials(20, lambda values: 1.0)])
def test_too_little_to_say(made):
    assert importance(SPACE, made) is None


def test_the_length_of_a_training_is_averaged_out():
    """Half of the settings end after one epoch, and the ninth is worth far more than any setting."""
    made = trials(40, lambda values: -0.1 * (np.log10(values["rate"]) + 2) ** 2)
    rounds = [(number, 9 if number % 2 else 1) for number in range(40)]
    made = [(values, score + (epochs - 1)) for (values, score), (_, epochs) in zip(made, rounds)]
    assert importance(SPACE, made).fit < 0.3
    found = importance(SPACE, made, rounds=rounds)
    assert found.shares["rate"] > 0.85 and found.fit > 0.3 and found.epochs == [1, 9] and found.trials == 40


def test_rounds_of_one_setting_are_left_out_together():
    """Else a setting's other rounds would foretell it: noise that comes back in each round is noise all the same."""
    draw = np.random.default_rng(5)
    once = trials(12, lambda values: float(draw.random()))
    made = [(values, score + epochs) for values, score in once for epochs in (1, 3, 9)]
    found = importance(SPACE, made, rounds=[(number, epochs) for number in range(12) for epochs in (1, 3, 9)])
    assert found.trials == 12 and found.fit < 0.3


def test_few_settings_in_many_rounds_are_too_few():
    made = trials(20, lambda values: values["rate"])
    assert importance(SPACE, made, rounds=[(number % 4, 1 + number // 4) for number in range(20)]) is None
