"""What operators see of a server: Prometheus metrics, an id on every request and answer, and recorders that hear of each request."""

import asyncio
import itertools
import logging
import os
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from pipelines.serving.http.bodies import Gone

ID = re.compile(rb"[\x21-\x7e]{1,128}")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # Prometheus' own: set before this is imported where several processes count together
TRACEBACKS = 60.0  # s between two tracebacks of defects in the log
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Exchange:
    """What is known of a request; handlers fill it in.

    Attributes:
        method, path: of HTTP; of a remote call `RPC` and its name.
        address: where it came from.
        client: who counts as one client, by default an address.
        who: the client's name, where it has shown one.
        parts: times of what happened to its inputs, where a recorder asks for them: (name, began, ended, attributes), by time.monotonic.
        note: a recorder's own.
        task: that answers it.
        gone: its client has left.
    """

    id: str = ""
    method: str = ""
    path: str = ""
    address: str = ""
    client: str = ""
    route: str = ""
    model: str = ""
    version: str = ""
    inputs: int = 0
    error: str = ""
    who: str = ""
    trace: str = ""
    parts: list[tuple[str, float, float, dict[str, int]]] | None = None
    note: Any = None
    task: "asyncio.Task[Any] | None" = None
    gone: bool = False

    def leave(self) -> None:
        """Ends the answering: its client has left."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()


class Recorder:
    """Hears of each request, such as a log."""

    def begin(self, exchange: Exchange, headers: Headers) -> None:
        """A request has come."""

    def end(self, exchange: Exchange, status: int | str, seconds: float) -> None:
        """It has ended. `status`: of HTTP, or the name that another protocol has for it."""


class ModelMetrics:
    """The metrics of one model, whichever of its versions answers."""

    def __init__(self, observed: "Observed", model: str):
        self.batch = observed.batches.labels(model)
        self.waited = observed.waits.labels(model)
        self.answered, self.unreadable, self.failed, self.expired = (
            observed.inputs.labels(model, outcome) for outcome in ("answered", "unreadable", "failed", "expired"))
        self.watch_queue = partial(observed.watch, observed.queues.labels(model))


class Observed:
    """An ASGI application watched: it counts, and answers where the application fails. `draining`: every answer is its connection's last.

    Args:
        most: requests at the same time; more are told to come again.
    """

    def __init__(self, most: int = 1 << 30):
        self.app: Any = None
        self.most, self.draining, self.in_flight = most, False, 0
        self.recorders: list[Recorder] = []
        disable_created_metrics()  # a second series for each counter, which nobody asks for
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("quartet_requests", "Requests answered.", ["model", "route", "status"], registry=registry)
        self.seconds = Histogram("quartet_request_seconds", "Time from a request's head to the end of its answer.", ["model", "route"],
                                 buckets=SECONDS, registry=registry)
        self.inputs = Counter("quartet_inputs", "Inputs of requests, by what became of them.", ["model", "outcome"], registry=registry)
        self.batches = Histogram("quartet_batch_inputs", "Inputs answered together.", ["model"], buckets=SIZES, registry=registry)
        self.waits = Histogram("quartet_queue_seconds", "Time that an input waits for its batch.", ["model"], buckets=SECONDS,
                               registry=registry)
        self.queues = Gauge("quartet_queue_inputs", "Inputs that wait.", ["model"], registry=registry, multiprocess_mode="livesum")
        self.versions = Gauge("quartet_model_info", "1 for each version that answers.", ["model", "version", "task"],
                              registry=registry, multiprocess_mode="livemax")
        self.turned_away = Counter("quartet_refused", "Connections and requests ended before they reached the application.", ["reason"],
                                   registry=registry)
        self.running = Gauge("quartet_requests_in_flight", "Requests being received or answered.", registry=registry,
                             multiprocess_mode="livesum")
        self.open = Gauge("quartet_connections", "Open connections.", registry=registry, multiprocess_mode="livesum")
        self._measured: dict[Any, Callable[[], float]] = {self.running: lambda: self.in_flight}
        self._children: dict[tuple[str, str, int | str], tuple[Any, Any]] = {}
        self._ids, self._count_ids = uuid.uuid4().hex[:20], itertools.count()
        self._traced = -TRACEBACKS

    def watch(self, gauge: Any, value: Callable[[], float]) -> None:
        """A gauge that only has a value of the moment; of a queue, that of the version that answers."""
        self._measured[gauge] = value

    def measure(self) -> None:
        """Looks at what only has a value of the moment. Other processes' /metrics shows it, so that it is called every second."""
        for gauge, value in self._measured.items():
            gauge.set(value())

    def ended(self, model: str, version: int, task: str) -> None:
        """A version that answers no longer."""
        if MULTIPROCESS in os.environ:  # where labels cannot be removed
            self.versions.labels(model, version, task).set(0)
        else:
            self.versions.remove(model, version, task)

    def refused(self, reason: str) -> None:
        self.turned_away.labels(reason).inc()

    def text(self) -> bytes:
        """The metrics as Prometheus reads them, of all processes."""
        self.measure()
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = scope["headers"]
        exchange = self.begin(headers, method=scope["method"], path=scope["path"], address=(scope.get("client") or ("", 0))[0])
        exchange.task = asyncio.current_task()
        scope["exchange"] = exchange
        began, status = time.perf_counter(), 0

        async def observed_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", exchange.id.encode()))
                if self.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            if self.in_flight > self.most:
                self.refused("connections")
                await answer_error(observed_send, 503, "too many connections are open; try again in a second", retry=1, close=True)
            else:
                await self.app(scope, receive, observed_send)
        except Gone:
            status = 499  # nginx's, for the log: nobody reads an answer
        except asyncio.CancelledError:
            status = 499 if exchange.gone else status or 503
        except Exception as error:
            exchange.error = f"{type(error).__name__}: {error}"
            self.defect(exchange.id)
            if not status:
                await answer_error(observed_send, 500, failed(exchange))
        finally:
            self.end(exchange, status, time.perf_counter() - began)

    def begin(self, headers: Headers, *, method: str, path: str, address: str) -> Exchange:
        """A new request, under the id that its client gave it, or one of its own. `end` follows."""
        given = b""
        for name, value in headers:
            if name == b"x-request-id":
                given = value
        own = given.decode("ascii") if given and ID.fullmatch(given) else f"{self._ids}{next(self._count_ids):012x}"
        exchange = Exchange(own, method, path, address, address)
        self.in_flight += 1
        for recorder in self.recorders:
            recorder.begin(exchange, headers)
        return exchange

    def end(self, exchange: Exchange, status: int | str, seconds: float) -> None:
        """A request that has ended, for the metrics and the recorders."""
        self.in_flight -= 1
        key = (exchange.model, exchange.route, status)
        children = self._children.get(key)
        if children is None:
            children = self.requests.labels(*key), self.seconds.labels(exchange.model, exchange.route)
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)
        for recorder in self.recorders:
            recorder.end(exchange, status, seconds)

    def defect(self, request: str) -> None:
        """A traceback in the log: of many like it only one a minute."""
        now = time.monotonic()
        last = "" if now - self._traced < TRACEBACKS else "".join(traceback.format_exception(*sys.exc_info())).rstrip()
        self._traced = now if last else self._traced
        logging.getLogger("quartet.serve").error("request %s failed%s", request, f":\n{last}" if last else "")


def failed(exchange: Exchange) -> str:
    """What the client is told of a defect."""
    return f"the server failed; its log says why, under the request id {exchange.id}"


async def answer_error(send: Any, status: int, message: str, *, retry: int | None = None, close: bool = False,
                       challenge: bytes = b"") -> None:
    """An error as JSON, over ASGI.

    Args:
        retry: seconds after which the client may try again.
        close: it is the connection's last answer.
        challenge: how a client may say who it is.
    """
    body = orjson.dumps({"error": message})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry is not None:
        headers.append((b"retry-after", str(retry).encode()))
    if close:
        headers.append((b"connection", b"close"))
    if challenge:
        headers.append((b"www-authenticate", challenge))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
