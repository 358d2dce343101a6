"""Inputs that take long have a process of their own: one that takes too long, too much memory, or crashes its decoder is ended and costs no
other."""

import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from pipelines.serving.apart import pack, unpack
from tests.processes import ROOT
from tests.serving.toy_server import Doubling, answer, needs_extra, numbers, request, running
from tests.waiting import until

CHILD = """
import sys
from pipelines.serving.apart import Inside
from tests.serving.test_apart import Hard
Inside.this().run(lambda folder: Hard(inside=True))
"""
HANGS, HOGS, CRASHES, BREAKS = 1, 2, 3, 4


class Hard(Doubling):
    """Large are inputs that begin with 99; the next number says what they do in the process of their own, whose id is the answer's last.
    A file holds numbers."""

    decodes = True

    def __init__(self, inside=False):
        super().__init__()
        self.inside = inside

    def heavy(self, sent):
        return sent.startswith(b"99")

    def take(self, sent):
        if isinstance(sent, bytes):
            assert self.inside == self.heavy(sent)
            sent = [float(number) for number in sent.split()]
        return super().take(sent)

    def together(self, read):
        if not self.inside:
            assert not any(self.large(row) for _, row in read)
            return super().together(read)
        answers = super().together(read)
        for (_, row), one in zip(read, answers):
            kind = int(row["x"][1])
            if kind == HANGS:
                threading.Event().wait()
            elif kind == HOGS:
                np.ones(1 << 40, np.uint8)
            elif kind == CRASHES:
                os.abort()
            elif kind == BREAKS:
                raise RuntimeError("the model is broken")
            one.values["doubled"][2] = os.getpid()
        return answers


@pytest.fixture
def guarded(tmp_path):
    """Starts a server whose large inputs take at most some seconds; (server, ids of the processes that there were)."""
    from pipelines.serving.apart import Apart

    made = []

    def start(folder):
        made.append(Apart(folder, seconds=made_with["seconds"], idle=made_with["idle"], command=[sys.executable, "-c", CHILD]))
        return made[-1]

    made_with = {"seconds": 300.0, "idle": 300.0}

    def begin(**options):
        made_with.update(options)
        return running(Hard(), apart=start, folder=tmp_path)

    yield begin
    for one in made:
        one.close()


def doubled(content):
    return [one.get("doubled", one.get("error")) for one in content["answers"]]


def there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@needs_extra
def test_what_is_large_is_answered_by_another_process_and_the_rest_by_this_one(guarded):
    with guarded() as server:
        status, _, content = server.ask(numbers([1, 2, 3], [99, 0, 0], [4, 5, 6]))
        first, large, last = doubled(content)
        assert status == 200 and first == [2, 4, 6] and last == [8, 10, 12] and large[:2] == [198, 0] and large[2] != os.getpid()
        assert doubled(server.ask(numbers([99, 0, 0]))[2]) == [large]  # the same process


@needs_extra
@pytest.mark.parametrize("what, seconds, part", [
    (HANGS, 5.0, "takes over 5 s to decode and answer, and was ended"),
    (CRASHES, 300.0, "it ended the process for large inputs (signal SIGABRT)"),
    (HOGS, 300.0, "signal SIGABRT"),
])
def test_one_that_has_to_be_ended_has_an_error_and_the_next_a_process_of_its_own(guarded, what, seconds, part, monkeypatch):
    from pipelines.serving.http import hosting

    monkeypatch.setattr(hosting, "LARGE", 4)  # answered together
    with guarded(seconds=seconds) as server:
        (before,) = doubled(server.ask(numbers([99, 0, 0]))[2])
        with server.connect() as slow:
            slow.sendall(request(numbers([99, 0, 0], [99, what, 0], [99, 0, 0])))
            assert doubled(server.ask(numbers([1, 2, 3]))[2]) == [[2, 4, 6]]  # which waits for none of it
            status, _, content = answer(slow)
        first, ended, last = doubled(content)
        assert status == 200 and part in ended and first[:2] == last[:2] == [198, 0]
        assert last[2] != before[2] and not there(int(before[2]))
        assert doubled(server.ask(numbers([99, 0, 0]))[2]) == [last]


@needs_extra
def test_a_file_that_takes_long_is_decoded_there(guarded):
    def ask(sent):
        return doubled(server.ask(sent, kind="application/octet-stream")[2])[0]

    with guarded() as server:
        large, small = ask(b"99 0 0"), ask(b"1 2 3")
        assert large[:2] == [198, 0] and large[2] != os.getpid() and small == [2, 4, 6]
        assert "is not three numbers" in ask(b"99 0") and "cannot be read (ValueError" in ask(b"99 nothing")


