"""An end for clients that are slow: bounds on the number of connections, on the bytes and seconds of a head, and on the time that an
answer may stay unread.

uvicorn bounds none of these: silent connections up to its limit shut everybody out (tests/test_connections.py). A reverse proxy bounds
them (docs/serving.md); this is for servers that have none before them. It stands between asyncio and uvicorn's protocol and uses
what asyncio documents alone: it counts a connection's bytes, and hears from the application when a request is being answered.
"""

import asyncio
import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

from extensions.gateway.options import chosen
from pipelines.serving.http.observing import Exchange
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site

HEAD_BYTES = 64 << 10  # of a request's line and headers
HEAD_SECONDS = 10.0  # for a request's line and headers
WINDOW = 10.0  # s in which a body must grow by RATE bytes/s
RATE = 16 << 10
STALLED = 30.0  # s that a client may leave its answer unread
LOOK = 0.5  # s between two looks at all connections
SPARE = 256  # descriptors left for everything that is no connection
PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class SlowClients(ServerProtocol):
    """Ends the connections of clients that take too long."""

    def prepare(self, options: Options) -> Options:
        self.connections: dict[tuple[str, int], Connection] = {}  # by the client's address
        self.most = affordable(chosen().connections)
        return replace(options, connections=self.most, uvicorn={**options.uvicorn, "http": partial(Connection, self)})

    def wrap(self, app: Any, site: Site) -> Any:
        self.observed = site.observed

        async def asked(scope: Any, receive: Any, send: Any) -> None:
            connection = self.connections.get(tuple(scope.get("client") or ()))
            if connection is None:
                return await app(scope, receive, send)

            async def received() -> Any:
                event = await receive()
                connection.whole = not event.get("more_body", False)
                return event

            scope["certified"] = connection.certified
            connection.begin(scope["exchange"])
            try:
                await app(scope, received, send)
            finally:
                connection.end()

        return asked

    async def start(self, site: Site) -> None:
        self._looking = asyncio.create_task(self._look())

    def close(self) -> None:
        self._looking.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            for one in list(self.connections.values()):
                one.check(now)

    def make_room(self, new: "Connection") -> None:
        """Closes the connection that has been without a request for longest, where there are too many."""
        if len(self.connections) > self.most:
            idle = [one for one in self.connections.values() if one.exchange is None and one is not new and not one.transport.is_closing()]
            if idle:
                min(idle, key=lambda one: one.since).transport.close()
                self.observed.refused("idle")


class Connection(asyncio.Protocol):
    """A connection of one client, in front of uvicorn's protocol for it. `since` is when the present wait for the client began."""

    def __init__(self, clients: SlowClients, **settings: Any):
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        self.clients, self.inner = clients, AutoHTTPProtocol(**settings)
        self.loop = asyncio.get_running_loop()
        self.since = time.monotonic()
        self.received = self.counted = 0  # bytes since the last answer; of them those before `since`
        self.exchange: Exchange | None = None  # the request that is being answered
        self.whole = True  # all of it has come
        self.answered = self.ended = False  # a request before; the client has sent all that it will send
        self.unread_since: float | None = None
        self.closing_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.client = (str(host), int(port))
        self.certified = common_name(transport.get_extra_info("peercert"))
        self.clients.connections[self.client] = self
        self.clients.make_room(self)
        self.inner.connection_made(transport)

    def begin(self, exchange: Exchange) -> None:
        """The application has a request."""
        self.exchange, self.whole, self.since, self.counted = exchange, False, time.monotonic(), self.received
        if self.ended:
            self.loop.call_soon(self._end_unless_answering)

    def end(self) -> None:
        """It has answered it."""
        self.exchange, self.answered, self.since, self.received = None, True, time.monotonic(), 0
        if self.ended:
            self.loop.call_soon(self._end_unless_answering)

    def data_received(self, data: bytes) -> None:
        if not self.received:
            self.since = time.monotonic()
        self.received += len(data if self.received else data.lstrip(b"\r\n"))  # some clients end a line behind a body
        self.inner.data_received(data)
        if self.received > HEAD_BYTES and self.exchange is None:
            self.loop.call_soon(self._check_head)  # once the application has begun with a request whose head is whole

    def eof_received(self) -> bool:
        """A client that has sent all it will send still reads its answers (RFC 9112, 9.6); over TLS asyncio cannot wait for it."""
        self.ended = True
        self.loop.call_soon(self._end_unless_answering)
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody reads the answer any more: what is not computed yet is left out."""
        if self.clients.connections.get(self.client) is self:
            del self.clients.connections[self.client]
        self.inner.connection_lost(exc)
        if self.exchange is not None:
            self.exchange.leave()

    def pause_writing(self) -> None:
        self.unread_since = time.monotonic()
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.unread_since = None
        self.inner.resume_writing()

    def check(self, now: float) -> None:
        """Ends a wait that is too long."""
        if self.transport.is_closing():
            self.closing_since = self.closing_since or now
            if now - self.closing_since > STALLED:
                self.transport.abort()
        elif self.unread_since is not None:
            if now - self.unread_since > STALLED:
                self.clients.observed.refused("unread")
                self.transport.abort()
        elif self.exchange is not None:
            if not self.whole and now - self.since > WINDOW:
                if self.received - self.counted < RATE * WINDOW:
                    self.refuse(408, f"the request's body comes slower than {RATE >> 10} KiB/s")
                self.since, self.counted = now, self.received
        elif now - self.since > HEAD_SECONDS:
            if self.received:
                self.refuse(408, f"the request's line and headers are not complete after {HEAD_SECONDS:.0f} s")
            elif not self.answered:
                self.transport.close()

    def _check_head(self) -> None:
        if self.exchange is None and self.received > HEAD_BYTES:
            self.refuse(431, f"the request's line and headers have over {HEAD_BYTES >> 10} KiB")

    def _end_unless_answering(self) -> None:
        if (self.received if self.exchange is None else not self.whole):
            self.refuse(400, "the request breaks off")
        elif self.exchange is None:
            self.transport.close()

    def refuse(self, status: int, message: str) -> None:
        """Answers in place of the application, and closes the connection."""
        if not self.transport.is_closing():
            self.clients.observed.refused(str(status))
            body = json.dumps({"error": message}).encode()
            self.transport.write(b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
                                 % (status, PHRASES[status].encode(), len(body), body))
            self.transport.close()


def common_name(certificate: dict[str, Any] | None) -> str:
    """The name that the client's certificate was made out to, as Python's ssl gives it; empty without one."""
    parts = (certificate or {}).get("subject", ())
    return next((value for part in parts for name, value in part if name == "commonName"), "")


def affordable(wanted: int) -> int:
    """As many connections as wanted, or as the process may have descriptors for."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = wanted + SPARE if hard == resource.RLIM_INFINITY else min(wanted + SPARE, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), hard))
    return max(1, most - SPARE)
