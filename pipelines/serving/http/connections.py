"""uvicorn's HTTP/1.1 connections with what it leaves open: a bound on their number, on the bytes of a head, and on the time that a client
may take to send and to receive; and an end on SIGTERM within a stated time, which loses no answer."""

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.serving.http.models import Watch
from pipelines.serving.http.observing import Observed

HEAD_BYTES = 64 << 10  # of a request's line and headers
HEAD_SECONDS = 10.0  # for a request's line and headers
WINDOW = 10.0  # s in which a body must grow by RATE bytes/s
RATE = 16 << 10
STALLED = 30.0  # s that a client may leave its answer unread
KEPT = 75  # s that a connection is kept for the next request, as nginx does
GRACE = 1.0  # s after SIGTERM in which clients still get answers on connections that they keep, with Connection: close
SPARE = 64  # descriptors left for everything that is no connection; and connections over the limit that are told so
PHRASES = {400: "Bad Request", 408: "Request Timeout", 413: "Content Too Large", 431: "Request Header Fields Too Large"}


@dataclass(frozen=True)
class Bounds:
    """Attributes:
    connections: open at the same time.
    body: bytes of a request.
    drain: seconds from SIGTERM to the end.
    """

    connections: int = 1024
    body: int = 64 << 20
    drain: float = 30.0


class Joined:
    """A transport that sends the head of an answer with what follows it: one packet, and one call, in place of two."""

    def __init__(self, transport: Any):
        self._transport, self._head = transport, b""
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info

    def write(self, data: bytes) -> None:
        if not self._head and data.endswith(b"\r\n\r\n") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
        elif data or self._head:
            self._transport.write(self._head + data)
            self._head = b""

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """A connection of one client. `since` is when the present wait for it began; its bytes are counted from the request's first."""

    bounds = Bounds()
    observed: Observed

    def connection_made(self, transport: Any) -> None:
        self.since = self.window = time.monotonic()
        self.received = self.counted = 0
        self.reading = self.begun = self.in_body = self.half_closed = False
        self.paused_since: float | None = None
        self.closing_since: float | None = None
        self.joined = Joined(transport)
        self.certified = common_name(transport.get_extra_info("peercert"))
        over = len(self.connections) - self.bounds.connections
        super().connection_made(transport)
        if over >= 0 and not self._evict_another():
            if over >= SPARE:
                self.transport.abort()
            self.app = _full
            self.observed.refused("connections")

    def _evict_another(self) -> bool:
        """Closes the connection that has been without a request for longest; False where all have one."""
        idle = [one for one in self.connections if one is not self and isinstance(one, Connection) and one.idle]
        if not idle:
            return False
        min(idle, key=lambda one: one.since).transport.close()
        self.observed.refused("idle")
        return True

    @property
    def idle(self) -> bool:
        """No request is complete enough to be answered, and none is being answered."""
        return (self.cycle is None or self.cycle.response_complete) and not self.in_body and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if not self.reading:
            self.reading, self.since, self.received = True, time.monotonic(), 0
        self.received += len(data)
        super().data_received(data)
        if self.reading and not self.transport.is_closing():
            if not self.in_body and self.received > HEAD_BYTES:
                self.refuse(431, f"the request's line and headers have over {HEAD_BYTES >> 10} KiB")
            elif self.received > 2 * self.bounds.body + HEAD_BYTES:  # the body's own limit is checked where it is read
                self.refuse(413, f"the request has over {self.bounds.body >> 20:,} MiB")

    def on_message_begin(self) -> None:
        self.reading, self.begun, self.in_body = True, True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.certified:
            self.scope["certified"] = self.certified  # type: ignore[typeddict-unknown-key]
        self.in_body, self.since, self.received, self.counted = True, time.monotonic(), 0, 0
        self.window = self.since
        super().on_headers_complete()
        if self.cycle is not None:
            self.cycle.transport = self.joined  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self.reading = self.begun = self.in_body = False
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has sent all it will send still reads its answers (RFC 9112, 9.6); what it has not sent whole is refused."""
        answering = self.cycle is not None and not self.cycle.response_complete
        self.half_closed = answering and (not self.in_body or bool(self.pipeline))
        if self.begun and not self.half_closed:
            self.refuse(400, "the request breaks off")
        return self.half_closed

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody reads the answer any more: what is not computed yet is left out."""
        exchange: Any = None if self.cycle is None or self.cycle.response_complete else self.cycle.scope.get("exchange")
        super().connection_lost(exc)
        if exchange is not None:
            exchange.leave()

    def on_response_complete(self) -> None:
        """As uvicorn's, but for a timer: `check` ends connections that are kept for too long."""
        self.since = time.monotonic()
        self.joined.flush()
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        last = self.cycle.response_complete
        if self.half_closed and self.begun and (not self.in_body if last else self.in_body and not self.pipeline):
            self.refuse(400, "the request breaks off")
        elif last and (self.in_body or self.half_closed):  # the rest of a body is not waited for
            self.transport.close()

    def pause_writing(self) -> None:
        self.paused_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.paused_since = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Ends a wait that is too long."""
        if self.transport.is_closing():
            self.closing_since = self.closing_since or now
            if now - self.closing_since > STALLED:
                self.transport.abort()
        elif self.paused_since is not None:
            if now - self.paused_since > STALLED:
                self.observed.refused("unread")
                self.transport.abort()
        elif self.flow.read_paused:  # the wait is the server's
            self.since = self.window = now
        elif self.in_body:
            if now - self.window > WINDOW:
                if self.received - self.counted < RATE * WINDOW:
                    self.refuse(408, f"the request's body comes slower than {RATE >> 10} KiB/s")
                self.window, self.counted = now, self.received
        elif self.reading:
            if now - self.since > HEAD_SECONDS:
                self.refuse(408, f"the request's line and headers are not complete after {HEAD_SECONDS:.0f} s")
        elif self.idle and now - self.since > (HEAD_SECONDS if self.cycle is None else KEPT):
            self.transport.close()

    def refuse(self, status: int, message: str) -> None:
        """Answers in place of the application, where it has not begun to, and closes the connection."""
        self.observed.refused(str(status))
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": message}).encode()
            self.transport.write(b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
                                 % (status, PHRASES[status].encode(), len(body), body))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def common_name(certificate: dict[str, Any] | None) -> str:
    """The name that the client's certificate was made out to, as Python's ssl gives it; empty without one."""
    parts = (certificate or {}).get("subject", ())
    return next((value for part in parts for name, value in part if name == "commonName"), "")


async def _full(scope: Any, receive: Any, send: Any) -> None:
    body = b'{"error": "too many connections are open; try again in a second"}'
    await send({"type": "http.response.start", "status": 503, "headers": [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close"),
        (b"retry-after", b"1")]})
    await send({"type": "http.response.body", "body": body})


class Beside(Protocol):
    """Another protocol's server in the same loop."""

    async def start(self) -> None: ...

    async def stop(self, seconds: float) -> None:
        """Ends within that time."""


