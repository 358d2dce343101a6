"""A search on a Ray cluster: the same trials as on one machine, also where a node is lost on the way."""

import signal
import subprocess
import sys

import pytest

from tests.processes import environment
from tests.ray_cluster import cluster, extra
from tests.tuning.test_search import EXPERIMENT, events, outcome, tune

pytestmark = [extra, pytest.mark.slow(seconds=60)]
CHANGES = ("tune.trials=4", "train.epochs=8")


def test_a_lost_node_and_a_signal_change_no_trial(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as a node of one processor has it: sums have one order
    (tmp_path / "digits.yaml").write_text(EXPERIMENT)
    here, there = (tmp_path / "vision" / "digits" / name for name in ("here", "there"))
    command = [sys.executable, "-m", "quartet", "tune", str(tmp_path / "digits.yaml"), *CHANGES, "--runs", str(tmp_path),
               "--name", "there", "--ray"]
    with cluster(2) as nodes:
        search = subprocess.Popen([*command, nodes.address, "--workers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  env=environment())
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
        assert sum(event["event"] == "end" for event in events(there)) < 4
        again = subprocess.run([*command, nodes.address, "--workers", "1"], capture_output=True, text=True, timeout=200, env=environment())
        assert again.returncode == 0 and "resuming: " in again.stderr, again.stderr
    assert tune(tmp_path, *CHANGES, "--name", "here").returncode == 0
    assert outcome(there) == outcome(here)
