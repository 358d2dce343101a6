"""The GPUs of a search's workers: what each trial's process sees are devices that its experiment can have."""

import pytest

from pipelines.config.load import from_text
from pipelines.machine.devices import device_names
from pipelines.tuning import trial_processes

EXPERIMENT = "task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn}\ntrain: {batch_size: 120, devices: %s}\n"


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(trial_processes, "has_nvidia", lambda: True)
    monkeypatch.setattr(trial_processes, "visible_gpus", lambda: ["0", "1", "2", "3"])


def taken(wanted: str, worker: int, workers: int) -> list[str]:
    """The machine's GPUs that a worker's trial trains on."""
    experiment = from_text(EXPERIMENT % wanted, file="search.yaml").experiment
    environment = trial_processes.worker_devices(worker, workers, experiment)
    seen = environment.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")
    return [seen[int(name.partition(":")[2])] for name in device_names(experiment.train.devices, len(seen))]


@pytest.mark.parametrize(("wanted", "expected"), [
    ("[GPU:2, GPU:3]", [["2", "3"], ["2", "3"]]), ("[GPU:1]", [["1"], ["1"]]), ("2", [["0", "1"], ["2", "3"]]),
    ("3", [["0", "1", "2"], ["3", "0", "1"]]), ("auto", [["0"], ["1"]])])
def test_a_trial_trains_on_the_gpus_that_are_meant(four_gpus, wanted, expected):
    assert [taken(wanted, worker, 2) for worker in range(2)] == expected


def test_more_workers_than_gpus_share_them(four_gpus):
    assert [taken("auto", worker, 6) for worker in range(6)] == [["0"], ["1"], ["2"], ["3"], ["0"], ["1"]]
    assert taken("auto", 0, 1) == ["0", "1", "2", "3"]