@dataclass(frozen=True)
class Tls:
    """The server's certificate and key, PEM, and the authorities of its clients' certificates, which are asked for where given."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def options(self) -> dict[str, Any]:
        """As uvicorn takes them."""
        asked = {} if self.client_ca is None else {"ssl_ca_certs": str(self.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key), **asked}


class Server(uvicorn.Server):
    """uvicorn's server, which also ends waits and ends itself as above."""

    def __init__(self, app: Any, observed: Observed, bounds: Bounds, watches: Sequence[Watch] = (), *, beside: Sequence[Beside] = (),
                 started: Callable[[], None] = lambda: None, tls: Tls | None = None):
        """
        Args:
            beside: servers that start and end with this one.
            started: called once all of them take requests.
        """
        bounds = Bounds(_affordable(bounds.connections), bounds.body, bounds.drain)
        kind = type("BoundConnection", (Connection,), {"bounds": bounds, "observed": observed})
        super().__init__(uvicorn.Config(
            app, http=kind, ws="none", lifespan="off", log_level="error", access_log=False, proxy_headers=False, server_header=False,
            **(tls.options() if tls else {})))
        self.bounds, self.observed, self.watches, self.beside, self.started_all = bounds, observed, watches, beside, started
        observed.watch_connections(lambda: len(self.server_state.connections))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets if not self.config.is_ssl else [])
        if self.config.is_ssl:  # uvicorn leaves a silent client a minute for the handshake
            for sock in sockets or []:
                self.servers.append(await asyncio.get_running_loop().create_server(
                    self._connection, sock=sock, ssl=self.config.ssl, ssl_handshake_timeout=HEAD_SECONDS, backlog=self.config.backlog))
        for other in self.beside:
            await other.start()
        for one in self.watches:
            one.start(asyncio.get_running_loop())
        self.started_all()

    def _connection(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._check()
            self.observed.measure()
        return await super().on_tick(counter)

    def _check(self) -> None:
        now = time.monotonic()
        for one in list(self.server_state.connections):
            one.check(now)  # type: ignore[union-attr]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what has been asked: on connections that are kept, the next answer says that it is the last."""
        self.observed.draining = True
        for watch in self.watches:
            watch.stop()
        others = [asyncio.ensure_future(other.stop(self.bounds.drain)) for other in self.beside]
        began = time.monotonic()
        open_connections: Any = self.server_state.connections
        while (passed := time.monotonic() - began) < self.bounds.drain and not self.force_exit:
            if passed > GRACE:
                for server in self.servers:
                    server.close()
                for one in list(open_connections):
                    if one.idle:
                        one.transport.close()
            if not open_connections and not self.server_state.tasks:
                break
            await asyncio.sleep(0.05)
            self._check()
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        for one in list(open_connections):
            one.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.gather(asyncio.sleep(0), *others)


def _affordable(wanted: int) -> int:
    """As many connections as wanted, or as the process may have descriptors for."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else SPARE
    need = wanted + used + 2 * SPARE
    if soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - used - 2 * SPARE))
