"""Several hosts train as one does. Each host is a process, and all of them have this machine's address: what a network does to them is
tested where there are network namespaces.
"""

import contextlib
import copy
import json
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from pipelines.training.evaluation import _interleaved
from tests import processes
from tests.training.runs import assert_same_outcome, checkpoint, model_weights
from tests.training.toy import encoder, final_weights

pytestmark = pytest.mark.slow

LIMIT = 300  # s for anything that hosts do here, on a machine that is busy
CASES = {
    "pipeline by epoch, norm and dropout by micro-batch, averages": {
        "data": {"cache": "none"}, "by_epoch": True, "model": "norm dropout", "train": {"micro_batch_size": 4, "ema": 0.9}},
    "table in chunks, free lengths, uneven last batch, accumulation, clipping, dropout": {
        "answers": True, "chunk": 16, "data": {"cache": "none"}, "model": "table dropout",
        "train": {"accumulation": 2, "clip": {"global_norm": 0.5}, "tables": {"optimizer": "rowwise_adagrad"}}},
    "divided table in chunks, accumulation": {
        "answers": True, "chunk": 16, "model": "table",
        "train": {"accumulation": 2, "tables": {"optimizer": "rowwise_adagrad", "divided": True}}},
    "head on features of a frozen encoder": {
        "answers": True, "model": encoder(name="frozen", head="trained"), "data": {"cache": "memory"}},
}


def addresses(count: int) -> list[str]:
    with contextlib.ExitStack() as open_:
        taken = [open_.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in taken]


def start(command: list[str], count: int) -> list[processes.Process]:
    """The same command on so many hosts."""
    hosts, started = addresses(count), []
    for number in range(count):
        config = json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": number}})
        started.append(processes.start(*command, env={**processes.environment(), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": config}))
    return started


def ended(started: list[processes.Process]) -> list[tuple[int, str]]:
    """(exit status, what it wrote to stderr) of each; all are killed where one does not end."""
    until, found = time.monotonic() + LIMIT, []
    try:
        for process in started:
            _, errors = process.communicate(timeout=max(1.0, until - time.monotonic()))
            found.append((process.wait(), errors))
    finally:
        for process in started:
            process.kill()
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> list[np.ndarray]:
    """Final weights, answers and metrics of each case with three hosts."""
    out = tmp_path_factory.mktemp("weights") / "weights.npz"
    for status, errors in ended(start(["-m", "extensions.cluster.tests.host", "weights", str(out), json.dumps(list(CASES.values()))], 3)):
        assert status == 0, errors[-3000:]
    with np.load(out) as stored:
        return list(stored.values())


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_hosts_train_and_answer_as_one_process_does(number, weights):
    one, three = final_weights(copy.deepcopy(list(CASES.values())[number])), weights[number]
    assert np.isfinite(one).all() and one.shape == three.shape
    worst = np.abs(one - three).max()
    print(f"3 hosts against 1: {worst:.1e}")
    assert worst <= 1e-5


CHANGES = {"model": "norm dropout", "train": {"deterministic": True, "ema": 0.9, "micro_batch_size": 4}}


def train(folder: Path, host: int = -1, step: int = 0, number: int = 0, *, hosts: int = 2) -> list[tuple[int, str]]:
    """Hosts of which one is sent a signal after a step."""
    fault = json.dumps({"host": host, "step": step, "signal": number})
    return ended(start(["-m", "extensions.cluster.tests.host", "train", str(folder), json.dumps(CHANGES), fault], hosts))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert [status for status, _ in train(folder)] == [0, 0]
    return folder


def test_a_killed_follower_and_a_signal_to_one_host_leave_no_trace(tmp_path, undisturbed):
    folder = tmp_path / "run"
    (chief, said), (follower, _) = train(folder, 1, 4, signal.SIGKILL)
    assert (chief, follower) == (75, -signal.SIGKILL)
    assert "host 1 (127.0.0.1:" in said and "is lost" in said and "it resumes from the last checkpoint" in said
    ends = train(folder, 1, 10, signal.SIGTERM)  # at the end of an epoch: its validation has begun when the other host hears of it
    assert [status for status, _ in ends] == [143, 143], ends
    about = checkpoint(folder)[1]
    assert (about["step"], about["unjudged"]) == (10, True)
    assert [status for status, _ in train(folder)] == [0, 0]
    assert_same_outcome(undisturbed, folder)


def test_a_killed_chief_and_more_hosts_afterwards_change_nothing_but_rounding(tmp_path, undisturbed):
    folder = tmp_path / "run"
    (chief, _), (follower, said) = train(folder, 0, 4, signal.SIGKILL)
    assert (chief, follower) == (-signal.SIGKILL, 75)
    assert "host 0 (127.0.0.1:" in said and "is lost" in said
    assert [status for status, _ in train(folder, hosts=3)] == [0, 0, 0]
    for one, other in zip(model_weights(undisturbed), model_weights(folder), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert checkpoint(folder)[1]["step"] == checkpoint(undisturbed)[1]["step"] == 15


def test_results_of_hosts_stand_in_the_order_of_steps_also_where_there_is_nothing_of_an_example():
    hosts = [np.array([[0, 0], [1, 0], [4, 0], [5, 0]]), np.array([[2, 7], [3, 7], [6, 7], [7, 7]])]
    assert _interleaved(hosts, 2)[:, 0].tolist() == list(range(8))
    assert _interleaved([part[:, :0] for part in hosts], 2).shape == (8, 0)
