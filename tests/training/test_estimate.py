"""What `quartet new` says training will take."""

from pipelines.commands.estimate import estimate
from pipelines.config.load import load


def test_a_few_steps_tell_time_memory_and_disk():
    said = dict(estimate(load("vision/digits", ["train.epochs=2", "data.limit=200"]).experiment))
    assert list(said) == ["time", "memory", "disk"]
    assert "on this machine" in said["time"] and "steps of" in said["time"] and "200 training examples" in said["memory"]
    assert "M weights" in said["disk"]
