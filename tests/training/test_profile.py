"""The profile of a window of steps."""

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text
from tests.training.runs import run

pytestmark = pytest.mark.slow

TRAIN = {"epochs": 2}


def test_the_window_is_recorded_and_training_is_the_same(tmp_path):
    plain = run(tmp_path / "plain", train=TRAIN)
    profiled = run(tmp_path / "profiled", train=TRAIN, monitor={"tensorboard": False, "profile": [3, 6]})
    assert profiled["metrics"] == plain["metrics"]
    assert list((tmp_path / "profiled" / "tensorboard" / "train" / "plugins" / "profile").glob("*/*.xplane.pb"))


def test_a_window_past_the_end_ends_with_training(tmp_path):
    run(tmp_path, train=TRAIN, monitor={"tensorboard": False, "profile": [8, 1000]})
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_a_window_that_is_none_is_an_error():
    with pytest.raises(ConfigError, match=r"monitor.profile: \[9, 3\] is not \[first, last\] with 0 <= first < last"):
        from_text("task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn}\nmonitor: {profile: [9, 3]}\n")
