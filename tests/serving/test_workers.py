"""`--workers`: several processes answer at one port, count together, are started anew when they die, and end together."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, environment
from tests.serving.toy_server import answer, asking, needs_extra, numbers, request
from tests.waiting import until

pytestmark = [needs_extra, pytest.mark.slow(seconds=12)]

SERVER = """
import os, sys
from pathlib import Path
from pipelines.serving.http import connections
from pipelines.serving.server import Options, Source, serve, serve_by
from pipelines.serving.workers import VARIABLE
from tests.serving.toy_server import Doubling

class Sick(Doubling):
    def together(self, read):
        if read[0][1]["x"][0] == 13:
            os._exit(9)
        return super().together(read)

def say(line):
    print(line, file=sys.stderr, flush=True)

connections.GRACE = 30.0  # on a machine that is busy, a client may need it
options = Options(port=0, drain=60.0)
if VARIABLE in os.environ:
    if os.environ.get("SICK"):
        sys.exit(7)
    serve([Source("toy", Path("."), False)], lambda folder: Sick(), options, say=say)
else:
    sys.exit(serve_by(2, options, say=say))
"""


class Workers:
    """A running server, and as much of toy_server.Running as it needs to be asked."""

    def __init__(self, **more):
        self.process = subprocess.Popen([sys.executable, "-c", SERVER], cwd=ROOT, env=environment() | more, stderr=subprocess.PIPE,
                                        text=True)
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
