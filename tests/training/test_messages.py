"""What a run says, and when: wrong settings before any work, warnings at its start and while it trains, and memory."""

import dataclasses
from types import SimpleNamespace

import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.data.divide import Warned
from pipelines.training.hooks.diagnosis import WarnOfWaiting
from pipelines.training.hooks.log import device_memory
from pipelines.training.meter import Meter
from tests.training.runs import run
from tests.training.toy import ToyTask

pytestmark = pytest.mark.slow


def test_settings_wrong_for_all_data_are_found_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.training.session.make_feed", lambda *_, **__: pytest.fail("decoded"))
    for train, message in (({"watch": "acuracy"}, "train.watch"), ({"optimizer": {"name": "adam", "momentum": 0.9}}, "no option"),
                           ({"freeze": {"layers": ["nothing"]}}, "matches no layer")):
        with pytest.raises(ConfigError, match=message):
            run(tmp_path / message, train=train)


class NotAllUsed(ToyTask):
    def splits(self):
        return dataclasses.replace(super().splits(), notes=("as it is", Warned("not used of it: val")))


def test_notes_that_warn_are_said_when_training_starts_and_all_stand_in_the_report(tmp_path, capsys):
    report = run(tmp_path, task=NotAllUsed, train={"epochs": 1})
    said = "".join(capsys.readouterr())
    assert "warning: not used of it: val" in said and "as it is" not in said
    assert report["notes"][:2] == ["as it is", "not used of it: val"]


def test_waiting_is_said_within_a_long_epoch_too():
    said: list[str] = []
    hook, loop = WarnOfWaiting(0.2, said.append, "Mend it."), SimpleNamespace(meter=Meter())
    for _ in range(29):
        loop.meter.step(1.0, 0.5, 10, 48)
        hook.on_steps(loop)
    assert not said
    for _ in range(5):
        loop.meter.step(1.0, 0.5, 10, 48)
        hook.on_steps(loop)
    assert said == ["50% of the time goes into waiting for input. Mend it."]


def test_the_memory_of_gpus_is_logged(monkeypatch):
    peaks = {"GPU:0": 3 << 30, "GPU:1": 5 << 30}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda name: {"current": 1, "peak": peaks[name]})
    assert device_memory(("GPU:0", "GPU:1")) == {"device_memory_bytes": 5 << 30}
    assert device_memory(("CPU:0",)) == {}
