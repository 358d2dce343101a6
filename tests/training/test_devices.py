"""Devices, precision and the three batch settings: what is chosen, kept and refused."""

import json

import keras
import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.config.train_settings import Train
from pipelines.data.cache import decoded_spec
from pipelines.machine import devices, precision
from pipelines.runs.launch import task_class
from pipelines.training import preparation
from pipelines.training.preparation import plan_batches, prepare
from tests.training.runs import At, Killed, checkpoint, kill, run

pytestmark = pytest.mark.slow


def test_the_chosen_precision_is_written_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "fastest", lambda *_: ("bfloat16", "it is faster here"))
    with pytest.raises(Killed):
        run(tmp_path, callbacks=[At({4: kill})], train={"precision": "auto"})
    written = json.loads((tmp_path / "environment.json").read_text())
    assert written["precision"] == "bfloat16"
    assert written["notes"] == ["precision bfloat16: it is faster here"]
    monkeypatch.setattr(devices, "fastest", lambda *_: ("float32", "now this is"))
    run(tmp_path, train={"precision": "auto"})
    written = json.loads((tmp_path / "environment.json").read_text())
    assert written["precision"] == "bfloat16"
    assert checkpoint(tmp_path)[1]["precision"] == "bfloat16"


@pytest.mark.parametrize(("train", "message"), [
    ({"devices": ["GPU:9"]}, r"train.devices: GPU:9 is not there; this machine has \d+ GPU"),
    ({"devices": ["TPU:0"]}, "train.devices: 'TPU:0' is not a device; write GPU:0 or CPU:0"),
    ({"devices": ["CPU:0", "cpu:0"]}, "names a device twice"),
    ({"devices": []}, "an empty list"),
])
def test_devices_that_are_not_there(tmp_path, train, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, train=train)


@pytest.mark.parametrize(("train", "replicas", "message"), [
    ({"batch_size": 64}, 3, "global batch of 64 examples does not divide over 3 devices x 1 accumulation steps; nearest: 63"),
    ({"batch_size": 64, "accumulation": 2}, 3, "3 devices x 2 accumulation steps; nearest: 66"),
    ({"batch_size": 2}, 4, "nearest: 4"),
    ({"batch_size": 64, "micro_batch_size": 5}, 3, r"3 devices x some accumulation steps x 5 examples .*; nearest: 60"),
    ({"batch_size": 64, "micro_batch_size": 8, "accumulation": 3}, 3, "nearest: 72"),
])
def test_batches_that_do_not_divide(train, replicas, message):
    with pytest.raises(ConfigError, match=message):
        plan_batches(Train(**train), 1000, replicas)


def test_three_clear_batch_settings():
    for train, expected in (({"batch_size": 64}, (32, 32, 1)), ({"batch_size": 64, "accumulation": 4}, (32, 8, 4)),
                            ({"batch_size": 64, "micro_batch_size": 16}, (32, 16, 2)),
                            ({"batch_size": 64, "micro_batch_size": 4, "accumulation": 8}, (32, 4, 8))):
        plan = plan_batches(Train(**train), 1000, 2)
        assert (plan.local, plan.micro, plan.accumulation) == expected


@pytest.mark.parametrize(("layers", "message"), [
    (["conv_x"], "'conv_x' matches no layer; the model has first, "), (["*"], "every layer with weights is frozen")])
def test_freezing_that_cannot_be(tmp_path, layers, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, train={"freeze": {"layers": layers}})


def test_speeds_in_words():
    assert [precision.speed(gain, "bfloat16") for gain in (0.04, 0.8, 1.0, 1.9)] == [
        "25.0 x slower in bfloat16 than in float32", "1.2 x slower in bfloat16 than in float32", "as fast in bfloat16 as in float32",
        "1.9 x as fast in bfloat16 as in float32"]


def test_a_network_with_depthwise_convolutions_is_timed_itself(monkeypatch):
    gain, chosen = 0.5, "float32"
    experiment = load("speech/quickstart", ["train.precision=auto", "train.devices=cpu", "model.width=8", "model.depth=1"]).experiment
    task = task_class(experiment.task)
    plain = prepare(experiment.model_copy(update={"train": experiment.train.model_copy(update={"precision": chosen})}), task)
    monkeypatch.setattr(devices, "fastest", lambda *_: ("bfloat16", "a convolution is"))
    monkeypatch.setattr(preparation, "speed_gain", lambda *_: gain)
    begun = prepare(experiment, task)
    assert begun.machine.precision == chosen == keras.config.dtype_policy().compute_dtype
    assert begun.machine.notes == (
        f"precision {chosen}: this network, which has depthwise convolutions, is {precision.speed(gain, 'bfloat16')} here",)
    assert {layer.compute_dtype for layer in begun.model.layers if layer.name.startswith("depthwise")} == {chosen}
    for mine, other in zip(begun.model.weights, plain.model.weights):  # those of a run that names this precision
        np.testing.assert_array_equal(mine, other)
    assert prepare(experiment, task, precision="bfloat16").machine.precision == "bfloat16"  # a resumed run keeps its own


def test_the_faster_network_has_a_gain():
    def begun(width: int):
        return prepare(load("speech/quickstart", ["train.precision=float32", "train.devices=cpu", f"model.width={width}"]).experiment,
                       task_class("speech.classification"))

    small, large = begun(4), begun(256)
    before = [weight.numpy() for weight in small.model.weights]
    spec = decoded_spec(small.splits.train, small.task.input.decode)
    assert preparation.depthwise(small.model)
    assert preparation.speed_gain(small.task, small.model, large.model, spec, 8) > 2.0
    for weight, old in zip(small.model.weights, before):
        np.testing.assert_array_equal(weight, old)