ENDING = """
import os, sys, threading
from multiprocessing.connection import Connection
from pathlib import Path
from pipelines.serving.apart import VARIABLE
from pipelines.serving.apart import pack, unpack

def begun():
    message = connection.recv_bytes()
    connection.send_bytes(b"")
    return unpack(message)

connection = Connection(int(os.environ[VARIABLE]))
begun()
connection.send_bytes(pack(None))
((name, row),) = begun()
connection.send_bytes(pack([None, [[name, {"process": os.getpid()}, None]]]))
if sys.argv[2] == "asked":
    connection.recv_bytes()
    os._exit(1)
connection.close()
Path(sys.argv[1], str(os.getpid())).touch()
threading.Event().wait()
"""


@pytest.mark.parametrize("when", ["before", "asked"])
def test_a_process_that_ends_before_it_begins_costs_no_input(tmp_path, when):
    """It is still there without its connection, as one that the kernel ends is for a moment; or ends with a question on its way."""
    from pipelines.serving.apart import Apart

    one, processes = Apart(tmp_path, command=[sys.executable, "-c", ENDING, str(tmp_path), when]), []
    for _ in range(2):
        (found,) = one.together([("a", {})])
        assert found.error is None
        processes.append(found.values["process"])
        if when == "before":
            until((tmp_path / str(processes[-1])).exists)
    one.close()
    assert processes[0] != processes[1] and not any(map(there, processes))


@needs_extra
def test_a_model_that_breaks_is_a_failure_of_the_server_there_too(guarded, caplog):
    with guarded() as server:
        assert server.ask(numbers([99, BREAKS, 0]))[0] == 500
        assert server.ask(numbers([99, 0, 0]))[0] == 200


@needs_extra
def test_an_old_version_ends_its_process_and_one_that_is_unused_ends(guarded, tmp_path):
    with guarded() as server:
        old = int(doubled(server.ask(numbers([99, 0, 0]))[2])[0][2])
        server.loop.call_soon_threadsafe(server.models.add, "toy", 2, Hard(), tmp_path)
        until(lambda: not there(old))
    with guarded(idle=0.01) as server:
        unused = int(doubled(server.ask(numbers([99, 0, 0]))[2])[0][2])
        until(lambda: not there(unused))
        assert server.ask(numbers([99, 0, 0]))[0] == 200  # by another one


def test_it_ends_with_the_process_that_asks_even_in_the_middle_of_something(tmp_path):
    code = f"""
import sys, threading
import numpy as np
from pathlib import Path
from pipelines.serving.apart import Apart
one = Apart(Path("."), command=[sys.executable, "-c", {CHILD!r}])
print(int(one.together([("a", {{"x": np.array([99, 0, 0], np.float32)}})])[0].values["doubled"][2]), flush=True)
one.together([("a", {{"x": np.array([99, {HANGS}, 0], np.float32)}})])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        inside = int(process.stdout.readline())
        assert there(inside)
        process.kill()
    until(lambda: not there(inside))


def test_a_process_that_does_not_come_up_is_an_error(tmp_path):
    from pipelines.serving.apart import Apart

    one = Apart(tmp_path, command=[sys.executable, "-c", "raise SystemExit(3)"])
    assert "status 3" in one.together([("a", {})])[0].error


VALUE = [None, True, 1 << 70, 0.1, float("inf"), "a\0\ud800", b"\0\xff", {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "bytes": b""},
         np.float32(0.5), np.array(["a", b"b", ["c"]], object), np.zeros([0, 3], np.int64), [[], {}]]


def test_values_cross_as_they_are():
    found = unpack(pack(VALUE))
    np.testing.assert_equal(found, VALUE)
    assert found[7]["x"].dtype == np.float32 and found[9].tolist() == ["a", b"b", ["c"]] and found[8].dtype == np.float32


def test_what_is_no_message_is_refused():
    packed = pack(VALUE)
    draw = np.random.default_rng(0)
    for length in range(0, len(packed), 7):
        with pytest.raises(ValueError):
            unpack(packed[:length])
    for _ in range(300):
        changed = bytearray(packed)
        changed[draw.integers(8, 200)] = draw.integers(256)
        with contextlib.suppress(ValueError):
            unpack(bytes(changed))
