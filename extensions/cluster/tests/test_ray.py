"""One training on the workers of a Ray cluster whose nodes go and come: it trains what one process does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from extensions.cluster.options import with_address
from extensions.cluster.ray_cluster import Share, connected, is_address, share
from extensions.cluster.ray_training import dividing, outcome
from extensions.cluster.tests.ray_nodes import cluster, extra
from pipelines.base.errors import ConfigError
from pipelines.config.train_settings import Train
from tests.processes import environment, run
from tests.training.runs import model_weights

LIMIT = 300  # s
SETTINGS = ["vision/digits", "train.epochs=80", "train.batch_size=432", "train.micro_batch_size=216", "train.optimizer={name: sgd}",
            "train.learning_rate.peak=0.002", "train.precision=float32", "train.devices=cpu", "train.deterministic=true",
            "train.checkpoint_seconds=0.05", "monitor.tensorboard=false", "evaluate.baseline=false", "evaluate.bootstrap=100"]


class Training:
    """`quartet train` on a cluster, read line by line."""

    def __init__(self, address: str, runs: Path, *arguments: str):
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "quartet", "train", *SETTINGS, "--runs", str(runs), "--name", "run", "--ray", address, *arguments],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment())

    def until(self, text: str) -> str:
        """The next line with this text."""
        assert self._process.stderr
        for line in self._process.stderr:
            self.said.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} did not come:\n{''.join(self.said)}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def status(self) -> int:
        assert self._process.stderr
        self.said += self._process.stderr
        return self._process.wait(LIMIT)


@extra
@pytest.mark.slow(seconds=60)
def test_nodes_that_go_and_come_and_a_signal_leave_the_weights_of_one_process(tmp_path):
    with cluster(2) as nodes:
        training = Training(nodes.address, tmp_path, "--workers", "2", "--restarts", "2")
        assert "2 workers of 1 CPU" in training.until("training on")
        training.until(" 2/80 ")
        nodes.kill()
        assert "1 of 2 restarts" in training.until("starting again")
        assert "1 worker of 1 CPU" in training.until("training on")
        training.until("/80 ")
        nodes.add()
        training.signal(signal.SIGTERM)
        assert training.status() == 143, training.said
        training = Training(nodes.address, tmp_path, "--workers", "2", "--restarts", "0")
        assert "2 workers of 1 CPU" in training.until("training on")
        assert training.status() == 0, training.said
    one = run("-m", "quartet", "train", *SETTINGS, "--runs", str(tmp_path), "--name", "one", anew=True, check=True)
    assert one.returncode == 0
    for ours, theirs in zip(*(model_weights(tmp_path / "vision" / "digits" / name) for name in ("one", "run")), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_what_a_worker_has_and_how_many_there_can_be():
    nodes = [{"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 4.0}, {"memory": 1.0}]
    assert share(nodes, 2) == Share(8, 4) and share(nodes, 3) == Share(4, 2) and share(nodes, 8) == Share(2, 1)
    assert share(nodes, 2, gpus=1) == Share(8, 1) and share(nodes, 3, gpus=0) == Share(4, 0)
    assert share(nodes, 40) == Share(1, 1) and Share(1, 1).places(nodes) == 8 and Share(8, 4).places(nodes[:1]) == 1
    assert share([], 2) == Share(1, 0)


def test_the_batch_says_how_many_workers_there_may_be():
    assert dividing(Train(batch_size=64), 3, 0) == 2 and dividing(Train(batch_size=96), 3, 0) == 3
    assert dividing(Train(batch_size=64, micro_batch_size=16), 3, 1) == 2
    assert dividing(Train(batch_size=64), 3, 8) == 2
    assert dividing(Train(batch_size=7), 1, 2) == 1  # training itself says that it does not divide


@pytest.mark.parametrize(("statuses", "end"), [
    ([0, 0], 0), ([0, None], 0), ([75, -9], None), ([None, 75], None), ([143, 143], None), ([2, 2], 2), ([1, -9], 1), ([75, 1], 1)])
def test_a_lost_worker_and_only_that_is_started_again(statuses, end):
    assert outcome(statuses) == end


def test_ray_stands_with_and_without_an_address():
    assert with_address(["a", "--ray", "--workers", "2"]) == ["a", "--ray", "local", "--workers", "2"]
    assert with_address(["--ray", "vision/digits"]) == ["--ray", "local", "vision/digits"]
    assert with_address(["a", "--ray"]) == ["a", "--ray", "local"]
    for address in ("auto", "10.0.0.1:6379", "[fe80::1]:6379", "head.example.org:6379"):
        assert with_address(["--ray", address, "b"]) == ["--ray", address, "b"] and is_address(address)
    assert not is_address("ray://head:10001") and not is_address("train.epochs=3")


@extra
@pytest.mark.parametrize("address, said", [("local", "Ray does not start on this machine"), ("10.0.0.1:6379", "no Ray cluster answers at")])
def test_a_ray_that_does_not_start_is_one_line(address, said, monkeypatch):
    """Ray itself raises a bare Exception of many lines."""
    import ray
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER

    def init(*_, **__):
        everywhere = address != "local"
        assert everywhere == ray_constants.ENABLE_RAY_CLUSTER == (os.environ.get(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR) != "0")
        raise Exception("the current node timed out during startup\nand forty lines more")  # as Ray does

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match=f"^--ray: {said}.*: the current node timed out during startup$"), connected(address, workers=1):
        raise AssertionError("it was handed out")
    assert before == ray_constants.ENABLE_RAY_CLUSTER and ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR not in os.environ
