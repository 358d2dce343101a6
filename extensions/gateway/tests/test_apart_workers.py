"""Inputs that take long, where several processes answer: each has a process of its own for them, which ends with it; of an export, too."""

import base64
import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from extensions.gateway.tests.test_workers import Workers, _parent, _running
from tests.serving.test_apart import HANGS, there
from tests.serving.toy_server import answer, needs_extra, numbers, request
from tests.waiting import until

pytestmark = [needs_extra, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]

SERVER = """
import os, sys
from pathlib import Path
from extensions.gateway.options import ServeOptions
from pipelines.config.registry import import_extensions
from pipelines.serving import apart
from pipelines.serving.options import Options, Source
from pipelines.serving.protocol import prepared
from pipelines.serving.server import serve
from tests.serving.test_apart import Hard

class Telling(Hard):
    def together(self, read):
        if self.inside:
            Path(os.environ["BEGUN"], str(os.getpid())).touch()
        return super().together(read)

def say(line):
    print(line, file=sys.stderr, flush=True)

inside = apart.VARIABLE in os.environ
import_extensions()
with ServeOptions(workers=2, drain=60.0, long=float(os.environ["LONG"])):
    options, protocols = (Options(), []) if inside else prepared(Options(port=0))
    serve([Source("toy", Path("."), False)], lambda folder: Telling(inside), options, protocols, say=say)
"""


@contextmanager
def workers(*arguments, **more):
    one = Workers(*arguments, **more)
    try:
        yield one.ready()
    finally:
        one.process.terminate()
        assert one.process.wait(120) == 0
        one.process.stderr.close()


def large(server):
    """The process that answered a large input, over a connection of its own, which the kernel gives to either worker; None without an
    answer."""
    try:
        status, _, content = server.ask(numbers([99, 0, 0]))
    except OSError:  # its worker has just been killed
        return None
    return int(content["answers"][0]["doubled"][2]) if status == 200 else None


@pytest.mark.slow(seconds=10)
def test_each_worker_has_its_own_which_ends_with_it(tmp_path):
    with workers("-c", SERVER, LONG="300", BEGUN=str(tmp_path)) as server:
        apart = set()
        until(lambda: apart.add(large(server)) or len(apart - {None}) == 2)
        gone, kept = apart - {None}
        worker = _parent(Path(f"/proc/{gone}/stat"))
        assert worker in server.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: not there(gone))
        until(lambda: large(server) not in (None, kept))  # the worker in its place has another one
        assert there(kept)
    until(lambda: not there(kept))


@pytest.mark.slow(seconds=5)
def test_one_that_hangs_holds_up_no_end(tmp_path):
    with workers("-c", SERVER, LONG="3", BEGUN=str(tmp_path)) as server, server.connect() as slow:
        slow.sendall(request(numbers([99, HANGS, 0], [1, 2, 3])))
        process = int(until(lambda: [path.name for path in tmp_path.iterdir()])[0])
        server.process.terminate()
        status, _, content = answer(slow)
        assert status == 200 and content["answers"][1]["doubled"] == [2, 4, 6]
        assert "takes over 3 s to decode and answer, and was ended" in content["answers"][0]["error"]
        assert not there(process)


def noise():
    """A PNG file of over 1 MiB."""
    import tensorflow as tf

    return tf.io.encode_png(np.random.default_rng(0).integers(0, 256, (640, 720, 3), np.uint8)).numpy()


@pytest.mark.slow(seconds=20)
def test_large_inputs_of_an_export_are_answered_apart(loaded, tmp_path):
    from pipelines.serving.export import export
    from pipelines.serving.exported import ExportedModel

    folder = export(loaded, tmp_path / "export")
    model, content = ExportedModel(folder), noise()
    (expected,) = model.together([("input 1", model.take(content))])
    sent = [{"b64": base64.b64encode(one).decode()} for one in (content, content[:-400_000], b"\x89PNG" + bytes(1 << 21))]
    with workers("-m", "quartet", "serve", str(folder), "--port", "0", "--workers", "2", "--long", "300") as server:
        status, _, found = server.ask(json.dumps({"inputs": sent}).encode(), path="/predict?probabilities=1")
        first, broken, none = found["answers"]
        assert status == 200 and first["label"] == expected.values["label"]
        assert list(first["probabilities"].values()) == pytest.approx(expected.values["probabilities"].tolist(), abs=1e-5)
        assert set(broken) == set(none) == {"input", "error"}
        (apart,) = {process for worker in server.workers() for process in processes() if _parent(Path(f"/proc/{process}/stat")) == worker}
        os.kill(apart, signal.SIGKILL)  # as the kernel does for want of memory; it ends unasked, and costs no input
        until(lambda: not _running(apart))
        assert server.ask(json.dumps({"inputs": sent[:1]}).encode(), path="/predict?probabilities=1")[2]["answers"] == [first]


def processes():
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]
