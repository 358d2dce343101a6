"""Who may ask, and how often, before anything of a request is read: tokens, and a rate by client. Of HTTP an ASGI application around
another one; gRPC asks `admit`, too."""

import base64
import binascii
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from extensions.gateway.options import ServeOptions
from extensions.gateway.tokens import Tokens
from pipelines.serving.http.bodies import Refused
from pipelines.serving.http.observing import Exchange, answer_error

HEALTH = {"/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"}  # probes have no token
CLIENTS = 10_000  # whose rate is known at the same time
BURST = 2.0  # s of the rate that may come at once


class Unknown(Refused):
    """The client has shown no token that counts."""

    def __init__(self) -> None:
        super().__init__("a token is needed: Authorization: Bearer TOKEN", status=401)


class Rate:
    """Requests that each client may still send: BURST seconds of its rate at once, at least one, then the rate."""

    def __init__(self, rate: float, *, now: Callable[[], float] = time.monotonic):
        self._rate, self._most, self._now = rate, max(1.0, BURST * rate), now
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> (requests left, when); the latest last

    def take(self, client: str) -> None:
        """Raises Refused where the client has to wait."""
        now = self._now()
        left, since = self._clients.pop(client, (self._most, now))
        left = min(self._most, left + (now - since) * self._rate)
        enough = left >= 1.0
        self._clients[client] = (left - 1.0 if enough else left, now)
        while len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        if not enough:
            raise Refused(f"over {self._rate:g} requests a second", status=429, retry=max(1, math.ceil((1.0 - left) / self._rate)))


class Access:
    """The rules of a server."""

    def __init__(self, *, tokens: Tokens | None = None, rate: Rate | None = None):
        self._tokens, self._rate = tokens, rate

    def admit(self, exchange: Exchange, authorization: bytes, certified: str = "") -> None:
        """Notes who asks: the token's name, else the name in the client's certificate, else nobody by name.

        A client without a valid token counts by its address, so that tokens cannot be guessed faster than the rate.

        Args:
            authorization: the header of that name.
            certified: the name in the certificate that the client has shown.

        Raises:
            Refused: 401 without a token that counts, 429 too soon.
        """
        name: str | None = None
        if self._tokens is not None:
            token = token_of(authorization)
            name = self._tokens.name(token) if token else None
        who = name or certified
        exchange.client = f"name {who}" if who else network(exchange.address)
        if self._rate is not None:
            self._rate.take(exchange.client)
        if self._tokens is not None and name is None:
            raise Unknown
        exchange.who = who


def access_of(asked: ServeOptions) -> Access:
    """As the command line says. Raises ConfigError where the file of tokens cannot be used."""
    return Access(tokens=Tokens(asked.tokens) if asked.tokens else None, rate=Rate(asked.rate) if asked.rate else None)


class Guarded:
    """An ASGI application that asks another one only for clients who may."""

    def __init__(self, app: Any, access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] not in HEALTH or scope["method"] not in ("GET", "HEAD"):
            exchange = scope["exchange"]
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            try:
                self.access.admit(exchange, given[0] if len(given) == 1 else b"", scope.get("certified", ""))
            except Refused as error:
                exchange.error = str(error)
                return await answer_error(send, error.status, str(error), retry=error.retry,
                                          challenge=b'Bearer realm="quartet", Basic realm="quartet"' if error.status == 401 else b"")
        await self.app(scope, receive, send)


def token_of(authorization: bytes) -> bytes:
    """The token of `Bearer TOKEN`, or the password of `Basic`, which is what a browser asks a person for; empty where there is none."""
    scheme, _, shown = authorization.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return shown.strip()
    if scheme.lower() == b"basic":
        with suppress(binascii.Error):
            return base64.b64decode(shown.strip(), validate=True).partition(b":")[2]
    return b""


def network(address: str) -> str:
    """An address as it counts for one client: of IPv6 the network of 64 bits, which one client has to itself."""
    if ":" not in address:
        return address
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False))
