"""`--workers`: several processes answer at one port, count together, are started anew when they die, load new versions, end together."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import ROOT, environment
from tests.serving.toy_server import answer, asking, needs_extra, numbers, request
from tests.waiting import until

pytestmark = [needs_extra, pytest.mark.slow(seconds=20)]

SERVER = """
import os, sys
from pathlib import Path
from extensions.gateway import versions
from extensions.gateway.options import ServeOptions
from pipelines.config.registry import import_extensions
from pipelines.serving.http import app
from pipelines.serving.options import Options, Source
from pipelines.serving.protocol import prepared
from pipelines.serving.server import serve
from tests.serving.toy_server import Doubling

class Sick(Doubling):
    def together(self, read):
        if read[0][1]["x"][0] == 13:
            os._exit(9)
        return super().together(read)

def say(line):
    print(line, file=sys.stderr, flush=True)

app.GRACE = float(os.environ.get("GRACE", "30"))  # on a machine that is busy, a client may need it
versions.SECONDS = 0.05
watched = os.environ.get("WATCHED")  # a folder of versions, each named for the factor by which it multiplies
import_extensions()
with ServeOptions(workers=2, drain=60.0, grpc=0 if watched else None):
    options, protocols = prepared(Options(port=0))  # which the first process does not leave
    if os.environ.get("SICK"):
        sys.exit(7)
    serve([Source("toy", Path(watched or "."), bool(watched))], lambda folder: Sick(int(folder.name or 2)), options, protocols, say=say)
"""


class Workers:
    """A running server, and as much of toy_server.Running as it needs to be asked."""

    def __init__(self, *arguments, **more):
        self.process = subprocess.Popen([sys.executable, *(arguments or ("-c", SERVER))], cwd=ROOT, env=environment() | more,
                                        stderr=subprocess.PIPE, text=True)
        self.said = []

    def wait(self, word):
        """The next line with that word."""
        for line in self.process.stderr:
            self.said.append(line)
            if word in line:
                return line
        raise AssertionError("".join(self.said))

    def ready(self):
        self.port = int(self.wait("serving").rpartition(":")[2])
        return self

    def connect(self):
        import socket

        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, body=b"", **more):
        with self.connect() as client:
            client.sendall(request(body, headers="Connection: close\r\n", **more))
            return answer(client)

    def workers(self):
        """Process ids, by who their parent is."""
        return {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")
                if _parent(path) == self.process.pid}

    def metrics(self):
        from prometheus_client.parser import text_string_to_metric_families

        content = self.ask(path="/metrics", method="GET")[2].decode()
        return {(sample.name, *sorted(sample.labels.values())): sample.value
                for family in text_string_to_metric_families(content) for sample in family.samples}


def _parent(path):
    try:
        return int(path.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return None


def counted(metrics):
    """(requests answered, versions that answer); the latter has a value of the moment, which a worker sets each second."""
    return tuple(metrics.get(name) for name in (("quartet_requests_total", "/predict", "200", "toy"),
                                                ("quartet_model_info", "1", "toy", "toy.doubling")))


@pytest.fixture
def there():
    one = Workers()
    try:
        yield one.ready()
    finally:
        one.process.terminate()
        one.process.wait(60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_they_count_together_and_one_that_dies_is_replaced(there):
    before = there.workers()
    assert len(before) == 2
    for _ in range(20):
        assert there.ask(numbers([1, 2, 3]))[2]["answers"][0]["doubled"] == [2, 4, 6]
    until(lambda: all(counted(there.metrics()) == (20, 1) for _ in range(4)), pause=0.2)  # whichever worker is asked
    assert there.ask(numbers([13, 0, 0]))[0] == 0  # it kills its worker
    assert "ended with status 9" in there.wait("ended")
    until(lambda: there.ask(numbers([1, 2, 3])) and there.workers() - before and len(there.workers()) == 2, pause=0.1)
    assert there.metrics()["quartet_requests_total", "/predict", "200", "toy"] >= 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_they_end_together_and_lose_no_answer(there):
    with asking(there, 8) as ends:
        there.process.send_signal(signal.SIGTERM)
        assert there.process.wait(60) == 0
    assert ends == [(200, "close")] * 8


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_they_end_with_the_first_process(there):
    workers = there.workers()
    there.process.kill()
    until(lambda: not any(_running(one) for one in workers), pause=0.1)


def _running(process):
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_cannot_start_ends_all():
    one = Workers(SICK="1")
    assert one.process.wait(120) == 7
    one.process.stderr.close()


@pytest.mark.skipif(not all(importlib.util.find_spec(name) for name in ("tritonclient", "tensorflow_serving"))
                    and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `grpc`: what it tests is not tested here")
def test_reloads_under_load_lose_no_request_of_either_protocol_and_mix_none(tmp_path):
    import numpy as np
    import tritonclient.grpc as triton

    (tmp_path / "1").mkdir()
    one = Workers(WATCHED=str(tmp_path), GRACE="0.1").ready()
    rpc_port = int(next(line for line in one.said if line.startswith("gRPC")).rpartition(":")[2])
    stop, wrong, seen = threading.Event(), [], {"http": set(), "grpc": set()}

    def by_http():
        while not stop.is_set():  # each over a connection of its own, which the kernel gives to either worker
            status, _, content = one.ask(numbers(*[[1, 1, 1]] * 6))
            yield {row["doubled"][0] for row in content["answers"]} if status == 200 else content

    def by_grpc():
        given = triton.InferInput("x", [6, 3], "FP32")
        given.set_data_from_numpy(np.ones([6, 3], np.float32))
        while not stop.is_set():
            with triton.InferenceServerClient(f"127.0.0.1:{rpc_port}") as client:
                for _ in range(10):
                    yield set(client.infer("toy", [given]).as_numpy("doubled").ravel().tolist())

    def client(kind, answers):
        try:
            for found in answers():
                if len(found) != 1 or not isinstance(found, set):
                    wrong.append((kind, found))
                seen[kind] |= set(found)
        except Exception as error:
            wrong.append((kind, error))

    clients = [threading.Thread(target=client, args=pair) for pair in (("http", by_http), ("grpc", by_grpc)) for _ in range(2)]
    try:
        for each in clients:
            each.start()
        for version in range(2, 6):
            (tmp_path / str(version)).mkdir()
            until(lambda version=version: wrong or all(version in found for found in seen.values()))
        until(lambda: all(one.ask(numbers([1, 1, 1]))[2]["answers"][0]["doubled"] == [5, 5, 5] for _ in range(8)), pause=0.1)
    finally:
        stop.set()
        for each in clients:
            each.join(60)
        one.process.terminate()
        assert one.process.wait(60) == 0
        one.process.stderr.close()
    assert not wrong and all({2, 3, 4, 5} <= found <= {1, 2, 3, 4, 5} for found in seen.values())
