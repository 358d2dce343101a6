"""What operators see of a server: Prometheus metrics, a log of requests as JSON lines, and an id on every request and answer."""

import asyncio
import itertools
import logging
import os
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol, TextIO

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from pipelines.serving.http.access import network
from pipelines.serving.http.refusals import Gone

ID = re.compile(rb"[\x21-\x7e]{1,128}")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # set before this is imported where several processes count together
TRACEBACKS = 60.0  # s between two tracebacks of defects in the log


@dataclass(slots=True)
class Exchange:
    """What is known of a request; handlers fill it in.

    Attributes:
        address: it came from; who: its client's name, where it has shown one.
        task: that answers it; gone: its client has left.
    """

    id: str
    address: str = ""
    route: str = ""
    model: str = ""
    version: str = ""
    inputs: int = 0
    error: str = ""
    who: str = ""
    trace: str = ""
    span: Any = None
    task: "asyncio.Task[Any] | None" = None
    gone: bool = False

    def leave(self) -> None:
        """Ends the answering: its client has left."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    @property
    def key(self) -> str:
        """The client, for what each may have."""
        return self.who or (network(self.address) if ":" in self.address else self.address)


class Recorder(Protocol):
    """What keeps a record of requests beside the log."""

    def write(self, exchange: Exchange, status: int | str, *, client: str, method: str, path: str) -> None: ...


class Tracer(Protocol):
    """What follows requests through the server; see tracing.Tracing, which needs an extra."""

    def begin(self, exchange: Exchange, headers: Mapping[str, str]) -> None: ...

    def end(self, exchange: Exchange, status: int | str, *, client: str, method: str, path: str) -> None: ...

    def here(self) -> Any: ...

    def span(self, name: str, parent: Any, began: float, seconds: float, **attributes: Any) -> Any: ...


class ModelMetrics:
    """The metrics of one model, whichever of its versions answers."""

    def __init__(self, observed: "Observed", model: str):
        self.batch = observed.batches.labels(model)
        self.waited = observed.waits.labels(model)
        self.answered, self.unreadable, self.failed, self.expired = (
            observed.inputs.labels(model, outcome) for outcome in ("answered", "unreadable", "failed", "expired"))
        self.tracing = observed.tracing
        self.watch_queue = partial(observed.watch_queue, observed.queues.labels(model))


class Observed:
    """An ASGI application watched: it counts, logs, and answers where the application fails. `draining`: every answer is its connection's
    last."""

    def __init__(self, app: Any = None, *, log: TextIO | None = None, audit: Recorder | None = None, tracing: Tracer | None = None):
        self.app, self.log, self.audit, self.tracing, self.draining = app, log, audit, tracing, False
        disable_created_metrics()  # a second series for each counter, which nobody asks for
        self.registry = CollectorRegistry()
        self.requests = Counter("quartet_requests", "Requests answered.", ["model", "route", "status"], registry=self.registry)
        self.seconds = Histogram("quartet_request_seconds", "Time from a request's head to the end of its answer.", ["model", "route"],
                                 buckets=SECONDS, registry=self.registry)
        self.inputs = Counter("quartet_inputs", "Inputs of requests, by what became of them.", ["model", "outcome"], registry=self.registry)
        self.batches = Histogram("quartet_batch_inputs", "Inputs answered together.", ["model"], buckets=SIZES, registry=self.registry)
        self.waits = Histogram("quartet_queue_seconds", "Time that an input waits for its batch.", ["model"], buckets=SECONDS,
                               registry=self.registry)
        self.queues = Gauge("quartet_queue_inputs", "Inputs that wait.", ["model"], registry=self.registry, multiprocess_mode="livesum")
        self.versions = Gauge("quartet_model_info", "1 for each version that answers.", ["model", "version", "task"],
                              registry=self.registry, multiprocess_mode="livemax")
        self.turned_away = Counter("quartet_refused", "Connections and requests ended before they reached the application.", ["reason"],
                                   registry=self.registry)
        self.running = Gauge("quartet_requests_in_flight", "Requests being received or answered.", registry=self.registry,
                             multiprocess_mode="livesum")
        self.open = Gauge("quartet_connections", "Open connections.", registry=self.registry, multiprocess_mode="livesum")
        self._measured: dict[Any, Callable[[], float]] = {self.running: lambda: self.in_flight}
        self._children: dict[tuple[str, str, int | str], tuple[Any, Any]] = {}
        self._ids, self._count_ids = uuid.uuid4().hex[:20], itertools.count()
        self.in_flight = 0
        self._traced = -TRACEBACKS

    def watch_connections(self, count: Callable[[], int]) -> None:
        self._measured[self.open] = count

    def watch_queue(self, queue: Any, waiting: Callable[[], int]) -> None:
        """The queue of the version that answers, a gauge's child: one model has one, whichever of its versions that is."""
        self._measured[queue] = waiting

    def measure(self) -> None:
        """Looks at what only has a value of the moment. Other workers' /metrics shows it, so that it is called every second."""
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
        """The metrics as Prometheus reads them, of all workers."""
        self.measure()
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = time.perf_counter()
        given = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
        exchange = self.identified(given)
        exchange.address = (scope.get("client") or ("", 0))[0]
        exchange.task = asyncio.current_task()
        if self.tracing is not None:
            self.tracing.begin(exchange, {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        scope["exchange"] = exchange
        status = 0

        async def observed_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                headers.append((b"x-request-id", exchange.id.encode()))
                if self.draining:
                    headers.append((b"connection", b"close"))
            await send(message)

        self.in_flight += 1
        try:
            await self.app(scope, receive, observed_send)
        except Gone:
            status = 499  # nginx's, for the log: nobody reads an answer
        except asyncio.CancelledError:
            status = 499 if exchange.gone else status or 503
        except Exception as error:
            exchange.error = f"{type(error).__name__}: {error}"
            self.defect(exchange.id)
            if not status:
                body = orjson.dumps({"error": f"the server failed; its log says why, under the request id {exchange.id}"})
                await observed_send({"type": "http.response.start", "status": 500, "headers": [
                    (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]})
                await send({"type": "http.response.body", "body": body})
        finally:
            self.in_flight -= 1
            self.count(exchange, status, time.perf_counter() - began, client=exchange.address, method=scope["method"],
                       path=scope["path"])

    def identified(self, given: bytes) -> Exchange:
        """A new request, under the id that its client gave it, or one of its own."""
        return Exchange(given.decode("ascii") if given and ID.fullmatch(given) else f"{self._ids}{next(self._count_ids):012x}")

    def count(self, exchange: Exchange, status: int | str, seconds: float, *, client: str, method: str, path: str) -> None:
        """A request that has ended, for the metrics and the log."""
        key = (exchange.model, exchange.route, status)
        children = self._children.get(key)
        if children is None:
            children = self.requests.labels(*key), self.seconds.labels(exchange.model, exchange.route)
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)
        if self.tracing is not None:
            self.tracing.end(exchange, status, client=client, method=method, path=path)
        if self.audit is not None:
            self.audit.write(exchange, status, client=client, method=method, path=path)
        if self.log is not None:
            line = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "id": exchange.id,
                    "client": client, "who": exchange.who, "method": method, "path": path, "status": status, "ms": round(1000 * seconds, 2),
                    "model": exchange.model, "version": exchange.version, "inputs": exchange.inputs}
            if exchange.trace:
                line["trace"] = exchange.trace
            if exchange.error:
                line["error"] = exchange.error[:1000]
            with suppress(OSError, ValueError):  # a log that nobody reads any more ends no answers
                self.log.write(orjson.dumps(line).decode() + "\n")
                self.log.flush()

    def defect(self, request: str) -> None:
        """A traceback in the log: of many like it only one a minute."""
        now = time.monotonic()
        last = "" if now - self._traced < TRACEBACKS else "".join(traceback.format_exception(*sys.exc_info())).rstrip()
        self._traced = now if last else self._traced
        logging.getLogger("quartet.serve").error("request %s failed%s", request, f":\n{last}" if last else "")
