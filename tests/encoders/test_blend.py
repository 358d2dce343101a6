"""The weighted mean of an encoder's fitted head and a kernel machine: how its weights are chosen, and when `new` tries one."""

import importlib.util
import os

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from typer.testing import CliRunner

from pipelines.base.errors import ConfigError
from pipelines.commands import main
from pipelines.config.draft import look
from pipelines.config.load import from_text
from pipelines.encoders.blend import WeightedMean, best_share
from tests.encoders.test_presets import keras_preset
from tests.encoders.test_proposal import photos, questions


def test_the_mean_is_of_probabilities():
    first, second = np.random.default_rng(0).normal(0, 3, (2, 7, 4)).astype(np.float32)
    layer = WeightedMean()
    layer.build(None)
    for share in (0.5, 0.9):
        layer.share.assign(share)
        expected = share * softmax(first, 1) + (1 - share) * softmax(second, 1)
        np.testing.assert_allclose(tf.nn.softmax(layer([first, second])), expected, atol=1e-6)


def test_the_share_is_that_of_the_smallest_loss():
    right, wrong = np.full(30, 0.9), np.full(30, 0.1)
    assert best_share(np.concatenate([right, wrong]), np.concatenate([wrong, right])) == pytest.approx(0.5, abs=1e-3)
    assert best_share(right, wrong) > 0.999 and best_share(wrong, right) < 0.001
    doubtful = np.concatenate([right, [0.0]])  # one mistake made without a doubt
    assert 0.5 < best_share(doubtful, np.full(31, 0.5)) < 1


@pytest.mark.skipif(not importlib.util.find_spec("keras_hub") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                    reason="needs the extra `pretrained` (keras-hub): what it tests is not tested here")
def test_new_tries_means_where_they_are_asked_for_and_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path / "presets"))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "kaggle"))
    data = photos(tmp_path / "photos")
    with pytest.raises(ConfigError, match="--blend: vision has no two ways"):
        look("vision", data, blend=True)
    keras_preset(tmp_path / "presets" / "lite", "EfficientNetBackbone")
    names = {blend: [way.name for way in look("vision", data, blend=blend).draft.ways()] for blend in (False, True)}
    assert [name for name in names[True] if name not in names[False]] == ["mean of lite and a kernel machine"]
    (body,) = (way.body for way in look("vision", data, blend=True).draft.ways() if way.name.startswith("mean"))
    model = from_text(body).experiment.model
    assert (model.name, model.blend, model.fitted, model.finetune) == ("pretrained", "kernel", True, None)
    with pytest.raises(ConfigError, match="blend: is for an encoder that stays as it is"):
        from_text(body.replace("blend: kernel", "finetune: {name: whole}\n  blend: kernel"))
    with pytest.raises(ConfigError, match="fitted to train at once"):
        from_text(body + "\nloss: {label_smoothing: 0.1}")
    with pytest.raises(ConfigError, match="--blend: nlp has no two ways"):
        look("nlp", questions(tmp_path / "q.csv"), blend=True)
    refused = CliRunner().invoke(main.app, ["new", "vision", "--data", str(data), "--blend", "--minutes", "0"])
    assert refused.exit_code == ConfigError.exit_status and "--blend" in refused.output
