"""The contract test of what an extension adds to servers: `quartet.testing.check_protocol`. Needs the extra `serve`."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.doors import PROTOCOLS
from pipelines.serving.answerer import Answerer
from pipelines.serving.options import Options
from pipelines.serving.output import Prediction
from pipelines.serving.protocol import ServerProtocol
from pipelines.serving.server import bind
from pipelines.task.form import Field, fields_of

BROKEN = (b"", b"{", b"null", b'{"inputs": 1}', b'{"inputs": [[[]]]}', b"[" * 100_000, bytes(range(256)))


def check_protocol(protocol: type[ServerProtocol], headers: dict[str, str] | None = None) -> None:
    """Asks a server of a model that doubles numbers without and with a protocol, sends its routes what is broken, and ends it.

    Args:
        protocol: registered already.
        headers: of each request, where the protocol asks for some.

    Raises:
        AssertionError: it changes what /predict answers, answers something broken with a status of 500 or not at all, or does not end.
    """
    name = protocol.__name__
    assert any(entry.load() is protocol for entry in PROTOCOLS.entries()), f"{name} is not registered"
    body = json.dumps({"inputs": [1, 2.5, "three"]}).encode()
    with _running([]) as (port, _):
        plain = ask(port, "POST", "/predict", body)
    with _running([protocol()]) as (port, routes):
        assert ask(port, "POST", "/predict", body, headers) == plain, f"{name} changes what /predict answers"
        for path, methods in routes:
            for method in methods:
                for sent in BROKEN:
                    status, _ = ask(port, method, path.format(model="doubling", version=1), sent, headers)
                    assert 100 <= status != 500, f"{name}: {method} {path} fails with what is broken"
        assert ask(port, "GET", "/health/live", b"", headers)[0] == 200, f"{name}: the server does not live on"


class _Doubling:
    """A model that takes no time, as `pipelines.serving.answerer.Answerer` says."""

    title, task, batch = "check/doubling", "check.doubling", 4
    inputs, outputs = {"x": tf.TensorSpec([None], tf.float32)}, {"doubled": tf.TensorSpec([None], tf.float32)}
    columns = {"doubled": 1}
    form: Sequence[Field] = fields_of(inputs, {})
    classes: list[str] | None = None
    sends, decodes = "a number", False
    meanings: Mapping[str, str] = {}
    kinds: Mapping[str, str] = {}
    details: Sequence[str] = ()
    ranked: Sequence[str] = ()

    def take(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, bool) or not isinstance(sent, (int, float)):
            raise DataError("send a number")
        return {"x": float(sent)}

    def large(self, row: dict[str, Any]) -> bool:
        return False

    def heavy(self, sent: bytes) -> bool:
        return False

    def together(self, read: list[Any]) -> list[Prediction]:
        return [Prediction(name, {"doubled": 2 * row["x"]}) for name, row in read]

    def warm_up(self) -> None:
        """It is warm."""


@contextmanager
def _running(protocols: list[ServerProtocol], model: Answerer | None = None) -> Iterator[tuple[int, list[tuple[str, list[str]]]]]:
    """The port of a server in a thread, and the paths of its routes with their methods."""
    from pipelines.serving.http.app import Server, make_site

    options = Options(limit=1 << 20, drain=5.0)
    for protocol in protocols:
        options = protocol.prepare(options)
    site = make_site(options, [], lambda folder: _Doubling(), print)
    site.models.add("doubling", 1, model or _Doubling())
    started = threading.Event()
    server = Server(site, protocols, started.set)
    with bind("127.0.0.1", 0) as bound:
        bound.listen()
        thread = threading.Thread(target=asyncio.run, args=(server.serve([bound]),), daemon=True)
        thread.start()
        assert started.wait(60), "the server does not start"
        try:
            yield bound.getsockname()[1], [(one.path, sorted(one.methods or ())) for one in site.routes]
        finally:
            server.should_exit = True
            thread.join(options.drain + 30)
        assert not thread.is_alive(), "the server does not end"


@contextmanager
def serving(model: Answerer) -> Iterator[int]:
    """The port of a server of a model."""
    with _running([], model) as (port, _):
        yield port


def ask(port: int, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """(status, body) of a request to a server here."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", "Connection": "close"} | (headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
