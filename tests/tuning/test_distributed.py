"""Chief and workers: who holds which trial over a restart, failures that the search must see, and a worker without a chief."""

import errno
import json
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from pipelines.base.errors import TrainingError
from pipelines.base.files import WriteError
from pipelines.tuning.distributed import Chief, _Line, _trained
from pipelines.tuning.search_folder import SearchFolder

pytestmark = pytest.mark.slow


class Search:
    """What a chief needs of a search, with trials that are numbers."""

    def __init__(self, trials=3, held=None):
        self.lock, self.failure, self.held, self.journal = threading.RLock(), None, held or {}, []
        self.left = [SimpleNamespace(number=number) for number in range(1, trials + 1)]

    def take(self):
        return "stop" if self.failure or not self.left else self.left.pop(0)

    def ready(self, trial):
        return True

    def hold(self, trial, worker):
        self.journal.append((worker, trial.number))

    def came(self, trial):
        raise TrainingError("the first 10 trials all failed")


@pytest.fixture
def address(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_ORACLE_PORT", port)


def test_a_restarted_chief_gives_each_worker_what_it_had_and_nobody_else(address):
    first = Search()
    chief, one, two = Chief(first), _Line("one", []), _Line("two", [])
    assert [one.ask().trial_id, two.ask().trial_id, one.ask().trial_id] == ["1", "2", "1"]  # who asks again has lost nothing
    assert first.journal == [("one", 1), ("two", 2)]
    chief.close(wait=False)
    second = Search(held={"one": SimpleNamespace(number=1), "two": SimpleNamespace(number=2)})
    second.left = second.left[2:]
    chief = Chief(second)
    three = _Line("three", [])
    assert [three.ask().trial_id, _patiently(two).trial_id, _patiently(one).trial_id] == ["3", "2", "1"]
    assert second.journal == [("three", 3)]
    chief.close(wait=False)


def test_a_failure_in_the_answering_thread_is_the_searchs_and_workers_are_sent_home(address):
    search = Search()
    chief, line = Chief(search), _Line("one", [])
    line.tell(line.ask())
    assert isinstance(search.failure, TrainingError) and line.ask().status == "STOPPED"
    began = time.monotonic()
    chief.close(wait=True)
    assert time.monotonic() - began < 4.0  # every worker knows


def test_a_worker_does_not_wait_for_an_answer_once_it_is_to_stop(address):
    import grpc

    stopped: list[int] = []
    line = _Line("one", stopped)
    with pytest.raises(grpc.RpcError):
        line.ask()  # no chief: said at once, not after Keras Tuner's hour
    search = Search()
    chief = Chief(search)
    search.lock.acquire()  # a chief that is busy
    try:
        threading.Timer(0.5, stopped.append, [2]).start()
        began = time.monotonic()
        while True:
            try:
                assert line.ask() is None
                break
            except grpc.RpcError:  # the line is being opened
                time.sleep(0.05)
        assert time.monotonic() - began < 10.0
    finally:
        search.lock.release()
        chief.close(wait=False)


def test_a_workers_result_is_written_whole(tmp_path, monkeypatch):
    """A trial whose process ended without a result: what the chief reads, maybe in this very moment, is all or nothing."""
    order = tmp_path / "trials" / "07" / "7.order.json"
    order.parent.mkdir(parents=True)
    order.write_text("{}")
    nursery = SimpleNamespace(start=lambda *_, **__: None, ended=lambda seconds: [("7", -9)])

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError):
            _trained(nursery, SearchFolder(tmp_path), "7", [])
    assert [path.name for path in order.parent.iterdir()] == ["7.order.json"]
    assert _trained(nursery, SearchFolder(tmp_path), "7", [])
    assert "killed by SIGKILL" in json.loads((order.parent / "7.result.json").read_text())["reason"]


def _patiently(line):
    """A trial through a line whose chief was away: it is opened anew within some seconds."""
    import grpc

    until = time.monotonic() + 20.0
    while True:
        try:
            return line.ask()
        except grpc.RpcError:
            assert time.monotonic() < until
            time.sleep(0.1)

