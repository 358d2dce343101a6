"""`quartet serve`: runs and exported models behind HTTP, answered with the same functions as `predict`. Needs the extra `serve`."""

import gc
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.errors import ConfigError
from pipelines.serving import apart
from pipelines.serving.guards import Guards
from pipelines.serving.workers import Worker, require_workers, supervise

if TYPE_CHECKING:
    from pipelines.serving.answerer import Answerer

MEBI = 1 << 20
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # of a model, in addresses
BACKLOG = 2048  # connections that may wait to be accepted, as uvicorn has it


@dataclass(frozen=True)
class Options:
    """Attributes:
    limit: bytes of a request.
    connections: open at the same time.
    delay: s that a batch which is not full waits for more.
    deadline: s that an input may wait for its batch.
    each: inputs of one client that may wait for a model; None: as many as of all.
    long: s that an input which is large by its header may take, in a process of its own.
    drain: s from SIGTERM to the end, at most.
    log: a line of JSON on standard output for each request.
    versions: newest versions of a model that answer.
    grpc: where gRPC listens; 0: a free port; None: nowhere.
    guards: who may ask, how often, over what.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    limit: int = 64 * MEBI
    connections: int = 1024
    delay: float = 0.0
    deadline: float = 30.0
    each: int | None = None
    long: float = apart.SECONDS
    drain: float = 30.0
    log: bool = False
    versions: int = 1
    grpc: int | None = None
    guards: Guards = field(default_factory=Guards)


def require_extra(grpc: bool = False) -> None:
    """Raises ConfigError where the extra `serve` is not installed, or `grpc` where that is wanted."""
    try:
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import starlette.routing  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"quartet serve needs the extra: pip install 'keras-quartet[serve]' ({error})") from error
    if grpc and not all(find_spec(name) for name in ("grpc", "tritonclient", "tensorflow_serving")):
        raise ConfigError("--grpc needs the extra: pip install 'keras-quartet[serve,grpc]'")


@dataclass(frozen=True)
class Source:
    """A model as it was named on the command line.

    Attributes:
        folder: of a run, of an exported model, or of versions of either, which is watched for new ones.
    """

    name: str
    folder: Path
    watched: bool


def source(given: str, find: Callable[[str], Path]) -> Source:
    """From [NAME=]RUN|EXPORT|FOLDER; without a name, the experiment's or the folder's.

    Args:
        find: the folder of a run that a person names. Raises ConfigError.

    Raises:
        ConfigError: there is no such thing, or the name is none for an address.
    """
    name, equals, place = given.partition("=")
    if not equals:
        name, place = "", given
    path = Path(place).expanduser()
    if any((path / name).is_file() for name in ("saved_model.pb", "manifest.json")):
        folder, watched, usual = path, False, path.absolute().name
        if usual == "export" or usual.startswith("export-") or usual.isdecimal():
            usual = path.absolute().parent.name
    elif path.is_dir() and any(one.name.isdecimal() and one.is_dir() for one in path.iterdir()):
        folder, watched, usual = path, True, path.absolute().name
    else:
        folder, watched = find(place), False
        usual = folder.absolute().parent.name
    if not NAME.fullmatch(name or usual):
        raise ConfigError(f"{given}: {name or usual!r} is no name for a model; give one of letters, digits, _ . and -, as NAME={place}")
    return Source(name or usual, folder, watched)


def serve(sources: "list[Source]", load: "Callable[[Path], Answerer]", options: Options, *, say: Callable[[str], None]) -> None:
    """Answers until a signal comes. `say` gets the address once the server is warm; port 0 takes any.

    Args:
        sources: the models; the first answers where a request names none.
        load: a run or an exported model; raises ConfigError.

    Raises:
        ConfigError: other machines could ask, and nothing says who may; a model cannot be loaded, two have one name, the port is in use,
            the address is not of this machine, or the extra `serve` is not installed.
    """
    inside = apart.Inside.this()
    if inside is not None:
        return inside.run(load)
    require_extra(options.grpc is not None)
    worker = Worker.this()
    if worker is not None:
        options = replace(options, port=worker.port, grpc=worker.grpc)
    guards = options.guards
    guards.check(options.host)
    from pipelines.serving.http.access import Access, Rate
    from pipelines.serving.http.app import make_app
    from pipelines.serving.http.audit import Audit
    from pipelines.serving.http.connections import Beside, Bounds, Server, Tls
    from pipelines.serving.http.hosting import LARGE
    from pipelines.serving.http.models import Models, Watch, versions_in
    from pipelines.serving.http.observing import Observed
    from pipelines.serving.http.tokens import Tokens
    from pipelines.serving.http.tracing import Tracing

    twice = next((one.name for place, one in enumerate(sources) if one.name in [other.name for other in sources[:place]]), None)
    if twice is not None:
        raise ConfigError(f"two models have the name {twice}; give one another, as NAME=...")

    def warm(folder: Path) -> "Answerer":
        model = load(folder)
        model.warm_up()
        return model

    with _refusal(options.host, options.port):
        bound = bind(options.host, options.port, shared=worker is not None)
    with bound:
        rpc_port = options.grpc if worker is not None or options.grpc is None else free_port(options.host, options.grpc, "--grpc")
        audit = Audit(guards.audit) if guards.audit else None
        tracing = Tracing.configured()
        observed = Observed(log=sys.stdout if options.log else None, audit=audit, tracing=tracing)
        access = None
        if guards.tokens or guards.rate or guards.client_ca:
            access = Access(tokens=Tokens(guards.tokens) if guards.tokens else None, rate=Rate(guards.rate) if guards.rate else None)
        tls = Tls(guards.certificate, guards.key, guards.client_ca) if guards.certificate and guards.key else None
        models = Models(observed, delay=options.delay, deadline=options.deadline, each=options.each, kept=options.versions,
                        apart=partial(apart.Apart, seconds=options.long, threads=LARGE) if os.name == "posix" else None)
        watches = []
        for one in sources:
            found = versions_in(one.folder) if one.watched else {1: one.folder}
            for version in sorted(found)[-options.versions:]:
                models.add(one.name, version, warm(found[version]), found[version])
            if one.watched:
                watches.append(Watch(one.name, one.folder, warm, models, max(found)))
        beside: list[Beside] = []
        if rpc_port is not None:
            from pipelines.serving.grpc.server import RpcServer

            beside.append(RpcServer(options.host, rpc_port, models, observed, limit=options.limit, calls=options.connections,
                                    access=access, tls=tls, shared=worker is not None))
        if worker is not None:
            beside.append(worker)  # last: once the others have started

        def started() -> None:
            if worker is None:
                announce(options, bound.getsockname()[1], rpc_port, say)

        server = Server(make_app(models, observed, limit=options.limit, access=access, origins=guards.origins), observed,
                        Bounds(options.connections, options.limit, options.drain), watches, beside=beside, started=started, tls=tls)
        with _refusal(options.host, options.port):
            bound.listen(BACKLOG)
        gc.collect()
        gc.freeze()  # what is there now stays: no collection has to look at it again
        try:
            server.run(sockets=[bound])
        finally:
            if tracing is not None:
                tracing.close()


def serve_by(workers: int, options: Options, *, say: Callable[[str], None]) -> int:
    """Has that many processes like this one answer until a signal comes; loads nothing itself. Returns the exit status.

    Raises:
        ConfigError: the port is in use, the address is not of this machine, or the system cannot share a port.
    """
    options.guards.check(options.host)
    require_workers()
    port = free_port(options.host, options.port, "--port")
    grpc = None if options.grpc is None else free_port(options.host, options.grpc, "--grpc")
    return supervise(workers, port, grpc, drain=options.drain, say=say, address=lambda: announce(options, port, grpc, say))


def announce(options: Options, port: int, grpc: int | None, say: Callable[[str], None]) -> None:
    """Says where requests are taken."""
    name = f"[{options.host}]" if ":" in options.host else options.host
    if grpc is not None:
        say(f"gRPC         {name}:{grpc}")
    say(f"serving      {options.guards.scheme}://{name}:{port}")


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket at that address, which does not listen yet; port 0 takes a free one; `shared` with other processes.

    Answers go out at once: asyncio switches Nagle's algorithm off only for a socket that names its protocol, which socket.create_server
    leaves out, and then a small answer waits for the client's delayed acknowledgement, some 40 ms.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def free_port(host: str, port: int, option: str) -> int:
    """A port that nobody listens at, for one that binds it by itself; 0 becomes a free one. Raises ConfigError, naming the option."""
    with _refusal(host, port, option), bind(host, port) as bound:
        return int(bound.getsockname()[1])


@contextmanager
def _refusal(host: str, port: int, option: str = "--port") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--host {host} {option} {port}: {error.strerror or error}; name another") from None
