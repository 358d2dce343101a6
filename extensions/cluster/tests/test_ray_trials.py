"""A search on a Ray cluster: the same trials as on one machine, at random and over a grid, also where a node is lost on the way."""

import signal
import subprocess
import sys

import pytest

from extensions.cluster.tests.ray_nodes import cluster, extra
from tests.processes import environment
from tests.tuning.test_search import EXPERIMENT, events, outcome, tune

pytestmark = [extra, pytest.mark.slow(seconds=60)]
CHANGES = ("tune.trials=4", "train.epochs=8")
GRID = ("tune.algorithm=grid", "tune.trials=10",
        "tune.space={train.learning_rate.peak: {choice: [0.003, 0.01]}, model.hidden: {choice: [8, 16]}}")


@pytest.fixture(scope="module")
def nodes():
    with cluster(2) as two:
        yield two


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of the experiment and its searches."""
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as a node of one processor has it: sums have one order
    (tmp_path / "digits.yaml").write_text(EXPERIMENT)
    return tmp_path


def command(folder, *arguments: str) -> list[str]:
    """A search on the cluster, called `there`."""
    return [sys.executable, "-m", "quartet", "tune", str(folder / "digits.yaml"), *arguments, "--runs", str(folder), "--name", "there"]


def assert_same_as_here(folder, *arguments: str) -> None:
    assert tune(folder, *arguments, "--name", "here").returncode == 0
    here, there = (outcome(folder / "vision" / "digits" / name) for name in ("here", "there"))
    assert there == here and len(here) == 5  # four trials and the best


def test_a_grid_of_two_workers_is_that_of_one_machine(folder, nodes):
    done = subprocess.run([*command(folder, *GRID), "--ray", nodes.address, "--workers", "2"], capture_output=True, text=True, timeout=600,
                          env=environment())
    assert done.returncode == 0, done.stderr
    assert_same_as_here(folder, *GRID)


def test_a_lost_node_and_a_signal_change_no_trial(folder, nodes):
    there = command(folder, *CHANGES)
    search = subprocess.Popen([*there, "--ray", nodes.address, "--workers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env=environment())
    assert search.stderr
    said = []
    for line in search.stderr:
        said.append(line)
        if " 1 of 4 trials" in line:
            nodes.kill()
            nodes.add()
        if "is lost" in line:
            search.send_signal(signal.SIGTERM)
    assert search.wait(60) == 143 and any("is lost" in line for line in said), said
    assert sum(event["event"] == "end" for event in events(folder / "vision" / "digits" / "there")) < 4
    again = subprocess.run([*there, "--ray", nodes.address, "--workers", "1"], capture_output=True, text=True, timeout=600,
                           env=environment())
    assert again.returncode == 0 and "resuming: " in again.stderr, again.stderr
    assert_same_as_here(folder, *CHANGES)
