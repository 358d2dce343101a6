"""A server in this process whose model doubles numbers, and clients that speak HTTP byte by byte."""

import asyncio
import importlib.util
import json
import os
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.serving.output import Prediction
from pipelines.task.form import fields_of
from tests.waiting import until

EXTRA = ("starlette", "uvicorn", "python_multipart", "httptools", "orjson", "prometheus_client")
needs_extra = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in EXTRA) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `serve`: what it tests is not tested here")


class Shape(tuple):
    """As much of tf.TensorShape as is used, so that these tests import no TensorFlow."""

    def __getitem__(self, place):
        return Shape(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def is_compatible_with(self, other):
        return len(self) == len(other) and all(size in (None, there) for size, there in zip(self, other))


def spec(shape, kind):
    """As tf.TensorSpec has it."""
    numpy_kind = object if kind == "string" else np.dtype(kind).type
    return SimpleNamespace(shape=Shape(shape), dtype=SimpleNamespace(name=kind, as_numpy_dtype=numpy_kind))


class Doubling:
    """Answers a number or a list of three with its double. `gate` holds answers up, `begun` counts the batches that came so far; a number
    below zero breaks the model."""

    title, task, batch = "toy/doubling", "toy.doubling", 4
    inputs, outputs = {"x": spec([None, 3], "float32")}, {"doubled": spec([None, 3], "float32")}
    columns = {"doubled": 2}
    form = fields_of(inputs, {"x": "numbers"})
    classes, sends, meanings, decodes, details, ranked, kinds = None, "three numbers", {"x": "numbers"}, False, (), (), {}

    def __init__(self, factor=2):
        self.factor, self.gate, self.begun, self.sizes = factor, threading.Event(), 0, []
        self.gate.set()

    def take(self, sent):
        if isinstance(sent, bytes):
            raise DataError("send numbers")
        sent = sent["x"] if isinstance(sent, dict) and set(sent) == {"x"} else sent
        with np.errstate(over="ignore"):
            array = np.asarray(sent, np.float32)
        if array.shape != (3,):
            raise DataError(f"{sent!r} is not three numbers")
        return {"x": array}

    def large(self, row):
        return row["x"][0] == 99

    def together(self, read):
        self.begun += 1
        self.gate.wait(60)
        self.sizes.append(len(read))
        if any(row["x"][0] < 0 for _, row in read):
            raise RuntimeError("the model is broken")
        return [Prediction(name, {"doubled": self.factor * row["x"]}) for name, row in read]

    def warm_up(self):
        pass


class Running:
    """A server in a thread."""

    def __init__(self, model, *, protocols=(), folder=None, apart=None, loop=None, say=print, **options):
        from pipelines.serving.http.app import Server, make_site
        from pipelines.serving.http.hosting import Models
        from pipelines.serving.options import Options
        from pipelines.serving.server import bind

        asked = Options(**{"limit": 1 << 20, "connections": 200, "drain": 5.0} | options)
        for one in protocols:
            asked = one.prepare(asked)
        self.site = make_site(asked, [], None, say)
        if apart is not None:
            self.site = replace(self.site, models=Models(self.site.observed, asked, apart))
        self.model, self.observed, self.models = model, self.site.observed, self.site.models
        self.models.add("toy", 1, model, folder)
        started = threading.Event()
        self.server = Server(self.site, protocols, started.set)
        self.bound = bind("127.0.0.1", 0)
        self.bound.listen(512)
        self.port = self.bound.getsockname()[1]
        self.loop = loop or asyncio.new_event_loop()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self.server.serve([self.bound])), daemon=True)
        self.thread.start()
        assert started.wait(60)

    def stop(self):
        """As SIGTERM does. Seconds until the end."""
        began = time.monotonic()
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()
        return time.monotonic() - began

    def queued(self, model="toy"):
        """Inputs that wait for a batch."""
        sample = f'quartet_queue_inputs{{model="{model}"}} '
        return next(float(line.removeprefix(sample)) for line in self.observed.text().decode().splitlines() if line.startswith(sample))

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
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
    """A server of the core's own routes, and those of `protocols`."""
    server = Running(model or Doubling(), **options)
    try:
        yield server
    finally:
        if hasattr(server.model, "gate"):
            server.model.gate.set()
        server.server.should_exit = server.server.force_exit = True
        server.thread.join(20)


@contextmanager
def asking(server, count):
    """Clients that ask again and again over the connection that each keeps, until it is said to close. All have been answered when this
    begins, and have ended when it does: (status, header `connection`) of each one's last answer."""
    ends, answered = [], [0] * count

    def client(number):
        with server.connect() as connection:
            while True:
                connection.sendall(request(numbers([1, 2, 3])))
                status, headers, _ = answer(connection)
                if status != 200 or headers.get("connection") == "close":
                    ends.append((status, headers.get("connection")))
                    return
                answered[number] += 1
                time.sleep(0.01)

    clients = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(count)]
    for one in clients:
        one.start()
    until(lambda: all(answered))
    yield ends
    for one in clients:
        one.join(60)


class Spelling:
    """Answers a text and a number with texts and numbers of different lengths; an empty text cannot be answered."""

    title, task, batch = "toy/spelling", "toy.spelling", 4
    inputs = {"text": spec([None], "string"), "times": spec([None], "int64")}
    outputs = {"label": spec([None], "string"), "shares": spec([None, 2], "float32"), "letters": spec([None, None], "string"),
               "codes": spec([None, None], "int32")}
    columns = {"label": 1, "shares": 2, "letters": 2, "codes": 2}
    form = fields_of(inputs, {})
    classes, sends, meanings, decodes, details, ranked = ["short", "long"], "a text", {}, False, ("letters", "codes"), ()
    kinds = {}

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

    def take(self, sent):
        return {"text": sent["text"].encode(), "times": np.asarray(sent["times"], np.int64)}

    def large(self, row):
        return False

    def together(self, read):
        return [self._one(name, row["text"] * int(row["times"])) for name, row in read]

    def _one(self, name, text):
        if not text:
            return Prediction(name, error="the text is empty")
        long = min(1.0, len(text) / 8)
        letters = [text[place:place + 1].decode("latin-1") for place in range(len(text))]
        return Prediction(name, {"label": self.classes[len(text) > 4], "shares": np.array([1 - long, long], np.float32),
                                 "letters": np.array(letters, object), "codes": np.frombuffer(text, np.uint8).astype(np.int32)})

    def warm_up(self):
        pass
