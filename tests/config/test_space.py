"""The search space as a tuner sees it, and the experiment of one trial."""

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import apply, from_text
from pipelines.config.space import Dimension, dimensions

TEXT = """\
task: vision.classification
data: {source: digits}
model: {name: cnn, hidden: 64, dropout: 0.3}
train: {epochs: 3}
tune:
  space:
    model.depth: {int: [1, 3], when: {model.name: residual}}
    train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}
    model.name: {choice: [cnn, residual]}
    model.dropout: {float: [0, 0.5], step: 0.1}
    train.freeze.layers: {choice: [[a], [b]]}
    train.deterministic: {boolean: true}
"""


def test_dimensions_come_after_their_conditions() -> None:
    found = {each.name: each for each in dimensions(from_text(TEXT).experiment)}
    names = list(found)
    assert names.index("model.name") < names.index("model.depth")
    assert found["model.depth"] == Dimension("model.depth", "int", low=1, high=3, when={"model.name": ("residual",)})
    assert found["train.learning_rate.peak"] == Dimension("train.learning_rate.peak", "float", low=1e-4, high=1e-2, scale="log")
    assert found["train.deterministic"].values == (False, True)
    assert dimensions(from_text(TEXT, ["tune=null"]).experiment) == []


def test_apply() -> None:
    base = from_text(TEXT).experiment
    trial = apply(base, {"train.learning_rate.peak": 0.005, "model.dropout": 0.2, "train.freeze.layers": ["a"]})
    assert (trial.train.learning_rate.peak, trial.model.dropout, trial.model.hidden, trial.train.epochs) == (0.005, 0.2, 64, 3)
    assert trial.train.freeze.layers == ["a"] and trial.tune is None
    assert base.train.learning_rate.peak == 1e-3


def test_apply_of_another_model_starts_from_its_defaults() -> None:
    trial = apply(from_text(TEXT).experiment, {"model.depth": 3, "model.name": "residual"})
    assert (trial.model.name, trial.model.depth, trial.model.widths, trial.model.dropout) == ("residual", 3, [64, 128, 256], 0.0)


def test_apply_checks() -> None:
    base = from_text(TEXT, ["model={name: vit}", "tune=null"]).experiment
    with pytest.raises(ConfigError, match=r"model.width: 100 is not a multiple of heads = 3"):
        apply(base, {"model.width": 100})
