"""A server in this process whose model doubles numbers, and clients that speak HTTP byte by byte."""

import asyncio
import importlib.util
import json
import os
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.serving.output import Prediction

EXTRA = ("starlette", "uvicorn", "python_multipart", "httptools", "orjson", "prometheus_client")
needs_extra = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in EXTRA) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `serve`: what it tests is not tested here")


class Doubling:
    """Answers a number or a list of three with its double. `gate` holds answers up; a number below zero breaks the model."""

    title, task, batch = "toy/doubling", "toy.doubling", 4
    inputs = {"x": SimpleNamespace(shape=[None, 3], dtype=SimpleNamespace(name="float32", as_numpy_dtype=np.float32))}
    outputs = {"doubled": inputs["x"]}
    columns = {"doubled": 2}
    classes, sends, meanings, decodes, details, ranked = None, "three numbers", {"x": "numbers"}, False, (), ()

    def __init__(self, factor=2):
        self.factor, self.gate, self.sizes = factor, threading.Event(), []
        self.gate.set()

    def take(self, sent):
        if isinstance(sent, bytes):
            raise DataError("send numbers")
        with np.errstate(over="ignore"):
            array = np.asarray(sent, np.float32)
        if array.shape != (3,):
            raise DataError(f"{sent!r} is not three numbers")
        return {"x": array}

    def together(self, read):
        self.gate.wait(30)
        self.sizes.append(len(read))
        if any(row["x"][0] < 0 for _, row in read):
            raise RuntimeError("the model is broken")
        return [Prediction(name, {"doubled": self.factor * row["x"]}) for name, row in read]

    def warm_up(self):
        pass


class Running:
    """A server in a thread."""

    def __init__(self, model, *, limit=1 << 20, connections=200, drain=5.0, log=None, **options):
        from pipelines.serving.http.app import make_app
        from pipelines.serving.http.connections import Bounds, Server
        from pipelines.serving.http.hosting import Hosted
        from pipelines.serving.http.observing import Observed
        from pipelines.serving.server import bind

        self.model, self.observed = model, Observed(log=log)
        self.hosted = Hosted("toy", 1, model, self.observed, **options)
        self.server = Server(make_app(self.hosted, self.observed, limit=limit), self.observed, Bounds(connections, limit, drain))
        self.bound = bind("127.0.0.1", 0)
        self.bound.listen(512)
        self.port = self.bound.getsockname()[1]
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.bound])), daemon=True)
        self.thread.start()

    def stop(self):
        """As SIGTERM does. Seconds until the end."""
        began = time.monotonic()
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()
        return time.monotonic() - began

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def ask(self, body=b"", *, path="/predict", method="POST", kind="application/json", headers=""):
        """(status, headers, content) over a connection of its own."""
        with self.connect() as client:
            client.sendall(request(body, path=path, method=method, kind=kind, headers=f"Connection: close\r\n{headers}"))
            return answer(client)


def request(body=b"", *, path="/predict", method="POST", kind="application/json", headers=""):
    return f"{method} {path} HTTP/1.1\r\nHost: toy\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def numbers(*rows):
    return json.dumps({"inputs": list(rows)}).encode()


def answer(client):
    """(status, headers, content) of the next answer; (0, {}, b"") where the connection is closed without one."""
    head = b""
    while b"\r\n\r\n" not in head:
        try:
            data = client.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            return 0, {}, b""
        head += data
    head, _, content = head.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(content) < int(headers.get("content-length", 0)):
        data = client.recv(65536)
        if not data:
            break
        content += data
    return int(first.split()[1]), headers, json.loads(content) if headers.get("content-type") == "application/json" else content


@contextmanager
def running(model=None, **options):
    server = Running(model or Doubling(), **options)
    try:
        yield server
    finally:
        server.model.gate.set()
        server.server.should_exit = server.server.force_exit = True
        server.thread.join(20)
