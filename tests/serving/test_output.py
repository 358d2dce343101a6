"""How answers are written: numbers as a person would."""

import json

import numpy as np

from pipelines.serving.output import Prediction, Shown, as_object


def test_json_has_the_shortest_numbers_that_are_these():
    shown = Shown(["scores"], "probabilities", ["a", "b"], top=1, all=True)
    one = Prediction("x", {"scores": np.array([0.1], np.float32), "probabilities": np.array([0.02, 0.98], np.float32)})
    assert json.loads(json.dumps(as_object(one, shown))) == {
        "input": "x", "scores": [0.1], "top": [{"label": "b", "probability": 0.98}], "probabilities": {"a": 0.02, "b": 0.98}}
