"""`quartet serve`: a run behind HTTP, answered with the same functions as `predict`. Needs the extra `serve`."""

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.base.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.serving.answerer import Answerer

MEBI = 1 << 20
BACKLOG = 2048  # connections that may wait to be accepted, as uvicorn has it


@dataclass(frozen=True)
class Options:
    """Attributes:
    limit: bytes of a request.
    connections: open at the same time.
    delay: s that a batch which is not full waits for more.
    deadline: s that an input may wait for its batch.
    drain: s from SIGTERM to the end, at most.
    log: a line of JSON on standard output for each request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    limit: int = 64 * MEBI
    connections: int = 1024
    delay: float = 0.0
    deadline: float = 30.0
    drain: float = 30.0
    log: bool = False


def require_extra() -> None:
    """Raises ConfigError where the extra `serve` is not installed."""
    try:
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import starlette.routing  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"quartet serve needs the extra: pip install 'keras-quartet[serve]' ({error})") from error


def serve(model: "Answerer", options: Options, *, say: Callable[[str], None]) -> None:
    """Answers until a signal comes. `say` gets the address once the server is warm; port 0 takes any.

    Raises:
        ConfigError: the port is in use, the address is not of this machine, or the extra `serve` is not installed.
    """
    require_extra()
    from pipelines.serving.http.app import make_app
    from pipelines.serving.http.connections import Bounds, Server
    from pipelines.serving.http.hosting import Hosted
    from pipelines.serving.http.observing import Observed

    with _refusal(options.host, options.port):
        bound = bind(options.host, options.port)
    with bound:
        model.warm_up()
        observed = Observed(log=sys.stdout if options.log else None)
        hosted = Hosted(model.title, 1, model, observed, delay=options.delay, deadline=options.deadline)
        observed.versions.labels(hosted.name, hosted.version, model.task).set(1)
        server = Server(make_app(hosted, observed, limit=options.limit), observed,
                        Bounds(options.connections, options.limit, options.drain))
        with _refusal(options.host, options.port):
            bound.listen(BACKLOG)
        name = f"[{options.host}]" if ":" in options.host else options.host
        say(f"serving      http://{name}:{bound.getsockname()[1]}")
        gc.collect()
        gc.freeze()  # what is there now stays: no collection has to look at it again
        server.run(sockets=[bound])


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, which does not listen yet; port 0 takes a free one.

    Answers go out at once: asyncio switches Nagle's algorithm off only for a socket that names its protocol, which socket.create_server
    leaves out, and then a small answer waits for the client's delayed acknowledgement, some 40 ms.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


@contextmanager
def _refusal(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port}: {error.strerror or error}; name another") from None
