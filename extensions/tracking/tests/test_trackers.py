"""Runs in MLflow and Weights & Biases themselves, with their packages and stores on this disk."""

import os
from importlib.util import find_spec

import pytest

from extensions.tracking import record
from extensions.tracking.tests.mlflow_store import store
from pipelines.config.load import from_dict
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.runs.work import Policy

SETTINGS = {"task": "vision.classification", "data": {"source": "digits", "limit": 200}, "model": {"name": "cnn", "widths": [8]},
            "train": {"epochs": 2, "precision": "float32", "devices": "cpu"}, "evaluate": {"bootstrap": 100}}


@pytest.fixture
def server():
    with store() as address:
        yield address


def needs(package):
    missing = find_spec(package) is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS")
    return pytest.mark.skipif(missing, reason=f"needs the extra `{package}`")


def trained(folder, epochs=None, **monitor):
    experiment = from_dict({**SETTINGS, "monitor": {"tensorboard": False, "track_seconds": 600, **monitor}})
    call = Call("vision/digits", task_class(experiment.task), quiet=True, policy=Policy(epochs=epochs, baseline=False))
    return train(experiment, RunFolder(folder), call)


@pytest.mark.slow(seconds=15)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own calls
@needs("mlflow")
def test_a_run_that_is_resumed_is_one_run_in_mlflow(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "vision" / "digits" / "default"
    trained(folder, epochs=1, track="mlflow", track_server=server)
    known = record.read(folder)
    from mlflow import MlflowClient

    client = MlflowClient(server)
    assert client.get_run(known.id).info.status == "KILLED"
    report = trained(folder, track="mlflow", track_server=server)
    assert record.read(folder).id == known.id
    experiment = client.get_experiment_by_name("vision/digits")
    run, = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == known.id and run.info.status == "FINISHED" and run.info.run_name == "default"
    assert run.data.params["train.epochs"] == "2" and run.data.params["model.name"] == "cnn"
    stored = report["metrics"]["test/accuracy"]
    for name, value in (("test/accuracy", "value"), ("test/accuracy_low", "low"), ("test/accuracy_high", "high")):
        assert run.data.metrics[name] == pytest.approx(stored[value])
    steps = [point.step for point in client.get_metric_history(known.id, "train/loss")]
    assert steps == sorted(set(steps)) and len(steps) > 2
    assert [point.step for point in client.get_metric_history(known.id, "validation/loss")] == [steps[-1] // 2, steps[-1]]
    files = {one.path for one in client.list_artifacts(known.id)} | {one.path for one in client.list_artifacts(known.id, "report")}
    assert {"experiment.yaml", "croissant.json", "report/report.html", "report/model_card.md"} <= files


@pytest.mark.slow(seconds=4)
@needs("wandb")
def test_a_run_in_wandb(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = tmp_path / "runs" / "vision" / "digits" / "default"
    trained(folder, track="wandb")
    known = record.read(folder)
    run, = (tmp_path / "wandb").glob("offline-run-*")
    assert run.name.endswith(known.id)
    content = (run / f"run-{known.id}.wandb").read_bytes()
    for text in (b"train/loss", b"validation/accuracy", b"train.epochs", b"test/accuracy_low", b"vision-digits"):
        assert text in content
    assert (run / "files" / "report" / "report.html").is_file()
